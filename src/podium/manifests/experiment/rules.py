"""Every rule about an Experiment: ``podium experiment run``, ``render``, ``compile`` and ``doctor``
read this table."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from podium.manifests.admission import refusals
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.katib_rules import BY_ANOTHER_USER, EXPERIMENT_RULES, TRAP
from podium.manifests.experiment.shell_rules import SHELL_RULES
from podium.manifests.experiment.stuck_rules import OTHER_SWEEPS, SEARCH, STUCK
from podium.manifests.experiment.trial_rules import TRAINER_RULES, TRIAL_RULES, sample_trial
from podium.manifests.experiment.webhook_rules import KIND, WEBHOOK
from podium.manifests.job_rules import JOB_RULES, workers_outlive_the_master
from podium.manifests.names import is_dns_1035
from podium.manifests.rules import (
    KATIB,
    PODIUM,
    BrokenRules,
    Finding,
    apply,
    raise_for,
    worst_first,
)

STAGES = (WEBHOOK, OTHER_SWEEPS, STUCK, SEARCH)
"""Rules by stage. A finding in one stage ends the check: later rules build on earlier ones."""


def check(
    experiment: Experiment, runners: Collection[str] = (PODIUM,), *, job: bool = True
) -> Experiment:
    """Return an Experiment that can run to its end.

    Args:
        runners: Systems that must accept it and bring it to an end; an Experiment that neither
            podium nor Katib would is always refused.
        job: Whether the job of its trials is examined too.

    Raises:
        BrokenRules: It would be refused, or accepted and never end; every broken rule is named.
    """
    raise_for(_findings_of(experiment, job=job), runners)
    return experiment


def examine(manifest: Mapping[str, Any]) -> list[Finding]:
    """Return all findings about a manifest, the worst first."""
    try:
        return _findings_of(Experiment.parse(manifest))
    except BrokenRules as error:  # fields of wrong types: nothing else can be said about them
        return list(error.findings)


def warnings_of(experiment: Experiment) -> list[str]:
    """Return the parts that work on this machine and may not on another cluster, each with a
    hint."""
    warnings = []
    for finding in _findings_of(experiment):
        if finding.level == "fail" or finding.refuses or finding.rule in (TRAP, BY_ANOTHER_USER):
            text = f"on a cluster {finding.what}" if finding.runner == KATIB else finding.text
            warnings.append(f"warning: {text}\n  hint: {finding.hint}")
    return warnings


def _findings_of(experiment: Experiment, *, job: bool = True) -> list[Finding]:
    if another := apply(KIND, experiment):  # whose fields are not these
        return another
    first = next(filter(None, (apply(stage, experiment) for stage in STAGES)), [])
    refused = any(finding.level == "fail" for finding in first)
    findings = [*first, *apply(EXPERIMENT_RULES, experiment)]
    if job and experiment.template.is_supported:
        # A trial's job is deleted with its Workers unless it is retained.
        kept = experiment.template.retain
        rules = [rule for rule in JOB_RULES if kept or rule is not workers_outlive_the_master]
        findings += [
            *apply((*SHELL_RULES, *TRIAL_RULES), experiment),
            *apply(rules, experiment.template.workload),
            *_refused_trial(experiment),
            *([] if refused else apply(TRAINER_RULES, experiment)),
        ]
    return worst_first(findings)


def _refused_trial(experiment: Experiment) -> list[Finding]:
    named = is_dns_1035(experiment.expected_name)
    name = f"{experiment.expected_name[:40]}-{'x' * 8}" if named else "trial"
    if (trial := sample_trial(experiment, name)) is None:
        return []  # other rules say why
    path = experiment.template.workload.path
    return [
        replace(finding, where=f"{path}{finding.where}") for finding in refusals(trial.manifest)
    ]
