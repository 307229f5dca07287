"""The table of every rule: `podium doctor --rules`."""

from collections.abc import Mapping, Sequence
from typing import Any

from podium.display.tables import table
from podium.doctor import command, log, namespace
from podium.manifests import admission, job_rules
from podium.manifests.experiment import katib_rules, rules, shell_rules, trial_rules, webhook_rules
from podium.manifests.rules import Rule

TABLES: Mapping[str, Sequence[Rule[Any]]] = {
    "A log": log.TEXT_LOG_RULES,
    "A file of JSON lines": log.JSON_RULES,
    "Other collectors": [*log.EVENT_RULES, *log.GIVEN_RULES],
    "A command": command.RUN_RULES,
    "The shell's wrapper": shell_rules.SHELL_RULES,
    "An Experiment": [
        *webhook_rules.KIND,
        *(rule for stage in rules.STAGES for rule in stage),
        *katib_rules.EXPERIMENT_RULES,
    ],
    "The pod that reports": [*trial_rules.TRIAL_RULES, *trial_rules.TRAINER_RULES],
    "A job": [
        *admission.JOB,
        *admission.TRAINJOB_REFUSED,
        *job_rules.JOB_RULES,
        *job_rules.UNKNOWN_FIELDS,
    ],
    "A runtime of TrainJobs": job_rules.RUNTIME_RULES,
    "A namespace": namespace.NAMESPACE_RULES,
}


def every_rule() -> dict[str, list[dict[str, str]]]:
    """Return name, level and reason of every rule once, by what it examines."""
    return {
        title: [
            {"rule": name, "level": rule.level, "why": rule.why}
            for name, rule in {rule.name: rule for rule in rules}.items()
        ]
        for title, rules in TABLES.items()
    }


def show_rules() -> str:
    """Return every rule as a table for each thing that is examined."""
    heads = ("RULE", "LEVEL", "WHY")
    return "\n\n".join(
        table(heads, [tuple(rule.values()) for rule in rules], title=title)
        for title, rules in every_rule().items()
    )
