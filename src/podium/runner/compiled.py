"""A compiled pipeline (KFP's PipelineSpec) as the runner reads it: its tasks, in order, each with
the name of its step."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Path_ = tuple[str, ...]
"""Names of the tasks from the root to one."""

GROUPS = ("condition", "for-loop", "exit-handler")
"""Tasks that KFP makes for control flow; a pipeline that is part of another is none."""


@dataclass(frozen=True)
class Compiled:
    """A compiled pipeline."""

    spec: Mapping[str, Any]
    platform: Mapping[str, Any] = field(default_factory=dict)
    """The document of platform settings."""

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def root(self) -> Mapping[str, Any]:
        """The component that is the whole pipeline."""
        return dict(self.spec["root"])

    def component(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the component of a task."""
        return dict(self.spec.get("components", {})[task["componentRef"]["name"]])

    def executor(self, component: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a component that is no group runs."""
        executors = self.spec.get("deploymentSpec", {}).get("executors", {})
        return dict(executors[component["executorLabel"]])

    @property
    def seconds(self) -> int:
        """Time limit of the pipeline (dsl.PipelineConfig: active_deadline_seconds); 0 for none."""
        return int(self._on_kubernetes.get("pipelineConfig", {}).get("activeDeadlineSeconds", 0))

    def kubernetes(self, component: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings for Kubernetes of what a component runs."""
        executors = self._on_kubernetes.get("deploymentSpec", {}).get("executors", {})
        return dict(executors.get(component.get("executorLabel"), {}))

    @property
    def _on_kubernetes(self) -> Mapping[str, Any]:
        return dict(self.platform.get("platforms", {}).get("kubernetes", {}))

    def tasks(
        self, group: Mapping[str, Any] | None = None, above: Path_ = ()
    ) -> Iterator[tuple[Path_, Mapping[str, Any]]]:
        """Yield every task with its path, in the order they can run, those of groups in place."""
        for name, task in in_order((self.root if group is None else group)["dag"]["tasks"]):
            yield (*above, name), task
            component = self.component(task)
            if "dag" in component:
                yield from self.tasks(component, (*above, name))

    @cached_property
    def steps(self) -> dict[Path_, str]:
        """Name of the step of each task that is no group, unique in the whole pipeline, in the
        order they run."""
        paths = [path for path, task in self.tasks() if "dag" not in self.component(task)]
        often = Counter(path[-1] for path in paths)
        return {
            path: path[-1]
            if often[path[-1]] == 1
            else ".".join(part for part in path if not part.startswith(GROUPS))
            for path in paths
        }

    @property
    def titles(self) -> dict[str, str]:
        """Display name of each step."""
        by_path = dict(self.tasks())
        return {
            name: by_path[path].get("taskInfo", {}).get("name") or name
            for path, name in self.steps.items()
        }


def in_order(tasks: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tasks of a group so that each comes after those it needs."""
    left, ordered = dict(sorted(tasks.items())), []
    while left:
        ready = [name for name in left if not left.keys() & needed(left[name])]
        ordered += [(name, left.pop(name)) for name in ready or list(left)]
    return ordered


def needed(task: Mapping[str, Any]) -> set[str]:
    """Return the names of the tasks that a task needs."""
    names = set(task.get("dependentTasks", ()))
    inputs = task.get("inputs", {})
    for source in (*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()):
        for kind in ("taskOutputParameter", "taskOutputArtifact", "taskFinalStatus"):
            if kind in source:
                names.add(source[kind]["producerTask"])
    return names
