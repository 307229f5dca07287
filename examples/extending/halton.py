# src/podium/search/halton.py
"""Halton sequences: points that fill the space evenly."""

from podium.search.algorithm import SEED, Algorithm, Plan, Point


class Halton(Plan):
    """A scrambled Halton sequence."""

    def next(self, trial: str) -> Point | None:
        """Return the next point."""
        from scipy.stats import qmc

        engine = qmc.Halton(len(self.space), seed=self.settings.get("random_state", 0))
        engine.fast_forward(self.given)
        self.given += 1
        unit = engine.random(1)[0]
        return {
            parameter.name: parameter.at(float(u))
            for parameter, u in zip(self.space, unit, strict=True)
        }


HALTON = Algorithm(name="halton", settings={"random_state": SEED}, in_katib=False, plan=Halton)
