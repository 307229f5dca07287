"""Changes that a resumed run picks up: code edited since it was packed, and data that have
changed."""

import os
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.code.bundle import Bundle
from podium.code.reference import Code
from podium.display.text import one_line
from podium.errors import NotFound, PodiumError
from podium.files.documents import read_json
from podium.kfp.code import store_code, with_code
from podium.runner.record import PREPARING, RunRecord
from podium.system.settings import STORAGE, Settings
from podium.training.dataset import DataSettings

LOOK = PREPARING[0]


def take_today(run: RunRecord, first: str, code: Mapping[str, str]) -> tuple[str, list[str]]:
    """Make a run use today's code in the steps that it has not finished.

    Args:
        first: Step to repeat, with all after it; empty for none.
        code: By parameter, a directory to use in place of the packed one.

    Returns:
        The step to repeat from, which is an earlier one where it has to be, and what is to be said.

    Raises:
        InvalidInput: The code cannot be packed.
    """
    open_steps = [name for name, step in run.steps.items() if not step.is_done]
    begin = first or next(iter(open_steps), "")
    said: list[str] = []
    if begin and _code_changed(run, code, begin, said):
        first = begin
    if begin and LOOK in run.steps and _data_changed(run):
        if begin in PREPARING:
            first = LOOK
            said.append(
                "the data have changed since this run looked at them: they are looked at again"
            )
        else:
            again = f"podium run --resume {run.id} --from {LOOK}"
            said.append(
                f"the data have changed since this run prepared them, and it keeps those; to take them: {again}"
            )
    return first, said


def _code_changed(run: RunRecord, code: Mapping[str, str], begin: str, said: list[str]) -> bool:
    """Pack the code again, and put it into the run's parameters; return whether it is another than
    before."""
    packed = {**run.packed, **{name: str(Path(folder).absolute()) for name, folder in code.items()}}
    there = {
        name: folder for name, folder in packed.items() if Path(folder).is_dir() or name in code
    }
    said += [
        f"{packed[name]} is gone: {name} stays as it was packed"
        for name in packed.keys() - there.keys()
    ]
    settings = Settings.from_environment()
    storage = run.parameters.get("storage") or os.environ.get(STORAGE) or settings.storage
    now, bundles = with_code({**run.parameters, **there, "storage": storage}, there)
    changed = [name for name in there if now[name] != run.parameters.get(name)]
    store_code({now[name]: bundles[now[name]] for name in changed})
    for name in changed:
        files = _named(_changed_files(run.parameters.get(name), bundles[now[name]]))
        run.parameters[name] = now[name]
        anew = " begins anew, and it" if run.steps[begin].started else ""
        said.append(
            f"{name}={shlex.quote(there[name])} has changed{files}: {begin}{anew} and later steps "
            "take that of today"
        )
    run.packed = packed
    return bool(changed)


def _changed_files(before: Any, now: Bundle) -> list[str]:
    with suppress(PodiumError, OSError, EOFError, tarfile.TarError):
        return now.changed_since(Code.parse(str(before)).fetch())
    return []


def _named(files: Sequence[str]) -> str:
    more = f" and {len(files) - 4} more" if len(files) > 4 else ""
    return f" ({', '.join(map(one_line, files[:4]))}{more})" if files else ""


def _data_changed(run: RunRecord) -> bool:
    """Return whether the source has changed since the run read it; False where that is unknown."""
    from podium.data.fingerprint import list_contents

    settings = {
        name: run.parameters[name]
        for name in DataSettings.__annotations__
        if name in run.parameters
    }
    listings = sorted(
        run.directory.glob(f"artifacts/*/{LOOK}/listing"), key=lambda file: file.stat().st_mtime
    )
    with suppress(PodiumError, OSError):
        if listings:
            try:
                now = list_contents(
                    location if "://" in location else os.path.join(run.folder, location)
                    for location in DataSettings(**settings).locations
                )
                return [*read_json(listings[-1]).values()] != [*now.values()]
            except NotFound:
                return True
    return False
