"""The child process of `podium run`: runs a pipeline and reports events.

``python -m podium.runner.child``: SIGTERM stops a run and all its steps. Each step has a
supervisor, which kills what the step leaves behind, and all of it once this process is gone. It
reads an Order from the first line of stdin, ends when stdin is closed, and writes Events to stdout
(podium.runner.messages).
"""

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, PodiumError
from podium.runner.compiled import Compiled
from podium.runner.messages import KFP, Order
from podium.runner.reporter import GRACE, Reporter
from podium.system.settings import CLUSTER, STORAGE

if TYPE_CHECKING:
    from podium.code.bundle import Bundle
    from podium.kfp.definition import Definition


def _main() -> int:
    """Run the pipeline described on stdin; return 0, 1 if a step failed, 2 if the input was
    refused."""
    line = sys.stdin.readline()
    if not line:
        return 1  # the caller was killed before it wrote anything
    order = Order.of_line(line)
    caller = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as events:
        os.dup2(2, 1)  # a library that bypasses sys.stdout must not write among the events
        reporter = Reporter(Path(order.directory, "logs"), events)
        threading.Thread(target=_end_with_caller, args=(caller, reporter), daemon=True).start()
        try:
            return 0 if _run(order, reporter) else 1
        except PodiumError as error:
            reporter.report("refused", text=error.message, hint=error.hint)
            return error.exit_code


def _end_with_caller(stdin: int, reporter: Reporter) -> None:
    # Nobody is there to press Ctrl-C again for a step that stays.
    os.read(stdin, 1)
    os.killpg(0, signal.SIGTERM)
    reporter.end(grace=2 * GRACE)


def checked(
    order: Order,
) -> "tuple[Definition, dict[str, Any], dict[str, Bundle], dict[str, str]]":
    """Return the pipeline, its values, code to store, and by parameter the directory that code was
    packed from.

    Raises:
        InvalidInput: The pipeline or a parameter is unknown, a value breaks a rule, or this machine
            cannot run a step.
    """
    from podium.kfp.definition import Definition
    from podium.runner.interpreter import check_runs

    for variable, name in ((STORAGE, "storage"), (CLUSTER, "cluster")):
        os.environ.setdefault(
            variable, order.defaults[name]
        )  # for components that no parameter reaches
    definition = Definition.load(order.pipeline)
    values, code, packed = (
        _values(definition, order) if order.resumed is None else (dict(order.resumed), {}, {})
    )
    if definition.ours:
        from podium.runner.checks import check_here  # which loads the trainer's side and numpy

        try:
            check_here(definition.parameters.with_defaults(values), packed.get("code", ""))
        except InvalidInput as error:
            raise _with_project(error, order) from None
    check_runs(Compiled(definition.spec, definition.platform), values, order)
    return definition, values, code, packed


def _run(order: Order, reporter: Reporter) -> bool:
    from podium.kfp.code import store_code
    from podium.runner.record import locked

    definition, values, code, packed = checked(order)
    store_code(code)  # first: a storage that refuses it leaves no run
    directory = Path(order.directory)
    try:
        # Only for the owner, like the objects of its cluster; they are there where a run is
        # resumed.
        directory.mkdir(mode=0o700, parents=True, exist_ok=order.resumed is not None)
        reporter.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"{reporter.logs} cannot be made: {error.strerror}",
            "PODIUM_HOME moves what a run writes",
        ) from None
    with locked(directory) as lock:
        lock.write(str(os.getpid()).encode())
        lock.flush()
        compiled = Compiled(definition.spec, definition.platform)
        return _execute(compiled, values, packed, order, reporter)


def _with_project(error: InvalidInput, order: Order) -> InvalidInput:
    """Return an error that says which of the values it names are the project's."""
    from podium.kfp.parameters import pairs
    from podium.kfp.project import Project

    if not order.project:
        return error
    project, typed = Project.load(Path(order.project)), dict(pairs(order.words))
    named = [
        name
        for name, value in project.values.items()
        if re.search(rf"\b{name}=|option {name}\b", error.message)
        or ("_" in name and name in error.message)
        or (len(str(value)) > 2 and str(value) in error.message)
    ]
    theirs = [f"{name}: {project.values[name]}" for name in named if name not in typed]
    if not typed or not theirs:
        return error
    first = theirs[0].partition(":")[0]
    hint = f"{first}=VALUE goes before it, {first}= leaves it out; {error.hint or ''}".rstrip("; ")
    return InvalidInput(f"{error.message}; {project.file.name} has {', '.join(theirs)}", hint)


def _execute(
    compiled: Compiled,
    values: dict[str, Any],
    packed: Mapping[str, str],
    order: Order,
    reporter: Reporter,
) -> bool:
    from podium.runner.interpreter import Interpreter

    reporter.titles = compiled.titles
    reporter.report("steps", steps=reporter.titles, values=values, packed=packed)
    with (reporter.logs / f"{KFP}.log").open("a") as noise:
        os.dup2(noise.fileno(), 1)
        os.dup2(noise.fileno(), 2)
    # Before this, SIGTERM kills: there is nothing to clean up yet, and the imports take seconds.
    signal.signal(signal.SIGTERM, reporter.stop)
    # For the steps, and removed with the run: each of KFP's components leaves a directory in it.
    with tempfile.TemporaryDirectory(prefix="podium-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = folder
        reporter.scratch = Path(folder)
        outputs = Interpreter(compiled, order, reporter).run(values)
    if outputs is None:
        return False
    reporter.report("outputs", values=outputs)
    return True


def _values(
    definition: "Definition", order: Order
) -> "tuple[dict[str, Any], dict[str, Bundle], dict[str, str]]":
    """Return the values of the run, code to store, and by parameter the directory that it was
    packed from.

    Storage and cluster are this machine's unless given.
    """
    from podium.kfp.code import with_code
    from podium.kfp.definition import reaching
    from podium.kfp.project import Project, read_given
    from podium.kfp.values import with_experiment_text

    parameters = definition.parameters
    given = read_given(
        order.words, parameters, Project.load(Path(order.project)) if order.project else None
    )
    parameters.require_all(given)
    values = with_experiment_text(given, names=reaching(definition.spec, "experiment"))
    own = {
        **order.defaults,
        "storage": os.environ[STORAGE],
    }  # where podium models and podium serve look, too
    for parameter in parameters:
        if parameter.name in own:
            values[parameter.name] = (
                given.get(parameter.name) or parameter.default or own[parameter.name]
            )
    if isinstance(values.get("storage"), str):
        values["storage"] = _from_here(values["storage"])
    for name in reaching(definition.spec, "weights"):
        if isinstance(values.get(name), str):
            values[name] = _from_here(values[name])
    coded, bundles = with_code(values, reaching(definition.spec, "code"))
    packed = {
        name: str(Path(values[name]).absolute())
        for name, uri in coded.items()
        if isinstance(uri, str) and uri in bundles
    }
    return coded, bundles, packed


def _from_here(storage: str) -> str:
    """Make a relative directory absolute: every job has its own working directory. URLs are not
    changed."""
    from podium.storage import is_slip

    return (
        storage
        if not storage or "://" in storage or is_slip(storage)
        else str(Path(storage).absolute())
    )


if __name__ == "__main__":
    sys.exit(_main())
