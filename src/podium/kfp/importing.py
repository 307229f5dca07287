"""Import kfp without its client, which no compilation needs.

``kfp/__init__.py`` (2.17) imports ``kfp.client``, and with it all of the Kubernetes client and
google-auth: a second of CPU, four fifths of `import kfp`. It does not when _KFP_RUNTIME says that a
component runs; ``kfp.dsl`` must not see that, for it then lacks pipelines.
"""

import importlib
import os
import sys
from typing import Any

_RUNTIME = "_KFP_RUNTIME"


def import_kfp() -> None:
    """Import kfp, unless it is imported already; ``kfp.Client`` and its other names are imported
    when they are used."""
    if "kfp" in sys.modules:
        return
    before = os.environ.get(_RUNTIME)
    os.environ[_RUNTIME] = "true"
    try:
        kfp: Any = importlib.import_module("kfp")
    finally:
        if before is None:
            del os.environ[_RUNTIME]
        else:
            os.environ[_RUNTIME] = before
    kfp.__getattr__ = _late


def _late(name: str) -> Any:
    if name == "Client":
        return importlib.import_module("kfp.client").Client
    if name in ("components", "dsl"):
        return importlib.import_module(f"kfp.{name}")
    raise AttributeError(
        f"module 'kfp' has no attribute {name!r}", name=name, obj=sys.modules["kfp"]
    )
