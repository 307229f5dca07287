"""Figures of a sweep, as plotly figures: a notebook shows them, and each can be changed or
saved."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput
from podium.reports import plots
from podium.system.arguments import checked

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@checked
class Plots:
    """``sweep.plot.history()``, ``.importance()``, ``.parallel()`` and ``.front()``.

    Args:
        table: Returns the sweep as the report's figures read it.
    """

    def __init__(self, table: Callable[[], Mapping[str, Any]]) -> None:
        self._table = table

    def history(self) -> "Figure":
        """Return the objective of each trial in start order, and the best so far."""
        return _drawn(plots.history(self._with_results(1)))

    def parallel(self) -> "Figure":
        """Return parallel coordinates: a line for each trial, from its parameters to its
        objective."""
        return _drawn(plots.coordinates(self._with_results(1)))

    def front(self, *pair: str) -> "Figure":
        """Return each trial by two of its objectives, the first two unless others are named, with
        the Pareto front.

        Raises:
            InvalidInput: These are not two objectives.
        """
        table = self._with_results(1)
        objectives = list(plots.objectives(table))
        chosen = list(pair or objectives[:2])
        if len(set(chosen)) != 2 or not set(chosen) <= set(objectives):
            problem = f"a front is drawn by two of the objectives ({', '.join(objectives)}), not by {', '.join(chosen)}"
            raise InvalidInput(problem, "plot.history() draws one")
        return _drawn(plots.pareto(table, *chosen))

    def importance(self) -> "Figure":
        """Return the importance of each parameter for being among the best trials (PED-ANOVA), with
        90 % intervals.

        Raises:
            InvalidInput: There are too few trials, or there is one parameter only.
        """
        table = self._with_results(plots.ENOUGH)
        if not (shares := plots.importance(table)):
            names = ", ".join(parameter["name"] for parameter in table["parameters"])
            problem = f"importance compares parameters that count in all trials; there are not two among {names}"
            raise InvalidInput(problem, "plot.history()")
        return _drawn(plots.bars(shares))

    def _with_results(self, least: int) -> Mapping[str, Any]:
        table = self._table()
        count = sum(row["value"] is not None for row in table["trials"])
        if count < least:
            hint = "wait for more trials, or resume the sweep with more"
            raise InvalidInput(
                f"this figure needs {least} trials with a result, but there are {count}", hint
            )
        return table


def _drawn(figure: plots.Figure) -> "Figure":
    from plotly import io
    from plotly.graph_objects import Figure

    class Shown(Figure):  # type: ignore[misc, unused-ignore]  # plotly has no types
        """A figure that is not blank in a notebook exported as HTML: beside plotly's own output
        there is a page's."""

        def _ipython_display_(self) -> None:
            if (
                io.renderers.default != "plotly_mimetype"
            ):  # chosen by the user, or by an editor that is no Jupyter
                self.show()
                return
            from IPython.display import display

            page = self.to_html(include_plotlyjs="cdn", full_html=False)
            display(
                {"application/vnd.plotly.v1+json": json.loads(self.to_json()), "text/html": page},
                raw=True,
            )

    return Shown(figure)
