"""Metric lines: the contract between a trainer, Katib and the local engine. Written and parsed here only.

A line holds an RFC3339 time and ``name=value`` pairs::

    2026-01-02T03:04:05.678901Z accuracy=0.9834 loss=0.0500

Katib reads the time only as the first blank-separated token and takes a name only if it is exactly the metric's
(katib: pkg/metricscollector/v1beta1/file-metricscollector).
"""

import math
from datetime import UTC, datetime

from podium.errors import require


def format_metrics(*, time: datetime | None = None, **values: float) -> str:
    """Write one metric line.

    Args:
        time: When the values were measured; now if None.
        **values: Finite numbers by metric name.

    Raises:
        InvalidInput: A value is not finite: Katib would store an empty string and might crown the trial
            (kubeflow/katib#2723).
    """
    for name, value in values.items():
        require(math.isfinite(value), f"{name} is finite", "stop the trial with an error instead", **{name: value})
    moment = (time or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return " ".join([moment, *(f"{name}={value:.4f}" for name, value in values.items())])
