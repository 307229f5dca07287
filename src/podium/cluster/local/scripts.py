"""Which file a command line lets Python run, directly or behind torchrun."""

from collections.abc import Sequence
from pathlib import Path

_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
_SWITCHES = {"--standalone", "--run-path", "--virtual-local-rank", "--print-completion", "--use-env", "--help", "-h"}
"""Options of torchrun that take no value."""
_NO_SCRIPT = {"--module", "-m", "--no-python"}
"""With these torchrun runs a module or any program."""


def script_of(argv: Sequence[str]) -> str | None:
    """Return the script that Python or torchrun is to run; None where a command runs something else."""
    program, *words = argv
    name = Path(program).name
    if name == "torchrun":
        return _behind_torchrun(words)
    if not name.startswith("python"):
        return None
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option = words[at]
        at += 2 if option in ("-W", "-X", "--check-hash-based-pycs") else 1
        if option == "-" or (not option.startswith("--") and option.endswith("c")):
            return None
        if not option.startswith("--") and option.endswith("m"):
            return _behind_torchrun(words[at + 1 :]) if words[at : at + 1] in ([one] for one in _LAUNCHERS) else None
    return words[at] if at < len(words) else None


def _behind_torchrun(words: Sequence[str]) -> str | None:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, _ = words[at].replace("_", "-").partition("=")
        if option in _NO_SCRIPT:
            return None
        at += 1 if equals or option in _SWITCHES else 2
    return words[at] if at < len(words) else None
