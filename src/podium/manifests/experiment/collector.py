"""What Katib's webhook asks of a metrics collector (katib 0.19: pkg/webhook/v1beta1/experiment/validator)."""

from collections.abc import Mapping
from typing import Any

from podium.errors import InvalidInput
from podium.manifests.experiment.hints import nearest
from podium.manifests.experiment.rules import Findings
from podium.metrics import compile_format


def check_collector(collecting: Mapping[str, Any], findings: Findings) -> None:
    """Note what Katib's webhook refuses of a metricsCollectorSpec with its defaults."""
    path, kind = "spec.metricsCollectorSpec", collecting["collector"].get("kind")
    known = ("StdOut", "File", "TensorFlowEvent", "PrometheusMetric", "Custom", "Push")
    law = f"a collector is one of {', '.join(known)}"
    findings.require(kind in known, f"{path}.collector.kind", law, kind, nearest(kind, known))
    source = collecting.get("source") or {}
    where, place = f"{path}.source.fileSystemPath", source.get("fileSystemPath") or {}
    if kind in ("File", "TensorFlowEvent"):
        law = "an absolute path" + (" of a File" if kind == "File" else " of a Directory")
        wanted = "File" if kind == "File" else "Directory"
        fits = place.get("kind") == wanted and str(place.get("path")).startswith("/")
        hint = f"fileSystemPath: {{kind: {wanted}, path: /var/log/metrics}}"
        findings.require(fits, where, law, place, hint)
    if kind == "File":
        law = "format is TEXT or JSON"
        form, hint = place.get("format"), "TEXT reads name=value, JSON an object a line"
        findings.require(form in ("TEXT", "JSON"), f"{where}.format", law, form, hint)
        filtered = place.get("format") == "JSON" and source.get("filter") is not None
        law = "JSON needs no filter"
        findings.require(not filtered, f"{path}.source.filter", law, source.get("filter"), "remove the filter")
    if kind == "TensorFlowEvent":
        law, form = "format is left out", place.get("format")
        findings.require(not form, f"{where}.format", law, form, "remove the format")
    if kind == "Custom":
        given = collecting["collector"].get("customCollector")
        law, hint = "there is a customCollector", "give the container that collects"
        findings.require(given is not None, f"{path}.collector.customCollector", law, given, hint)
    if kind not in ("StdOut", "Push"):  # there the webhook looks no further: see checks.py
        for pattern in (source.get("filter") or {}).get("metricsFormat") or []:
            try:
                compile_format(pattern)
            except InvalidInput as error:
                findings.require(False, f"{path}.source.filter", "a Go pattern with two groups", pattern, error.message)
