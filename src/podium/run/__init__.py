"""``podium run``: a pipeline on this machine. Calling the package, ``podium.run(…)``, is ``podium.api.runs.run``."""

from podium.callable_package import make_callable

make_callable(__name__)
