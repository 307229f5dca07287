"""Steps of a pipeline on this machine: taken from the cache, carried out within their time and
again after a failure, or put before a person."""

import json
import os
import shlex
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from podium.cluster.local.supplies import Images, Supplies
from podium.errors import Failed, PodiumError
from podium.runner.compiled import EXECUTOR, Compiled
from podium.runner.environments import Environment
from podium.runner.kubernetes_settings import MOUNTS, NameOf, Provider
from podium.runner.messages import AGAIN, KFP, STARTS, Order
from podium.runner.record import failure_file
from podium.runner.reporter import Reporter, StepLog, end
from podium.runner.step_process import Process
from podium.runner.steps import CREATE_VOLUME, DELETE_VOLUME, Cache, Step, Values
from podium.system.settings import FAILURE


class StepRunner:
    """Carries out the steps of a pipeline.

    Args:
        compiled: The pipeline.
        order: What to run, and where.
        reporter: Takes what happens.
    """

    def __init__(self, compiled: Compiled, order: Order, reporter: Reporter) -> None:
        self.compiled, self.order, self.reporter = compiled, order, reporter
        self.directory, self.cache = Path(order.directory), Cache(Path(order.cache))
        self.supplies, self.images = given_here(order)
        self.provider = Provider(supplies=self.supplies, folder=self.directory)
        self.is_late = threading.Event()
        """Set when the pipeline's time is up."""

    def key(self, step: Step, task: Mapping[str, Any], name_of: NameOf) -> tuple[str, str]:
        """Return the key of a step's result, and the digest of the inputs it must have; empty where
        the key alone decides.

        Under a key of their own the results of steps that are never cached serve this run alone: to
        resume it. So do those of steps that are repeated, and of those that read a mounted place or
        run in a directory in place of an image, which may hold something else by now.

        Raises:
            InvalidInput: A variable that its settings ask for is not there.
        """
        options = task.get("cachingOptions", {})
        attempt = self.order.attempt_of(step.name)
        shared = options.get("enableCache", False) and attempt == self.order.run
        image, settings = step.container.get("image", ""), self.compiled.kubernetes(step.component)
        shared = shared and image not in ("", CREATE_VOLUME, DELETE_VOLUME)
        shared = shared and not any(settings.get(kind) for kind in MOUNTS)
        shared = shared and self.images.find(image).root is None
        if "fingerprint" in step.component.get("inputDefinitions", {}).get("parameters", {}):
            # It prepares data that nothing has checked for changes.
            shared = shared and "fingerprint" in task.get("inputs", {}).get("parameters", {})
        belongs = "" if shared else f"{attempt}/{step.name}"
        custom = options.get("cacheKey", "")
        needs = "" if shared else self.cache.digest(step)
        variables = self.provider.variables(settings, step.name, name_of)
        return self.cache.key(step, belongs, custom, variables), needs

    def carry_out(
        self, step: Step, task: Mapping[str, Any], key: str, name_of: NameOf
    ) -> Values | None:
        """Run a step, again after a failure if its task says so; return its outputs, None if it
        failed. They are kept before anybody is told: who resumes repeats no finished step, unless
        the cache cannot be written, which costs a warning."""
        self.reporter.report("start", step=step.name)
        log = self.reporter.logs / f"{step.name}.log"
        log.touch()
        if log.stat().st_size:
            self.reporter.log(step.name, AGAIN)
        self.reporter.log(KFP, f"{step.name}: {STARTS}")
        left = failure_file(self.directory, step.name)
        code, outputs = None, None
        for pause in (*_pauses(task.get("retryPolicy", {})), None):
            left.unlink(missing_ok=True)
            try:
                code, outputs = self._once(step, name_of)
                if outputs is not None:
                    self._keep(key, step, outputs)
            except Exception as error:  # said where the step's own would be
                trace, said = traceback.format_exc(), f"{type(error).__name__}: {error}"
                if isinstance(error, PodiumError):
                    trace, said = "", error.message
                left.write_text(json.dumps({"error": said, "fix": {}}))
                self.reporter.log(step.name, f"{trace}error: {said}")
                code, outputs = None, None
            if outputs is not None or pause is None or self.reporter.stopping:
                break
            why = "" if code is None else f"exit code {code}: "
            self.reporter.log(step.name, f"{why}{AGAIN} in {pause:g} s")
            self.reporter.wait(pause)
        ended = "failure" if outputs is None else "success"
        self.reporter.report(ended, step=step.name, code=code if outputs is None else None)
        return outputs

    def _keep(self, key: str, step: Step, outputs: Values) -> None:
        try:
            step.show(outputs)
            self.cache.put(key, step, outputs)
        except OSError as error:  # the step has succeeded all the same
            why = f"its result is not kept, and the next run repeats it: {error}"
            self.reporter.log(step.name, f"warning: {why}")

    def _once(self, step: Step, name_of: NameOf) -> tuple[int | None, Values | None]:
        if "importer" in step.executor:
            return None, step.imported()
        image = step.container.get("image")
        if image in (CREATE_VOLUME, DELETE_VOLUME):
            return None, self._volume(step, create=image == CREATE_VOLUME)
        process, command, env = self._prepared(step, name_of)
        started = self.reporter.begin(lambda: process.start(command, env))
        if started is None:
            self._require_time(step)
            return None, None
        seconds = int(self.compiled.kubernetes(step.component).get("activeDeadlineSeconds", 0))
        try:
            with time_limit(seconds, lambda: end([started])) as is_late:
                code = _follow(started, StepLog(self.reporter, step.name))
        finally:
            process.leave_nothing()
        self._require_time(step)
        if is_late.is_set():
            raise Failed(
                f"step {step.name} did not end within its limit of {seconds} s "
                f"(kubernetes.set_timeout of its task)"
            )
        return code, step.outputs() if code == 0 else None

    def _require_time(self, step: Step) -> None:
        if self.is_late.is_set():
            raise Failed(
                f"the pipeline did not end within its limit of {self.compiled.seconds} s, "
                f"while step {step.name} ran (active_deadline_seconds of dsl.PipelineConfig)"
            )

    def _prepared(self, step: Step, name_of: NameOf) -> tuple[Process, list[str], dict[str, str]]:
        settings = self.compiled.kubernetes(step.component)
        variables = self.provider.variables(settings, step.name, name_of)
        mounts = self.provider.mounts(settings, step.name, name_of)
        process = Process(step, self.images, self._python(step))
        command, env = process.prepare(
            {**variables, FAILURE: str(failure_file(self.directory, step.name))},
            mounts,
            self.reporter.scratch / f"packages-{step.name}",
        )
        for notice in process.notices:
            self.reporter.log(step.name, notice)
        return process, command, env

    def debug(self, step: Step, name_of: NameOf) -> None:
        """Put what a step needs into a directory for a person, and stop the run."""
        _, command, env = self._prepared(step, name_of)
        folder = self.directory / "debug" / step.name
        _write_for_debugging(folder, command)
        changed = {name: value for name, value in env.items() if os.environ.get(name) != value}
        self.reporter.report("debug", step=step.name, text=str(folder), values=changed)
        self.reporter.stop()

    def _python(self, step: Step) -> Path | None:
        wanted = Environment.of(step.container)
        if wanted is None:
            return None
        say = partial(self.reporter.log, step.name)
        return wanted.made(Path(self.order.environments), step.name, say)

    def _volume(self, step: Step, *, create: bool) -> Values:
        parameters = step.inputs.parameters
        suffix = parameters.get("pvc_name_suffix")
        name = parameters.get("pvc_name") or f"{self.order.run}{suffix or ''}"
        place = self.provider.volume(name)
        if create and name not in self.supplies.volume:
            place.mkdir(parents=True, exist_ok=True)
        elif not create and place.is_dir():
            place.rename(place.with_name(f"{name}.deleted-{time.time_ns()}"))
        return Values(parameters={"name": name} if create else {})


def given_here(order: Order) -> tuple[Supplies, Images]:
    """Return the places that an order names for volumes, Secrets, ConfigMaps and images.

    Raises:
        InvalidInput: One is not there.
    """
    places = dict(order.places)
    images = Images.read(places.pop("image_dir", None))
    return Supplies(**places).checked(), images


@contextmanager
def time_limit(seconds: int, end: Callable[[], None]) -> Iterator[threading.Event]:
    """Call a function once the time is up, in a thread of its own; the event is set before.

    Args:
        seconds: 0 for no limit.
        end: Ends what takes too long.
    """
    is_over = threading.Event()

    def expire() -> None:
        is_over.set()
        end()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


def _follow(process: subprocess.Popen[bytes], log: StepLog) -> int:
    """Write what a process prints to its log until it ends; return its exit code. It is killed
    where the log cannot be written: it must not go on beside the next try."""
    assert process.stdout
    assert process.stdin
    try:
        with process.stdout as printed:
            while piece := printed.read1():  # type: ignore[attr-defined]
                log.write(piece)
        log.close()
    except BaseException:
        process.stdin.close()
        process.wait()
        raise
    code = process.wait()
    process.stdin.close()
    return code


def _pauses(policy: Mapping[str, Any]) -> Iterator[float]:
    pause = _seconds(policy.get("backoffDuration", "0s"))
    for _ in range(int(policy.get("maxRetryCount", 0))):
        yield min(pause, _seconds(policy.get("backoffMaxDuration", "3600s")))
        pause *= float(policy.get("backoffFactor", 2.0))


def _seconds(text: str) -> float:
    return float(text.removesuffix("s") or 0)


_COMMAND, _CODE, _INPUTS = "run", "component.py", "inputs.json"


def _write_for_debugging(folder: Path, command: Sequence[str]) -> None:
    """Write a step's command as a script, its code and its inputs as files that it reads."""
    folder.mkdir(parents=True, exist_ok=True)
    line = shlex.join(command)
    match command:
        case [_, _, script, code, *arguments] if "ephemeral_component.py" in script:
            (folder / _CODE).write_text(code)
            words = [shlex.quote(word) for word in arguments]
            at = arguments.index("--executor_input") + 1
            (folder / _INPUTS).write_text(arguments[at])
            words[at] = f'"$(cat {_INPUTS})"'
            module = f"python3 -m {EXECUTOR} --component_module_path {_CODE}"
            line = f"_KFP_RUNTIME=true exec {module} {' '.join(words)}"
    program = folder / _COMMAND
    program.write_text(f'#!/bin/sh\ncd "$(dirname "$0")"\n{line}\n')
    program.chmod(0o700)
