"""Metrics of a server, in Prometheus format."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from podium.prediction.predictions import UnknownValues
from podium.serving.served import Served
from podium.system.background import Tries
from podium.system.exposition import escaped, metric

_BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    float("inf"),
)
"""Upper bounds of the latency histogram, seconds."""


_VALUES = {
    "unknown": "Values of raw rows that did not occur in training.",
    "missing": "Missing values of raw rows in columns that hardly lacked any in training.",
}


class Figures:
    """Requests by model: their answers, and how long they took."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: dict[str, float] = {}
        self._values: Counter[tuple[str, str, str]] = Counter()
        """Unknown and missing ones, by which of both, model and column."""

        self._began = time.time()

    def note(self, model: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._answers[model, status] += 1
        self._buckets[model, _BOUNDS[bisect_left(_BOUNDS, seconds)]] += 1
        self._seconds[model] = self._seconds.get(model, 0.0) + seconds

    def note_values(self, model: str, seen: UnknownValues) -> None:
        """Count values of raw rows that did not occur in training."""
        for kind, counts in (("unknown", seen.counts), ("missing", seen.missing)):
            self._values.update({(kind, model, column): many for column, many in counts.items()})

    def page(self, models: Sequence[Served], under_way: int, tries: Mapping[str, Tries]) -> str:
        """Return the page."""
        served = [model for model in models if model.opened]
        lines = [
            "# HELP podium_serve_seconds Time to answer.",
            "# TYPE podium_serve_seconds histogram",
        ]
        for name, seconds in sorted(self._seconds.items()):
            total, model = 0, f'model="{escaped(name)}"'
            for bound in _BOUNDS:
                total += self._buckets[name, bound]
                shown = "+Inf" if bound == _BOUNDS[-1] else f"{bound:g}"
                lines.append(f'podium_serve_seconds_bucket{{{model},le="{shown}"}} {total}')
            lines += [
                f"podium_serve_seconds_sum{{{model}}} {seconds:.6f}",
                f"podium_serve_seconds_count{{{model}}} {total}",
            ]
        answers = sorted(self._answers.items())
        batchers = {model.name: model.now.batcher for model in served}
        return (
            "\n".join(lines)
            + "\n"
            + "".join(
                [
                    metric(
                        "podium_serve_requests_total",
                        "Requests answered.",
                        (
                            ({"model": name, "status": str(status)}, count)
                            for (name, status), count in answers
                        ),
                    ),
                    metric(
                        "podium_serve_version",
                        "The version that answers.",
                        (
                            ({"model": model.name, "version": model.now.version}, 1)
                            for model in served
                        ),
                    ),
                    *(
                        metric(
                            f"podium_serve_{kind}_values_total",
                            text,
                            (
                                ({"model": name, "column": column}, count)
                                for (which, name, column), count in sorted(self._values.items())
                                if which == kind
                            ),
                        )
                        for kind, text in _VALUES.items()
                    ),
                    metric("podium_serve_under_way", "Requests under way.", under_way),
                    metric(
                        "podium_serve_batches_total",
                        "Calls of the model since it answers.",
                        {name: batcher.batches for name, batcher in batchers.items()},
                        "model",
                    ),
                    metric(
                        "podium_serve_rows_total",
                        "Rows that the model was called on since it answers.",
                        {name: batcher.rows for name, batcher in batchers.items()},
                        "model",
                    ),
                    metric(
                        "podium_serve_swaps_total",
                        "Changes of the version that answers.",
                        {model.name: model.swaps for model in served},
                        "model",
                    ),
                    metric(
                        "podium_serve_trouble",
                        "1 while the version that should answer cannot be opened.",
                        {model.name: int(bool(model.trouble)) for model in models},
                        "model",
                    ),
                    metric(
                        "podium_serve_follow_failures_total",
                        "Looks for another champion that broke off.",
                        {name: each.failures for name, each in tries.items()},
                        "model",
                    ),
                    metric(
                        "podium_serve_start_timestamp_seconds",
                        "Since when it counts.",
                        round(self._began, 3),
                    ),
                    *_watched(served),
                    *_compared(models),
                ]
            )
        )


def _compared(models: Sequence[Served]) -> list[str]:
    both = {model.name: model.challenger for model in models if model.challenger}
    if not both:
        return []
    answers = [
        (dict(zip(("model", "version", "role", "outcome"), (name, *key), strict=True)), count)
        for name, challenger in both.items()
        for key, count in sorted(challenger.counts.items())
    ]
    records = {name: challenger.recorded for name, challenger in both.items()}
    failures = {name: challenger.record_failures for name, challenger in both.items()}
    return [
        metric(
            "podium_serve_compared_total",
            "Requests by the version beside the champion: answered, failed, dropped, lost.",
            answers,
        ),
        metric(
            "podium_serve_recorded_total",
            "Requests whose answers were recorded.",
            records,
            "model",
        ),
        metric(
            "podium_serve_record_failures_total",
            "Requests whose answers could not be recorded.",
            failures,
            "model",
        ),
    ]


def _watched(served: list[Served]) -> list[str]:
    watches = [
        ({"model": model.name, "version": version}, watch, watch.counts())
        for model in served
        for version, watch in model.watches.items()
    ]
    if not watches:
        return []
    bins = [
        (
            {**labels, "of": of, "name": name, "bin": label},
            seen,
            trained / max(1, sum(binned.counts)),
        )
        for labels, watch, counts in watches
        for (of, name), binned in watch.profile.bins().items()
        for label, seen, trained in zip(
            binned.labels, counts[of, name].tolist(), binned.counts, strict=True
        )
    ]
    return [
        metric(
            "podium_serve_watched_items_total",
            "Items counted in bins.",
            ((labels, watch.items) for labels, watch, _ in watches),
        ),
        metric(
            "podium_serve_watch_failures_total",
            "Calls of the model that could not be counted in bins.",
            ((labels, watch.failures) for labels, watch, _ in watches),
        ),
        metric(
            "podium_serve_bin_items_total",
            "Items in each bin of an input, or of the model's predictions.",
            ((labels, seen) for labels, seen, _ in bins),
        ),
        metric(
            "podium_serve_bin_training_share",
            "Share of it in training; of predictions, in the test part.",
            ((labels, share) for labels, _, share in bins),
        ),
    ]
