"""Libraries whose lines Katib's own pattern does not read, and the metricsFormat that does."""

import re
from dataclasses import dataclass

from podium.metrics import compile_format

_NUMBER = r"([+-]?\d+(\.\d+)?([Ee][+-]?\d+)?)"


@dataclass(frozen=True, kw_only=True)
class Library:
    """How a library prints metrics."""

    name: str
    line: re.Pattern[str]
    """Tells its lines from others."""

    pattern: str
    """A metricsFormat that reads them."""

    def names_on(self, text: str) -> list[str]:
        """Return the metrics that the metricsFormat finds on a line."""
        return [match.group(1) for match in compile_format(self.pattern).finditer(text)]


LIBRARIES = (
    Library(
        name="XGBoost",
        line=re.compile(r"^\[\d+\]\t[\w-]+-[\w@.-]+:[\d.eE+-]+"),
        pattern=rf"([\w@.-]+):{_NUMBER}",
    ),
    Library(
        name="LightGBM",
        line=re.compile(r"^\[\d+\]\t\w+'s [\w@]+: [\d.eE+-]+"),
        pattern=rf"(\w+'s [\w@]+): {_NUMBER}",
    ),
    Library(
        name="LightGBM's command line",
        line=re.compile(r"Iteration:\d+, \w+ [\w@]+ : [\d.eE+-]+"),
        pattern=rf"(\w+ [\w@]+) : {_NUMBER}",
    ),
    Library(
        name="Hugging Face's Trainer",
        line=re.compile(r"\{'(?:eval_|train_)?loss': '?[\d.eE+-]+'?, .*'epoch': "),
        pattern=rf"'([\w|-]+)': '?{_NUMBER}",
    ),
    Library(
        name="Keras",
        line=re.compile(r"\d+/\d+ .*? - \w+: [\d.e+-]+"),
        pattern=rf"([\w|-]+): {_NUMBER}",
    ),
)


def printed_by(text: str) -> Library | None:
    """Return the library that printed a line, if it is known."""
    return next((library for library in LIBRARIES if library.line.search(text)), None) if ":" in text else None
