"""Rules find, findings are carried by the error, and nobody parses its text."""

from collections.abc import Iterator

import pytest

from podium.errors import InvalidInput
from podium.manifests.admission import admit
from podium.manifests.experiment import Experiment, check, load
from podium.manifests.experiment.stuck_rules import STUCK, _unsupported
from podium.manifests.rules import (
    PODIUM,
    BrokenRules,
    Rules,
    Violation,
    apply,
    broken,
    raise_for,
)

RULES = Rules[int]()


@RULES.rule("fail", "Nobody counts below zero.", refuses=True)
def too_small(number: int) -> Iterator[Violation]:
    if number < 0:
        yield broken("number", "number >= 0", number, "add to it")


@RULES.rule("warn", "Odd numbers are odd.", "odd-one")
def is_odd(number: int) -> Iterator[Violation]:
    if number % 2:
        yield Violation(what="it is odd", where="number", level="note" if number == 1 else None)


def test_a_rule_gives_its_findings_name_level_and_reason() -> None:
    (finding,) = apply((too_small,), -2)
    assert (finding.rule, finding.level, finding.why) == (
        "too-small",
        "fail",
        "Nobody counts below zero.",
    )
    assert finding.text == "number: `number >= 0` must hold, but got -2"
    assert finding.hint == "add to it"


def test_the_worst_findings_come_first() -> None:
    assert [finding.rule for finding in apply((is_odd, too_small), -3)] == ["too-small", "odd-one"]
    assert [finding.level for finding in apply((is_odd, too_small), 1)] == ["note"]
    assert [finding.level for finding in apply((is_odd,), 3)] == ["warn"]


def test_only_findings_that_break_are_raised() -> None:
    raise_for(apply((is_odd,), 3))
    with pytest.raises(BrokenRules) as caught:
        raise_for(apply((is_odd, too_small), -3))
    assert [finding.rule for finding in caught.value.findings] == ["too-small"]
    assert isinstance(caught.value, InvalidInput)


def test_what_podium_does_not_run_is_a_warning_that_breaks() -> None:
    rule = next(rule for rule in STUCK if rule.name == "not-run-by-podium")
    assert (rule.level, rule.runner, rule.refuses) == ("warn", PODIUM, True)
    violation = _unsupported("spec.kind", "podium runs Jobs", "Workflows")
    assert violation.what == "podium runs Jobs, not Workflows"
    assert str(violation.hint).endswith("change spec.kind")


def test_errors_of_manifests_carry_their_findings() -> None:
    manifest = load("random")
    manifest["spec"]["maxTrialCount"] = 0
    with pytest.raises(BrokenRules) as caught:
        check(Experiment.parse(manifest))
    assert "spec.maxTrialCount" in {finding.where for finding in caught.value.findings}
    assert {finding.rule for finding in caught.value.findings} == {"refused-by-webhook"}
    with pytest.raises(BrokenRules) as caught:
        admit(
            {
                "kind": "Job",
                "apiVersion": "batch/v1",
                "metadata": {"name": "j"},
                "spec": {"parallelism": "2"},
            }
        )
    assert [(finding.rule, finding.where) for finding in caught.value.findings] == [
        ("refused-by-operator", "spec.parallelism")
    ]
