"""The served model, and the version of it that answers now."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from podium.data.profile import Watch
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.models import Model, open_registry
from podium.models.recorded import digest_of
from podium.models.signature import open_trusted
from podium.prediction import Predictor
from podium.prediction.pool import CommandPool, Processes
from podium.scoring import OnnxModel
from podium.scoring.families import Array
from podium.serving.batcher import Batcher
from podium.serving.tensors import NAMES
from podium.system.background import DaemonThreads

if TYPE_CHECKING:
    from podium.serving.challenger import Challenger

_log = logging.getLogger("podium")

_MOST_ROWS = 1024
"""Rows of a batch at most."""

SLOW_LOOK = 60.0
"""Seconds after which a look for the champion that has not ended is trouble: a store may take a
request and never answer it."""

_MOST_WATCHES = 4
"""Versions of a model whose counts are kept."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A version, ready to answer."""

    version: str
    digest: str
    """Tells its files; empty for a directory."""

    predictor: Predictor
    batcher: Batcher

    @classmethod
    def of(
        cls,
        version: str,
        digest: str,
        predictor: Predictor,
        watch: Watch | None = None,
        processes: Processes | None = None,
    ) -> "Loaded":
        """Open a version; it has answered nothing yet.

        Args:
            watch: Counts what it is given and what it says.
            processes: Of a command.

        Raises:
            PodiumError: It cannot be opened.
        """
        model = predictor.model
        predictor.load()
        predictor.seen = watch.note if watch else None
        if "/" in predictor.name:  # a directory of this machine, which is no client's business
            predictor.name = PurePath(predictor.name).name
            if isinstance(model, OnnxModel):
                model.name = predictor.name
        if not isinstance(model, OnnxModel):
            settings = processes or Processes()
            predictor.model = CommandPool(name=model.name, fetch=model.fetch, processes=settings)
            batcher = Batcher(partial(_commanded, predictor), _MOST_ROWS, settings.count)
        else:
            run = partial(_watched, model, predictor, watch) if watch else model.run
            batcher = Batcher(run, _MOST_ROWS, options=model.options)
        return cls(version=version, digest=digest, predictor=predictor, batcher=batcher)

    async def close(self, *, at_once: bool = False) -> None:
        """Wait until everything that was asked is answered, and end the processes of a command.

        Args:
            at_once: Whether nobody waits for an answer: the calls of a command are broken off.
        """
        pool = self.predictor.model if isinstance(self.predictor.model, CommandPool) else None
        if pool and at_once:
            await asyncio.to_thread(pool.stop)
        await self.batcher.close()
        if pool:
            await asyncio.to_thread(pool.close)

    def check_names(self, inputs: Mapping[str, Array]) -> None:
        """Refuse inputs that neither the model takes nor its training part had: a graph may leave
        some of those unused.

        Raises:
            InvalidInput: There are any.
        """
        model = self.predictor.model
        if not isinstance(model, OnnxModel) or inputs.keys() <= self._names:
            return
        if all(tensor.name in inputs for tensor in model.inputs):  # else the model says more
            unknown = next(name for name in inputs if name not in self._names)
            taken = ", ".join(map(str, model.inputs))
            raise InvalidInput(
                f"{self.predictor.name} has no input {unknown!r}; it takes {taken}",
            )

    @cached_property
    def _names(self) -> frozenset[str]:
        model, ranges = self.predictor.model, self.predictor.known_ranges
        taken = model.inputs if isinstance(model, OnnxModel) else ()
        return frozenset([tensor.name for tensor in taken]) | frozenset(
            ranges.inputs if ranges else ()
        )

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of the outputs for a row, of axes whose size the model says."""
        model = self.predictor.model
        if not isinstance(model, OnnxModel):
            return 0
        return sum(
            np.dtype(tensor.dtype).itemsize * math.prod(filter(None, tensor.shape[1:]))
            for tensor in model.outputs
            if tensor.dtype in NAMES and model.has_rows(tensor)
        )

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Platform, inputs and outputs as the protocol describes them."""
        model = self.predictor.model
        if not isinstance(model, OnnxModel):
            return {"platform": "podium_command", "inputs": [], "outputs": []}
        sides = {
            "inputs": model.inputs,
            "outputs": [tensor for tensor in model.outputs if tensor.dtype in NAMES],
        }
        return {"platform": "onnx_onnxv1"} | {
            side: [
                {
                    "name": tensor.name,
                    "datatype": NAMES.get(tensor.dtype, "BYTES"),
                    "shape": [
                        -1 if size is None or (not axis and model.has_rows(tensor)) else size
                        for axis, size in enumerate(tensor.shape)
                    ],
                }
                for tensor in tensors
            ]
            for side, tensors in sides.items()
        }


def _watched(
    model: OnnxModel,
    predictor: Predictor,
    watch: Watch,
    inputs: Mapping[str, Array],
    options: Any,
) -> dict[str, Array]:
    outputs, classes = model.run(inputs, options), predictor.classes
    try:
        said = model.predicted(outputs, classes=None if classes is None else len(classes))
        watch.note(inputs, predictor.decided(said))
    except PodiumError:  # outputs that are not finite, for example, which a client may want to see
        watch.failures += 1
    return outputs


def _commanded(predictor: Predictor, inputs: Mapping[str, Array], options: Any) -> dict[str, Array]:
    """Predict with a command, which its pool ends in time; it may give probabilities, indices of
    classes or numbers."""
    predictions = predictor.predict(dict(inputs))
    if (chances := predictions.probabilities) is not None:
        return {"probabilities": chances}
    indices = predictions.indices
    return {"predictions": predictions.values if indices is None else indices}


class Served:
    """A model under its name; its version changes when the champion does.

    Args:
        name: In URLs.
        find: Returns the id of the version that should answer, its digest, and what opens it.
        share: Of calls of the model that are counted in bins; None for none.
        processes: Of a model that is a command.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], tuple[str, str, Callable[[], Predictor]]],
        share: float | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.name, self._find, self._share, self._processes = name, find, share, processes
        self.watches: dict[str, Watch] = {}
        """By version, the last few that answered."""

        self._now: Loaded | None = None
        self._looks = DaemonThreads(f"podium-follow-{name}")
        self._replaced: Loaded | None = None
        """The version before, until it has answered what it was asked."""

        self.swaps = 0
        self.trouble = ""
        """Why another version should answer, and does not."""

        self.announce: Callable[[], None] = lambda: None
        """Called when another version answers."""

        self.registered: Model | None = None
        """Of the registry; None for a directory."""

        self.challenger: Challenger | None = None
        """Answers beside it."""

    def beside(self, ref: str) -> "Served":
        """Return another version of it, to be served beside it as ``NAME@REF``; one that was
        deleted is in trouble.

        Raises:
            InvalidInput: It is a directory.
            NotFound: There never was such a version.
        """
        if self.registered is None:
            raise InvalidInput(
                f"{self.name} is a directory, which has no version {ref!r}",
                "serve a model of the registry by its name",
            )
        found = partial(_find_version, self.registered, ref)
        beside = Served(f"{self.name}@{ref}", found, self._share, self._processes)
        try:
            found()
        except NotFound as error:
            if not any(
                ref in (record.version, record.alias) for record in self.registered.records()
            ):
                raise
            beside.trouble = error.message
        return beside

    @property
    def opened(self) -> bool:
        """Whether a version answers yet."""
        return self._now is not None

    @property
    def opening(self) -> bool:
        """Whether its first version is still to be opened, and may yet be."""
        return not self.opened and not self.trouble

    @property
    def now(self) -> Loaded:
        """The version that answers."""
        assert self._now is not None
        return self._now

    @property
    def versions(self) -> dict[str, Loaded]:
        """The versions that answer, by id: the champion, and one beside it."""
        both = [self, *([self.challenger.served] if self.challenger else [])]
        return {each.now.version: each.now for each in both if each.opened}

    @property
    def unwatched(self) -> str:
        """Why its items are not counted though they should be, for people."""
        lacks = self._share is not None and self.now.version not in self.watches
        return (
            " has no profile.json of its training part: its items are not counted" if lacks else ""
        )

    def open(self) -> None:
        """Open the version that answers first.

        Raises:
            PodiumError: There is none, or it cannot be opened.
        """
        self._now = self.load()
        self.announce()

    def load(self) -> Loaded | None:
        """Open the version that should answer; None if it is the one that does.

        Raises:
            PodiumError: There is none, or it cannot be opened.
        """
        version, digest, opened = self._find()
        if self._now and (self._now.version, self._now.digest) == (version, digest):
            return None
        predictor = opened()
        watch = self._watch(version, predictor)
        return Loaded.of(version, digest, predictor, watch, self._processes)

    def _watch(self, version: str, predictor: Predictor) -> Watch | None:
        """Return what counts a version's items; None where nobody asked for it, or its training
        part is not known."""
        if self._share is None or (profile := predictor.profile) is None:
            return None
        watch = self.watches.pop(version, None)  # a version that is back counts on
        if watch is None or watch.profile != profile:
            watch = Watch(profile, self._share)
        self.watches = {**dict(list(self.watches.items())[1 - _MOST_WATCHES :]), version: watch}
        return watch

    async def follow(self) -> None:
        """Let the champion answer from now on; requests that are under way are answered by the
        version they began with.

        A champion that cannot be opened changes nothing; the trouble is told until it can, and of
        a look that has not ended after SLOW_LOOK.
        """
        if self.opening:
            return
        look = asyncio.get_running_loop().run_in_executor(self._looks, self.load)
        try:
            if not (await asyncio.wait([look], timeout=SLOW_LOOK))[0]:
                self._stay(f"looking for its champion has taken more than {SLOW_LOOK:g} s")
            loaded = await look
        except PodiumError as error:
            self._stay(error.message)
            return
        except Exception as error:  # which is logged
            self.trouble = f"{type(error).__name__}: {error}"
            raise
        finally:
            look.cancel()
        self.trouble = ""
        if loaded:
            before, self._now = self._now, loaded
            if before:
                self.swaps += 1
                self.announce()
                self._replaced = before
                await before.close()
                self._replaced = None

    def _stay(self, why: str) -> None:
        """Keep why another version should answer, and log it once."""
        if why != self.trouble:
            now = f"still answers with {self._now.version}" if self._now else "does not answer"
            _log.warning("%s %s: %s", self.name, now, why)
        self.trouble = why

    async def close(self) -> None:
        """End what answers and looks; nobody waits for an answer any more."""
        self._looks.shutdown()
        for loaded in (self._replaced, self._now):
            if loaded:
                await loaded.close(at_once=True)


def find_models(
    words: Sequence[str],
    storage: str | None,
    share: float | None = None,
    processes: Processes | None = None,
) -> list[Served]:
    """Return what is to be served.

    Args:
        words: ``NAME`` for a model's champion, ``NAME@VERSION`` (or an alias), or the path of a
            model directory or file, which a name of the registry goes before; none stands for all
            models of the registry that have a champion.
        storage: URL of the registry.
        share: Of calls of each model that are counted in bins; None for none.
        processes: Of a model that is a command.

    Raises:
        InvalidInput: There is nothing to serve, or two have one name.
        NotFound: There is no such model.
    """
    registry = open_registry(storage)
    if not words:
        words = [name for name in registry if registry[name].find_champion()]
        if not words:
            raise InvalidInput(
                f"no model in {registry.url} has a champion",
                "podium models list; or name a directory",
            )
    served: dict[str, Served] = {}
    for word in words:
        if "/" in word or (Path(word).exists() and word not in registry):
            path = Path(word)
            name = (path.parent if path.is_file() else path).resolve().name
            find = partial(lambda word: ("1", "", lambda: open_trusted(word)), word)
            model = Served(name, find, share, processes)
        else:
            name, _, ref = word.partition("@")
            model = Served(
                name, partial(_find_version, registry[name], ref or "champion"), share, processes
            )
            model.registered = registry[name]
        if name in served:
            raise InvalidInput(f"two models would be served as {name!r}", "serve them on two ports")
        served[name] = model
    return list(served.values())


def _find_version(model: Model, ref: str) -> tuple[str, str, Callable[[], Predictor]]:
    version = model.version(ref)
    return version.version, digest_of(version), version.open
