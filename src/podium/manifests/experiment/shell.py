"""How Katib hands a container's command to a shell (katib 0.19: pkg/webhook/v1beta1/pod, wrapWorkerContainer)."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

METRICS_FILE = "/var/log/katib/metrics.log"
"""Where the collector reads what a StdOut trial prints."""


SHELLS = ("sh", "ash", "bash", "dash", "ksh", "zsh")


def is_shell(words: Sequence[str]) -> bool:
    """Return whether a command line starts a shell."""
    return bool(words) and PurePosixPath(words[0]).name in SHELLS


def takes_script(words: Sequence[str]) -> bool:
    """Tell whether Katib keeps the shell that is there: only the very words sh or bash, then -c."""
    return len(words) > 1 and words[0] in ("sh", "bash") and words[1] == "-c"


def join(words: Sequence[str]) -> tuple[tuple[str, str], str]:
    """Return the shell and the script that Katib makes of command and args: joined with blanks, unquoted."""
    if takes_script(words):
        return (words[0], words[1]), " ".join(words[2:])
    return ("sh", "-c"), " ".join(words)


def redirected(script: str, file: str) -> str:
    """Return a script whose output goes to a file."""
    return f"{script} 1>{file} 2>&1"


def named_folder(folder: PurePosixPath, words: Iterable[str]) -> PurePosixPath:
    """Return the folder by which words name what is in a folder: itself, else the nearest one above that they name.

    A program that is given ``--logs=/logs`` may write to ``/logs/test``, where Katib collects.
    """
    texts = list(words)
    if any(str(folder) in text for text in texts):
        return folder
    for above in folder.parents:
        whole = re.compile(rf"(?<![\w.\-/]){re.escape(str(above))}/?(?![\w.\-/])")
        if str(above) != "/" and any(whole.search(text) for text in texts):
            return above
    return folder
