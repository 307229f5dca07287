"""auto chooses by the space, the number of trials and how many run at once, and says why."""

import pytest

from podium.search.algorithms import ALGORITHMS, CHOICES, MODELED, ROUNDS, choose
from podium.search.space import Parameter

RATE = Parameter(name="lr", kind="double", low=0.001, high=1.0, distribution="logUniform")
WIDTH = Parameter(name="width", kind="int", low=1.0, high=4.0, step=1.0)
OPTIMIZER = Parameter(name="optimizer", kind="categorical", choices=("sgd", "adam"))


@pytest.mark.parametrize(
    ("space", "trials", "parallel", "algorithm", "reason"),
    [
        ([WIDTH, OPTIMIZER], 8, 2, "grid", "has 8 points"),
        ([WIDTH, OPTIMIZER], 7, 2, "multivariate-tpe", "few trials (7, 2 at a time)"),
        ([RATE], MODELED.start - 1, 2, "multivariate-tpe", "few trials (24, 2 at a time)"),
        (
            [RATE],
            MODELED.start,
            2,
            "bayesianoptimization",
            "a Gaussian process, which was ahead in most comparisons of 25 to 100 trials",
        ),
        (
            [RATE],
            MODELED.stop - 1,
            2,
            "bayesianoptimization",
            "a Gaussian process, which was ahead in most comparisons of 25 to 100 trials",
        ),
        ([RATE], ROUNDS * 8 - 1, 8, "multivariate-tpe", "few trials (47, 8 at a time)"),
        ([RATE], ROUNDS * 8, 8, "bayesianoptimization", "comparisons of 25 to 100 trials"),
        ([RATE], MODELED.stop, 2, "multivariate-tpe", "quick however many trials"),
        ([RATE], None, 2, "multivariate-tpe", "quick however many trials"),
        ([RATE, WIDTH], 8, 8, "sobol", "8 trials at once cannot learn"),
        ([RATE, WIDTH], 9, 8, "multivariate-tpe", "few trials (9, 8 at a time)"),
    ],
)
def test_the_choice_follows_from_space_budget_and_parallelism(
    space: list[Parameter], trials: int | None, parallel: int, algorithm: str, reason: str
) -> None:
    choice = choose(space, trials, parallel, modeled=True)
    assert choice.algorithm == algorithm
    assert reason in choice.reason
    assert choose(space, trials, parallel, modeled=True) == choice


def test_without_torch_no_gaussian_process_is_chosen() -> None:
    choice = choose([RATE], MODELED.start, 2, modeled=False)
    assert choice == ("multivariate-tpe", "there is no Gaussian process without torch")


def test_every_choice_needs_no_setting_and_katib_has_it() -> None:
    for name in CHOICES:
        assert ALGORITHMS[name].in_katib
        assert not ALGORITHMS[name].required
