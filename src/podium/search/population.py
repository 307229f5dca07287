"""Population based training by Katib's rules (katib: pkg/suggestion/v1beta1/pbt,
pkg/webhook/v1beta1/pod).

Trials go through generations. Each trial of a later one begins with the files its parent left in
the directory that the setting ``suggestion_trial_dir`` names, and trains on with other values: the
worst of the population take those of one of the best, all others change theirs a little. A trial
knows its generation and parent by tags.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from podium.search.algorithm import SEED, SHARE, Algorithm, PastTrial, Plan, Point, Setting
from podium.search.space import Parameter

GENERATION, PARENT = "generation", "parent"
_FACTORS = (0.8, 1.2)
"""A number is changed by one of them."""


@dataclass(kw_only=True)
class _Member:
    """A trial that runs, will run, or has run."""

    point: Point
    generation: int = 0
    """Number of ancestors."""

    parent: str | None = None
    """The trial whose files it starts from."""

    value: float = 0.0
    """Its objective, more being better."""


class _Population(Plan):
    """A population of trials; when more than it have ended, the next generation follows from
    them."""

    def __init__(
        self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool
    ) -> None:
        super().__init__(space, settings, maximize)
        self.size, self.share = settings["n_population"], settings["truncation_threshold"]
        self.draw = random.Random(settings.get("random_state"))
        self.queue = [self._seed() for _ in range(self.size)]
        self.members: dict[str, _Member] = {}
        self.previous: list[str] = []
        self.current: list[str] = []

    def next(self, trial: str) -> Point | None:
        if not self.queue:
            self._generate()
        self.members[trial] = member = self.queue.pop(0)
        return member.point

    def tags(self, trial: str) -> dict[str, str]:
        member = self.members[trial]
        return {GENERATION: str(member.generation)} | (
            {PARENT: member.parent} if member.parent else {}
        )

    def tell(self, trial: str, value: float | None) -> None:
        """Take a trial that has ended into the population; one that failed is tried again."""
        member = self.members[trial]
        if value is None:
            self.queue.append(
                _Member(point=member.point, generation=member.generation, parent=member.parent)
            )
            return
        member.value = value if self.maximize else -value
        self.current.append(trial)

    def recall(self, history: Iterable[PastTrial]) -> None:
        """Continue with the last generation that had begun, after the one before it."""
        seen = list(history)
        for earlier in seen:
            generation, parent = int(earlier.tags.get(GENERATION, 0)), earlier.tags.get(PARENT)
            self.members[earlier.trial] = _Member(
                point=earlier.point, generation=generation, parent=parent
            )
        latest = max((member.generation for member in self.members.values()), default=0)
        begun = [earlier for earlier in seen if self.members[earlier.trial].generation == latest]
        self.queue = self.queue[len(begun) :] if latest == 0 else []
        for member in list(self.members.values())[self.size :]:
            if member.generation == 0:
                self._seed()  # a seed must not give it again
        seeds, self.queue = self.queue, []
        for earlier in seen:
            member = self.members[earlier.trial]
            if member in self.queue:  # it repeats one that failed
                self.queue.remove(member)
            if not earlier.running:
                self.tell(earlier.trial, earlier.value)
        self.queue = [*seeds, *self.queue]
        self.previous = [
            trial for trial in self.current if self.members[trial].generation == latest - 1
        ]
        self.current = [trial for trial in self.current if self.members[trial].generation == latest]
        if latest and len(begun) < self.size:
            taken = {self.members[earlier.trial].parent for earlier in begun}
            missing = [
                child
                for child in self._children(self.previous, self.size)
                if child.parent not in taken
            ]
            self.queue += missing[: self.size - len(begun)]

    def _generate(self) -> None:
        if len(self.current) > self.size:
            self.queue += self._children(self.current, self.size)
            self.previous, self.current = self.current, []
        elif self.previous:
            self.queue += self._children(self.previous, 1)
        else:
            self.queue.append(self._seed())

    def _children(self, pool: Sequence[str], count: int) -> list[_Member]:
        import numpy as np

        values = {trial: self.members[trial].value for trial in pool}
        low, high = np.quantile(list(values.values()), (self.share, 1 - self.share))
        worst = [trial for trial in pool if values[trial] < low]
        others = [trial for trial in pool if values[trial] >= low]
        best = [trial for trial in others if values[trial] >= high]
        self.draw.shuffle(worst)
        self.draw.shuffle(others)
        worst = worst[: int(count * self.share)]
        taken = [(trial, self.members[self.draw.choice(best)].point) for trial in worst]
        changed = [
            (trial, self._explore(self.members[trial].point))
            for trial in others[: count - len(worst)]
        ]
        return [
            _Member(point=point, generation=self.members[trial].generation + 1, parent=trial)
            for trial, point in (*taken, *changed)
        ]

    def _seed(self) -> _Member:
        return _Member(
            point={parameter.name: parameter.at(self.draw.random()) for parameter in self.space}
        )

    def _explore(self, point: Point) -> Point:
        resample = self.settings.get("resample_probability")
        explored = {}
        for parameter in self.space:
            value = point[parameter.name]
            if resample is None:
                value = self._perturb(parameter, value)
            elif self.draw.random() < resample:
                value = parameter.at(self.draw.random())
            explored[parameter.name] = value
        return explored

    def _perturb(self, parameter: Parameter, value: str) -> str:
        if not parameter.numeric:
            index = parameter.choices.index(value) + self.draw.choice((-1, 1))
            return parameter.choices[index % len(parameter.choices)]
        new = float(value) * self.draw.choice(_FACTORS)
        new = min(
            max(float(int(new)) if parameter.kind == "int" else new, parameter.low), parameter.high
        )
        return parameter.text(new)


def _explored(parameter: Parameter, settings: Mapping[str, Any]) -> Parameter:
    """Return a parameter as a population explores it: perturbed values lie between the steps, on no
    scale."""
    step = 1.0 if parameter.kind == "int" else None
    return replace(parameter, step=step, distribution="uniform")


PBT = Algorithm(
    name="pbt",
    settings={
        "suggestion_trial_dir": Setting(str, lambda text: text.startswith("/"), "an absolute path"),
        "n_population": Setting(int, lambda value: value >= 5, "an integer >= 5"),
        "truncation_threshold": SHARE,
        "resample_probability": SHARE,
        "random_state": SEED,
    },
    required=("suggestion_trial_dir", "n_population", "truncation_threshold"),
    example='{name: suggestion_trial_dir, value: /checkpoints}, n_population "5" and truncation_threshold "0.2"',
    drops_unknown_settings=True,
    needs_steps=True,
    keeps_files=True,
    plan=_Population,
    explored=_explored,
)
