"""Find out why metrics do not arrive: examine logs, commands, manifests and namespaces.

Each input has a module; each trap is a rule of podium.manifests.rules, a pure function in a table
of its module (`podium doctor --rules` lists them).
"""

from podium.doctor.log import examine_log
from podium.doctor.reading import Reader, guess_reader
from podium.doctor.report import Report
from podium.manifests.rules import Finding

__all__ = ["Finding", "Reader", "Report", "examine_log", "guess_reader"]
