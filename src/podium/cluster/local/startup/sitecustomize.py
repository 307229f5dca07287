"""Imported by Python as it starts in a pod of this machine: libraries that push metrics reach
podium.

It runs in the program's own environment, whatever its version, so it imports nothing of podium; and
in each process that starts, so it imports nothing that Python has not imported already. On a
cluster an operator mounts these files and Katib has a Service of this name.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _send_every_status(module: "Any") -> None:
    """Kubeflow's SDK drops what is reported within five seconds of a post, the last values too: it
    spares a controller that many jobs share."""
    setattr(module, "_MIN_UPDATE_INTERVAL_SECONDS", 0.0)  # noqa: B010


def _find_database(module: "Any") -> None:
    # Asked here, not at the start: a fork has its environment later.
    if "PODIUM_DB_MANAGER" in os.environ:
        module.DEFAULT_DB_MANAGER_ADDRESS = os.environ["PODIUM_DB_MANAGER"]


def _find_namespace(module: "Any") -> None:
    # Katib's SDK reads a file of the service account before it reports anything.
    if "PODIUM_DB_MANAGER" in os.environ:
        module.get_current_k8s_namespace = lambda: "default"


_CHANGES = {
    "kubeflow.trainer.backends.kubernetes.utils": _send_every_status,
    "kubeflow.katib.constants.constants": _find_database,
    "kubeflow.katib.utils.utils": _find_namespace,
}


class _Finder:
    """Changes a module once its own code has run."""

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        change = _CHANGES.pop(name, None)
        if change is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run, changed = spec.loader.exec_module, change

        def exec_module(module: "Any") -> None:
            run(module)
            changed(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder)

# The environment may have a sitecustomize of its own, which this one stands before.
_this = sys.modules.pop(__name__)
sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]
try:
    import sitecustomize  # noqa: F401
except ImportError as error:
    if error.name != __name__:  # of a module that it imports: Python says so
        raise
    sys.modules[__name__] = _this
