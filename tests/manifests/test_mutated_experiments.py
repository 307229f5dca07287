"""Whatever is wrong with a manifest, it is refused with the rule, the value and the field, or it is an Experiment."""

import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from katibcases import bases, mutate

from podium.api.experiments import _at_home
from podium.cluster.local.cluster import Supervisor
from podium.doctor.manifest import examine_manifest
from podium.doctor.report import Report
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, check, customize, examine, load
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

BASES = list(bases())
COUNT = 400
SAYS = re.compile(
    r"(.*but got .*)|(.* has no container .*)|(.* needs the settings .*)|(.*not JSON any more.*)|(.*must not be empty.*)|(\S+: podium .*, not .*)|(.*: this machine needs .*, (not|but there is|or the entrypoint of image) .*)|(.*cannot honor it.*)|(.*trainer refuses its flags.*)",
    re.DOTALL,
)
FIELD = re.compile(
    r"\b(spec|metadata|kind|apiVersion)\b|parallelTrialCount|an Experiment is an object|processes"
)

TWICE = re.compile(r"^(\S+\.\S+): `\1\b", re.MULTILINE)
"""A path in front of a rule that begins with it."""


class Idle(LocalSweeps):
    """A cluster that checks and stores, and starts nothing."""

    def supervise(self, kind: str, name: str, supervisor: Supervisor) -> None:
        """Do nothing."""


def mutated(number: int) -> tuple[dict[str, Any], str]:
    draw = random.Random(number)
    name, base = draw.choice(BASES)
    manifest, done = mutate(base, draw)
    return manifest, f"{number}: {name}, {done}"


def refuses(report: Report) -> bool:
    """Tell whether the doctor says that podium would refuse what it examined."""
    return report.verdict == "fail" or "not-run-by-podium" in {
        finding.rule for finding in report.findings
    }


def refusal(call: Callable[[], Any]) -> str | None:
    """Return how a call was refused, and the hint; None if it was not. Nothing but InvalidInput is a refusal."""
    try:
        call()
    except InvalidInput as error:
        return str(error)
    return None


def test_mutated_manifests_are_experiments_or_refused_by_field(tmp_path: Path) -> None:
    accepted = 0
    with Idle(tmp_path, fork_server=False) as cluster:
        for number in range(COUNT):
            manifest, what = mutated(number)
            began = time.monotonic()
            refused = refusal(lambda manifest=manifest: cluster.create(typed(manifest)))
            if refused is not None:
                assert SAYS.fullmatch(refused), (what, refused)
                assert FIELD.search(refused), (what, refused)
                assert "\nhint: " in refused, (what, refused)
                assert not TWICE.search(refused), (what, refused)
            else:
                accepted += 1
                (stored,) = [stored.manifest for stored in cluster.list("Experiment")]
                admitted = check(Experiment.parse(stored))
                defaulted = Experiment.parse({**stored, "spec": admitted.spec})
                assert check(defaulted).spec == admitted.spec, what
                cluster.store.remove("Experiment", stored["metadata"]["name"])
            assert time.monotonic() - began < 10, what
    assert COUNT // 25 < accepted < COUNT // 2, "mutations are neither harmless nor hopeless"


def test_the_doctor_examines_mutated_manifests_and_fails_what_is_refused() -> None:
    for number in range(0, COUNT, 2):
        manifest, what = mutated(number)
        report = (
            examine_manifest(manifest, "file") if manifest.get("kind") == "Experiment" else None
        )
        if refusal(lambda manifest=manifest: check(Experiment.parse(manifest))) is not None:
            assert report is None or refuses(report), what


def test_options_change_mutated_manifests_or_refuse_them(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "max_trials": 3,
        "image": "x",
        "workers": 2,
        "seed": 3,
        "goal": 1.0,
        "labels": {"a": "b"},
    }
    for number in range(0, COUNT, 2):
        manifest, what = mutated(number)
        change = partial(
            customize, flags={"--epochs": "1"}, env=[{"name": "A", "value": "1"}], **options
        )
        refused = refusal(
            lambda change=change, manifest=manifest: _at_home(
                change(Experiment.parse(manifest)), tmp_path, "data", None
            )
        )
        assert refused is None or re.search(
            r", but (got|\d+ are asked for|this Experiment has none)", refused
        ), (
            what,
            refused,
        )


@pytest.mark.parametrize("kind", ["trainjob", "optimizationjob"])
def test_migrating_mutated_manifests_ends_in_yaml_or_a_sentence(
    kind: str, tmp_path: Path, podium: Callable[..., Result]
) -> None:
    file, draw, written = tmp_path / "experiment.yaml", random.Random(1), 0
    trainjobs = [(name, base) for name, base in BASES if "trainjob" in name]
    for number in range(120):
        name, base = draw.choice(trainjobs if number % 2 else BASES)
        manifest, done = mutate(base, draw)
        file.write_text(yaml.safe_dump(manifest, sort_keys=False))
        migrated = podium("migrate", str(file), "--to", kind)
        if migrated.exit_code == 0:
            written += 1
            assert isinstance(yaml.safe_load(migrated.stdout), dict)
        else:
            assert isinstance(migrated.exception, InvalidInput), (name, done, migrated.exception)
    assert written > 10


def test_values_beside_the_command_have_no_place_in_an_optimizationjob(
    tmp_path: Path, podium: Callable[..., Result]
) -> None:
    manifest = load("random-trainjob")
    template = manifest["spec"]["trialTemplate"]
    names = [parameter["name"] for parameter in template["trialParameters"]]
    template["trialSpec"]["spec"]["annotations"] = {
        name: f"${{trialParameters.{name}}}" for name in names
    }
    del template["trialSpec"]["spec"]["trainer"]  # the runtime's own command runs
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(manifest))
    done = podium("migrate", str(tmp_path / "experiment.yaml"), "--to", "optimizationjob")
    assert isinstance(done.exception, InvalidInput)
    assert "stands outside of command and args" in done.exception.message


def test_mutated_text_is_refused_in_one_sentence() -> None:
    draw = random.Random(1)
    for name, base in BASES[::2]:
        text = yaml.safe_dump(base, sort_keys=False)
        place, slip = draw.randrange(len(text)), draw.choice("{}[]:-#&*!|>'\"%@`\t\n \0aé")
        for slipped in (
            text[:place],
            text[:place] + slip + text[place:],
            text[:place] + text[place + 3 :],
        ):
            refused = refusal(lambda text=slipped: check(Experiment.parse(load(text + "\n"))))
            says = "but got|trainer refuses its flags|has no container|needs the settings|not readable as YAML|but the given text"
            assert refused is None or re.search(says, refused), (name, refused)


def test_a_misspelt_field_is_a_warning_with_the_right_one() -> None:
    manifest = load("random")
    manifest["spec"]["maxTrialCounts"] = manifest["spec"].pop("maxTrialCount")
    manifest["spec"]["parameters"][0]["feasibleSpace"]["minimum"] = "0.1"
    manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]["mine"] = 1
    check(Experiment.parse(manifest))
    traps = [finding for finding in examine(manifest) if finding.rule == "accepted-with-a-trap"]
    assert {finding.where: (finding.level, finding.hint) for finding in traps} == {
        "spec.maxTrialCounts": ("warn", "did you mean maxTrialCount?"),
        "spec.parameters[0].feasibleSpace.minimum": ("warn", "did you mean min?"),
    }


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(InvalidInput, match="not readable as YAML"):
        load('metadata: {name: "\\ud800"}\n')


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"workers": 1001}, "a job runs at most 1000 processes at once"),
        (
            {"parallel_trials": 1001, "max_trials": 1001},
            "parallelTrialCount <= 1000 on one machine",
        ),
    ],
)
def test_a_slip_that_would_take_the_machine_down_is_refused(
    change: dict[str, Any], rule: str, tmp_path: Path
) -> None:
    with Idle(tmp_path, fork_server=False) as cluster, pytest.raises(InvalidInput, match=rule):
        cluster.create(customize(Experiment.load("random"), **change))
