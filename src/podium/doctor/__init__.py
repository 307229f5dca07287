"""Why metrics do not arrive, before a cluster is asked: logs, commands, manifests and namespaces examined.

Each input has a module; each trap is a named rule, a pure function in a table (docs/doctor.md lists them).
"""

from podium.doctor.log import examine_log
from podium.doctor.reading import Reader, guess_reader
from podium.doctor.report import Report
from podium.manifests.rules import Finding

__all__ = ["Finding", "Reader", "Report", "examine_log", "guess_reader"]
