"""A universe in one thread: a virtual clock, and a scheduler that a seed drives.

Every simulated thread is a greenlet. One runs at a time, and hands over where the code it runs
would wait or speak to the outside: a lock, an event, a sleep, an operation of a storage or of an
API server. Which one goes on is drawn from the seed, so a seed is a schedule, and replays exactly.
While a universe is installed, podium's modules see its threading, time, queue, uuid, random and
datetime in place of Python's.
"""

import datetime as real_datetime
import heapq
import inspect
import queue as real_queue
import random as real_random
import secrets as real_secrets
import sys
import tempfile as real_tempfile
import threading as real_threading
import time as real_time
import uuid as real_uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future as real_future, ThreadPoolExecutor as real_pool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from greenlet import getcurrent, greenlet

EPOCH = 1_800_000_000.0
STEP = 0.001
"""Virtual seconds that an operation takes."""


DELAYS = {
    "delay": (0.05, 1.0, 20.0, 400.0, 100_000.0),
    "stall": (0.05, 1.0, 20.0, 400.0),
    "lag": (0.05, 1.0, 20.0),
    "hitch": (0.05, 0.3, 0.5),
}


class Crash(BaseException):
    """Ends a simulated process: nothing of podium catches it."""


class Violation(AssertionError):
    """An invariant does not hold."""


class Process:
    """A simulated process, through all its lives.

    Args:
        name: Its name in faults and reports.
        number: The same as a number, for draws.
    """

    def __init__(self, universe: "Universe", name: str, number: int) -> None:
        self.universe, self.name, self.number = universe, name, number
        self.operations, self.skew = 0, 0.0
        self.life: Life | None = None
        self.apart_until, self.silent_at = 0.0, -1e9


class Life:
    """One life of a process: from its start to its end or crash."""

    def __init__(self, process: Process) -> None:
        self.process, self.dead = process, False
        self.tasks: dict[Task, None] = {}
        self.after: Callable[[], None] = lambda: None
        """Called once nothing of it runs any more."""


class Task(greenlet):
    """A simulated thread."""

    life: Life
    name: str
    waits: object = None
    woken = False
    thrown: BaseException | None = None
    """Raised where it waits."""

    local: dict[object, dict[str, Any]]


@dataclass(frozen=True)
class Fault:
    """One fault of a schedule, by where it struck."""

    process: str
    operation: int
    kind: str
    place: str = field(compare=False)


@dataclass(kw_only=True)
class Outcome:
    """What a universe came to."""

    seed: int
    struck: tuple[Fault, ...]
    steps: int
    problem: str = ""


class Universe:
    """The scheduler and its clock.

    Args:
        seed: Decides every draw.
        rate: Faults per thousand operations.
        kinds: The kinds of faults that may strike.
        only: Only these faults strike; None for all.
        patience: Operations after which a universe counts as one that never ends.
    """

    current: "Universe | None" = None

    def __init__(
        self,
        seed: int,
        *,
        rate: int = 0,
        kinds: frozenset[str] = frozenset(),
        only: frozenset[Fault] | None = None,
        patience: int = 100_000,
    ) -> None:
        self.seed, self.rate, self.kinds, self.only = seed, rate, kinds, only
        self.random = real_random.Random(seed)
        self.ids = real_random.Random(~seed)
        self.now, self.steps, self.patience = 1000.0, 0, patience
        self.processes: dict[str, Process] = {}
        self.struck: list[Fault] = []
        self.trace: list[str] | None = None
        self.quiet = False
        self._ready: list[Task] = []
        self._asleep: list[tuple[float, int, Task, object]] = []
        self._count = 0
        self._doomed: list[Life] = []
        self._hub = getcurrent()
        self._failure: BaseException | None = None
        self._kinds: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._stickiness = self.random.choice((0.0, 0.0, 0.5, 0.9))

    # Processes and their threads

    def process(self, name: str) -> Process:
        """Return the process of a name."""
        if name not in self.processes:
            self.processes[name] = Process(self, name, len(self.processes) + 1)
        return self.processes[name]

    def begin(self, process: Process, work: Callable[[], object]) -> Life:
        """Start a process; its work may raise Crash, nothing else."""
        life = process.life = Life(process)
        self.spawn(life, work, process.name)
        return life

    def spawn(self, life: Life, work: Callable[[], object], name: str) -> Task:
        """Start a thread of a process."""

        def body() -> None:
            try:
                if not life.dead:
                    work()
            except Crash:
                pass
            except BaseException as error:
                self._failure = self._failure or error
            finally:
                life.tasks.pop(task, None)

        task = Task(body, self._hub)
        task.life, task.name, task.local = life, name, {}
        life.tasks[task] = None
        self._ready.append(task)
        return task

    def kill(self, life: Life) -> None:
        """End a life at once: its threads unwind, and none of their operations has an effect."""
        life.dead = True
        self._doomed.append(life)

    def run(self) -> None:
        """Run until no thread is left.

        Raises:
            Violation: They wait for each other, or never end.
        """
        before, Universe.current = Universe.current, self
        try:
            while True:
                while self._doomed:
                    self._unwind(self._doomed.pop())
                if self._failure:
                    raise self._failure
                self._wake_sleepers()
                if not self._ready:
                    if not self._sleep_on():
                        return
                    continue
                self.steps += 1
                if self.steps > self.patience:
                    raise Violation(f"it never ends: {self._who()}")
                at = int(self.random.random() * len(self._ready))
                last = self._ready.pop()
                task = last
                if at < len(self._ready):
                    task, self._ready[at] = self._ready[at], last
                if not task.dead:
                    task.switch()
        finally:
            self.end()
            Universe.current = before

    def end(self) -> None:
        """Unwind all that is left."""
        for process in list(self.processes.values()):
            if process.life:
                process.life.dead = True
                self._unwind(process.life)

    def _unwind(self, life: Life) -> None:
        while life.tasks:
            task, _ = life.tasks.popitem()
            with suppress(Crash):  # of one that had not begun
                task.throw(Crash)
        life.after()

    def _wake_sleepers(self) -> None:
        while self._asleep and self._asleep[0][0] <= self.now:
            _, _, task, token = heapq.heappop(self._asleep)
            if task.waits is token:
                task.waits = None
                self._ready.append(task)

    def _sleep_on(self) -> bool:
        """Go on to the next moment at which somebody wakes; return False if nobody is left."""
        while self._asleep:
            if self._asleep[0][2].waits is self._asleep[0][3]:
                self.now = max(self.now, self._asleep[0][0])
                return True
            heapq.heappop(self._asleep)
        if waiting := self._who():
            raise Violation(f"nobody goes on: {waiting}")
        return False

    def _who(self) -> str:
        lives = [process.life for process in self.processes.values() if process.life]
        return ", ".join(
            f"{life.process.name}/{task.name} at {_place_of(task)}"
            for life in lives
            for task in life.tasks
        )

    # What threads do

    def task(self) -> Task:
        """Return the thread that runs."""
        task = getcurrent()
        assert isinstance(task, Task), "only within the universe"
        return task

    def pause(self) -> None:
        """Let others go on, perhaps."""
        task = self.task()
        if task.life.dead:
            raise Crash
        self.now += STEP
        if self._stickiness and self.random.random() < self._stickiness:
            self.steps += 1
            if self.steps <= self.patience:
                return
        self._ready.append(task)
        self._hub.switch()
        if task.life.dead:
            raise Crash

    def block(self, waiters: deque[Task] | None, timeout: float | None) -> bool:
        """Wait until somebody wakes this thread; return False if the time has passed first."""
        task = self.task()
        if task.life.dead:
            raise Crash
        token = task.waits = object()
        task.woken = False
        if timeout is not None:
            self._count += 1
            wake = self.now + max(0.0, timeout)
            heapq.heappush(self._asleep, (wake, self._count, task, token))
        if waiters is not None:
            waiters.append(task)
        try:
            self._hub.switch()
        finally:
            task.waits = None
            if waiters is not None and task in waiters:
                waiters.remove(task)
        if task.life.dead:
            raise Crash
        if thrown := task.thrown:
            task.thrown = None
            raise thrown
        return task.woken

    def interrupt(self, task: Task, error: BaseException) -> None:
        """Raise an error where a thread waits, as a signal does; who does not wait misses it."""
        if task.waits is not None:
            task.waits, task.thrown = None, error
            self._ready.append(task)

    def wake(self, waiters: deque[Task], count: int | None = None) -> None:
        """Let threads go on that wait, all or so many."""
        while waiters and (count is None or count > 0):
            task = waiters.popleft()
            if task.waits is not None:
                task.waits, task.woken = None, True
                self._ready.append(task)
                count = None if count is None else count - 1

    def sleep(self, seconds: float) -> None:
        """Wait by the virtual clock."""
        self.block(None, seconds)

    # Faults

    def draw(self, *what: int) -> int:
        """Return a number that depends on nothing but the seed and what it is for."""
        value = hash((self.seed, *what, 7919))
        value ^= value >> 29
        value = (value * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        return (value ^ (value >> 32)) & 0x7FFFFFFF

    def operation(self, place: str, possible: tuple[str, ...]) -> str:
        """Hand over before an operation of the outside; return the fault that strikes, or "".

        A delay, a jump of the clock and a crash happen here; what depends on the operation is left
        to the caller.
        """
        process = self.task().life.process
        process.operations += 1
        number = process.operations
        kind = ""
        if self.rate and not self.quiet:
            drawn = self.draw(process.number, number)
            if drawn % 1000 < self.rate and (enabled := self._enabled(possible)):
                kind = enabled[drawn // 1000 % len(enabled)]
        if kind:
            fault = Fault(process.name, number, kind, place)
            if self.only is not None and fault not in self.only:
                kind = ""
            else:
                self.struck.append(fault)
        if self.trace is not None:
            self.trace.append(f"{self.now:.3f} {process.name} {number} {place} {kind}")
        self.pause()
        if kind in DELAYS:
            self.sleep(DELAYS[kind][self.draw(process.number, number, 1) % len(DELAYS[kind])])
        elif kind == "jump":
            jumps = (-7200.0, -5.0, 5.0, 7200.0, 200_000.0, -200_000.0)
            process.skew = jumps[self.draw(process.number, number, 1) % len(jumps)]
        elif kind == "crash":
            self.crash()
        return kind

    def _enabled(self, possible: tuple[str, ...]) -> tuple[str, ...]:
        if possible not in self._kinds:
            self._kinds[possible] = tuple(kind for kind in possible if kind in self.kinds)
        return self._kinds[possible]

    def crash(self) -> None:
        """End the process of the thread that runs, here and now."""
        self.kill(self.task().life)
        raise Crash

    def outcome(self, problem: str) -> Outcome:
        """Return what it came to."""
        return Outcome(seed=self.seed, struck=tuple(self.struck), steps=self.steps, problem=problem)

    def clock(self) -> float:
        """Return the wall clock of the process that runs."""
        task = getcurrent()
        skew = task.life.process.skew if isinstance(task, Task) else 0.0
        return EPOCH + self.now + skew


def _place_of(task: Task) -> str:
    frame = task.gr_frame
    while frame and "/podium/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "?"


def shrunk(run: Callable[[frozenset[Fault] | None], Outcome], first: Outcome) -> Outcome:
    """Return an outcome that fails with as few faults as can be found (delta debugging)."""
    best, size = first, 2
    faults = list(first.struck)
    while faults and size <= len(faults) * 2:
        chunk = max(1, len(faults) // size)
        for at in range(0, len(faults), chunk):
            fewer = faults[:at] + faults[at + chunk :]
            tried = run(frozenset(fewer))
            if tried.problem[:12] == first.problem[:12]:
                best, faults = tried, [fault for fault in fewer if fault in set(tried.struck)]
                size = max(2, size - 1)
                break
        else:
            if chunk == 1:
                break
            size *= 2
    return best


def here() -> Universe:
    """Return the universe that runs."""
    assert Universe.current
    return Universe.current


# Python's modules, as podium sees them in a universe


class Lock:
    """A lock of simulated threads; it may be taken again by its owner where it is an RLock."""

    again = False

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._depth = 0
        self._waiters: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        universe = here()
        task = universe.task()
        if self.again and self._owner is task:
            self._depth += 1
            return True
        while self._owner is not None and not self._owner.life.dead:
            if not blocking or not universe.block(self._waiters, timeout if timeout >= 0 else None):
                return False
        self._owner, self._depth = task, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._owner = None
            if Universe.current:
                here().wake(self._waiters, 1)

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    again = True


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or RLock()
        self._waiters: deque[Task] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        depth, self._lock._depth = self._lock._depth, 1
        self._lock.release()
        try:
            woken = here().block(self._waiters, timeout)
        finally:
            if not here().task().life.dead:
                self._lock.acquire()
                self._lock._depth = depth
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else here().now + timeout
        while not (result := predicate()):
            left = None if end is None else end - here().now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, count: int = 1) -> None:
        here().wake(self._waiters, count)

    def notify_all(self) -> None:
        here().wake(self._waiters)


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waiters: deque[Task] = deque()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if Universe.current:
            here().wake(self._waiters)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            here().pause()
        elif timeout is None or timeout > 0:
            here().block(self._waiters, timeout)
        return self._set


class Semaphore:
    def __init__(self, value: int = 1) -> None:
        self._left = value
        self._waiters: deque[Task] = deque()

    def __enter__(self) -> None:
        while self._left <= 0:
            here().block(self._waiters, None)
        self._left -= 1

    def __exit__(self, *_: object) -> None:
        self._left += 1
        if Universe.current:
            here().wake(self._waiters, 1)


class Future:
    """The result of a thread, for those who wait."""

    def __init__(self) -> None:
        self._ended, self._result = Event(), None
        self._error: BaseException | None = None

    def set_result(self, result: Any) -> None:
        self._result = result
        self._ended.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._ended.set()

    def exception(self) -> BaseException | None:
        self._ended.wait()
        return self._error

    def done(self) -> bool:
        return self._ended.is_set()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, whatever the timeout: no signal is late in a universe."""
        if error := self.exception():
            raise error
        return self._result


class Barrier:
    def __init__(self, parties: int) -> None:
        self._left, self._open, self.broken = parties, Event(), False

    def wait(self, timeout: float | None = None) -> int:
        self._left -= 1
        if self._left == 0:
            self._open.set()
        elif not self._open.wait(timeout):
            self.abort()
        if self.broken:
            raise real_threading.BrokenBarrierError
        return self._left

    def abort(self) -> None:
        self.broken = True
        self._open.set()


class Thread:
    """A thread of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "thread",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        daemon: bool = False,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._work = lambda: target(*args, **(kwargs or {})) if target else None
        self._ended = Event()
        self._started = False

    def start(self) -> None:
        def work() -> None:
            try:
                self._work()
            finally:
                self._ended.set()

        self._started = True
        here().spawn(here().task().life, work, self.name)

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._started and not self._ended.is_set()


class Timer(Thread):
    """A thread that calls a function later, unless it is cancelled."""

    def __init__(self, seconds: float, function: Callable[[], object]) -> None:
        super().__init__(target=self._wait, name="timer")
        self._seconds, self._function, self._cancelled = seconds, function, Event()

    def _wait(self) -> None:
        if not self._cancelled.wait(self._seconds):
            self._function()

    def cancel(self) -> None:
        self._cancelled.set()


class Local:
    """Attributes of a thread."""

    def __getattr__(self, name: str) -> Any:
        try:
            return here().task().local[self][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        here().task().local.setdefault(self, {})[name] = value


class Pool:
    """A ThreadPoolExecutor of simulated threads."""

    def __init__(self, max_workers: int = 4, thread_name_prefix: str = "pool", **_: Any) -> None:
        self._most, self._closed = max_workers, False

    def map(self, work: Callable[..., Any], *items: Any) -> Iterator[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        arguments = list(zip(*items, strict=False))
        results: list[tuple[bool, Any]] = [(False, None)] * len(arguments)
        left = deque(enumerate(arguments))

        def worker() -> None:
            while left:
                at, given = left.popleft()
                try:
                    results[at] = True, work(*given)
                except Exception as error:
                    results[at] = False, error

        if len(arguments) <= 1 or self._most == 1:
            worker()
        else:
            threads = [
                Thread(target=worker, name="pool") for _ in range(min(self._most, len(arguments)))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return self._given(results)

    def _given(self, results: list[tuple[bool, Any]]) -> Iterator[Any]:
        for good, result in results:
            if not good:
                raise result
            yield result

    def shutdown(self, wait: bool = True, **_: Any) -> None:
        self._closed = True

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class SimpleQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiters: deque[Task] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        here().wake(self._waiters, 1)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        while not self._items:
            if not block or not here().block(self._waiters, timeout):
                if self._items:
                    break
                raise real_queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items


class Datetime(real_datetime.datetime):
    """datetime whose now is the universe's."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return real_datetime.datetime.fromtimestamp(here().clock(), tz)


class Scratch:
    """A TemporaryDirectory that is neither made nor removed each time."""

    directory = ""
    _free: ClassVar[list[str]] = []
    _made = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        if not Scratch._free:
            Scratch._made += 1
            Scratch._free.append(f"{Scratch.directory}/{Scratch._made}")
            Path(Scratch._free[-1]).mkdir(parents=True, exist_ok=True)
        self.name = Scratch._free.pop()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        Scratch._free.append(self.name)


class _Module:
    """A module with some of its names replaced."""

    def __init__(self, real: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Main:
    def is_alive(self) -> bool:
        return True


class Ids:
    """Random numbers that the seed decides."""

    def __getattr__(self, name: str) -> Any:
        return getattr(here().ids, name)

    def randbits(self, count: int) -> int:
        return here().ids.getrandbits(count)

    def token_hex(self, count: int) -> str:
        return f"{here().ids.getrandbits(8 * count):0{2 * count}x}"

    def Random(self, seed: Any = None) -> real_random.Random:
        return real_random.Random(here().ids.getrandbits(64) if seed is None else seed)


THREADING = _Module(
    real_threading,
    Thread=Thread,
    Event=Event,
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Barrier=Barrier,
    Semaphore=Semaphore,
    Timer=Timer,
    local=Local,
    main_thread=_Main,
)
TIME = _Module(
    real_time,
    monotonic=lambda: here().now,
    perf_counter=lambda: here().now,
    time=lambda: here().clock(),
    time_ns=lambda: int(here().clock() * 1e9),
    sleep=lambda seconds: here().sleep(seconds),
)
QUEUE = _Module(real_queue, SimpleQueue=SimpleQueue)
UUID = _Module(real_uuid, uuid4=lambda: real_uuid.UUID(int=here().ids.getrandbits(128)))
TEMPFILE = _Module(real_tempfile, TemporaryDirectory=Scratch)

_REPLACED: dict[int, tuple[Any, Any]] = {
    id(real): (real, own)
    for real, own in (
        (real_threading, THREADING),
        (real_time, TIME),
        (real_queue, QUEUE),
        (real_uuid, UUID),
        (real_random, Ids()),
        (real_secrets, Ids()),
        (real_tempfile, TEMPFILE),
        (real_pool, Pool),
        (real_future, Future),
        (real_threading.Event, Event),
        (real_time.monotonic, TIME.monotonic),
    )
}


@contextmanager
def installed(directory: Path, modules: Callable[[str], bool]) -> Iterator[None]:
    """Let podium's modules see the universe in place of Python's modules.

    Args:
        directory: For files of a moment.
        modules: Whether a module takes part, by its name.
    """
    Scratch.directory, Scratch._free, Scratch._made = str(directory), [], 0
    undo: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if not name.startswith("podium.") or not modules(name):
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in _REPLACED and _REPLACED[id(value)][0] is value:
                undo.append((module, attribute, value))
                setattr(module, attribute, _REPLACED[id(value)][1])
            elif value is real_datetime.datetime and "datetime.now" in inspect.getsource(module):
                undo.append((module, attribute, value))
                setattr(module, attribute, Datetime)
    try:
        yield
    finally:
        for module, attribute, value in undo:
            setattr(module, attribute, value)
