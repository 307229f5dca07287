"""Rules about TrainJobs, and about jobs of the training operator that TrainJobs replace.

Source: kubeflow/trainer v2.3.0, pkg/runtime/framework/plugins/torch/torch.go and
docs/operator-guides/runtime-patches.md; kubernetes-sigs/kueue#12606.
"""

from collections.abc import Iterator

from podium.manifests.experiment.trainer import is_podium
from podium.manifests.kinds import TRAINJOB
from podium.manifests.labels import QUEUE
from podium.manifests.migrate import KINDS
from podium.manifests.rules import Rule, Violation, rules_into
from podium.manifests.torchrun import starts_python
from podium.manifests.trainjob import NODE, OTHER_RUNTIMES
from podium.manifests.workload import Container, Workload

TRAINJOB_RULES: list[Rule[Workload]] = []
rule = rules_into(TRAINJOB_RULES)

_OLD_FIELDS = {"podTemplateOverrides": "Trainer 2.1", "podSpecOverrides": "Trainer 2.0"}
_INSTEAD = (
    "write runtimePatches: [{manager: acme.com/team, trainingRuntimeSpec: {template: {spec: {replicatedJobs: "
    "[{name: node, template: {spec: {template: {spec: …}}}}]}}}}]"
)


def _plain(job: Workload) -> Container | None:
    """Return the container of a TrainJob's nodes if it starts Python where Trainer has prepared for torchrun."""
    if job.kind != TRAINJOB or job.runtime in OTHER_RUNTIMES:
        return None
    container = job.replicas[0].pod.container(NODE)
    return container if container and starts_python(container.words) else None


@rule("warn", "Trainer sets PET_* for torchrun, but neither RANK nor WORLD_SIZE: each node trains alone, on all data.")
def separate_trainings(job: Workload) -> Iterator[Violation]:
    container = _plain(job)
    if container is None or job.nodes < 2:
        return
    reads_itself = is_podium(container.words) or any("PET_" in word for word in container.words)
    if not reads_itself:
        what = f"{job.nodes} nodes start python without torchrun: {job.nodes} separate trainings"
        hint = "put torchrun in place of python, or python -m torch.distributed.run before the script"
        yield Violation(what=what, where=f"{container.path}.command", hint=hint)


@rule("warn", "Only torchrun starts numProcPerNode processes on each node.")
def one_process_a_node(job: Workload) -> Iterator[Violation]:
    container, processes = _plain(job), job.processes_per_replica
    if container is not None and processes and processes > 1:
        what = f"numProcPerNode is {processes}, but python without torchrun is one process"
        hint = "start it with torchrun, or set numProcPerNode: 1"
        yield Violation(what=what, where=f"{container.path}.numProcPerNode", hint=hint)


@rule("fail", "Trainer 2.2 replaced it by runtimePatches: kubectl refuses the field, other clients lose it unseen.")
def old_overrides(job: Workload) -> Iterator[Violation]:
    for name, version in _OLD_FIELDS.items() if job.kind == TRAINJOB else ():
        if job.spec.get(name) is not None:
            yield Violation(what=f"{name} is of {version}", where=f"{job.path}spec.{name}", hint=_INSTEAD)


@rule("note", "A TrainJob's nodes restart OnFailure, up to the backoffLimit of the runtime's Job, six by default.")
def nodes_restart(job: Workload) -> Iterator[Violation]:
    if job.kind == TRAINJOB and job.in_template:
        hint = "a runtime of your own with backoffLimit: 0 for its Job, or activeDeadlineSeconds"
        yield Violation(what="a failing trial is tried again", where=f"{job.path}spec.runtimeRef", hint=hint)


@rule("note", "Kueue 0.19 leaves the training operator's jobs out of its default configuration (kueue#12606).")
def queue_may_be_ignored(job: Workload) -> Iterator[Violation]:
    if job.operator and QUEUE in job.labels:
        hint = f"switch kubeflow.org/{job.kind.lower()} on in Kueue's integrations.frameworks"
        hint += ", or make it a TrainJob: podium migrate" if job.kind in KINDS else ""
        what = f"Kueue 0.19 and later may ignore {QUEUE} of a {job.kind}"
        yield Violation(what=what, where=f"{job.path}metadata.labels", hint=hint)
