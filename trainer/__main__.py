"""``python -m podium.trainer``: read the flags, connect to the other ranks, train, save."""

import gc
import os
import signal
import sys

if __name__ == "__main__":
    gc.disable()  # until all is imported: collecting garbage meanwhile takes a fifth of the start
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # numpy's threads; nothing here computes with them

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from podium.errors import PodiumError
from podium.metrics import RESUMED
from podium.trainer import tabular
from podium.trainer.config import TrainConfig, parse

if __name__ == "__main__" and (ended := tabular.run()) is not None:
    sys.exit(ended)


from podium.storage import Storage, connect
from podium.trainer import checkpoint, data, folds, objective, output, processor, ranks, weights
from podium.trainer.loop import TrainingLoop
from podium.trainer.seen import Seen
from podium.trainer.tracking import Tracking
from podium.trainer.trainjob_status import StatusReporter
from podium.trainer.world import World, join

_FEW_STEPS = 50  # of the one-cycle schedule: after 20 the fast network had 37 % accuracy, after 80 it had 95 %
LOOK_SECONDS = 5.0
"""Between two looks, of a rank that waits for others, whether the training is finished."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a training and return the exit code.

    1: failed for good; 2: bad input; 143: stopped by SIGTERM, 144: another rank is gone. The last
    two resume.
    """
    if (ended := tabular.run(argv)) is not None:
        return ended
    try:
        config = parse(argv)
        processor.keep_memory()
        dataset = data.load(config)
        processor.set_threads(config)
        with ExitStack() as stack:
            with _ending_if_finished(config, dataset):
                world = stack.enter_context(join(config))
            train(config, dataset, world)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


@contextmanager
def _ending_if_finished(config: TrainConfig, dataset: data.Dataset) -> Iterator[None]:
    """End this process with 0 while it waits for others, if the training is finished: a rank that
    was killed in its last moments finds nobody any more."""
    met, own = threading.Event(), ranks.read(os.environ)

    def look() -> None:
        while not met.wait(LOOK_SECONDS):
            with suppress(PodiumError):  # the ranks look for themselves once they have met
                storage, shown = connect(config.output), config.shown(dataset.task.kind)
                lines = output.finished(storage, config, dataset.digest, shown)
                if lines is not None:
                    if own.rank == 0:
                        output.say_finished(lines)
                    sys.stderr.flush()
                    os._exit(0)

    if own.size > 1 and config.output:
        threading.Thread(target=look, name="podium-finished", daemon=True).start()
    try:
        yield
    finally:
        met.set()


def train(config: TrainConfig, dataset: data.Dataset, world: World) -> None:
    """Train or resume, then write the model directory; only print the metrics of a training that is
    finished."""
    storage = connect(config.output) if config.output else None
    finished, state = world.broadcast(lambda: _look_up(storage, config, dataset))
    if finished is not None:
        if world.rank == 0:
            output.say_finished(finished)
        return
    identity = {
        "fingerprint": config.fingerprint(dataset.digest),
        "config": config.decisive,
    }
    crossed = _cross_validate(config, dataset, world) if config.folds else None
    if crossed:
        dataset = data.load(replace(config, data=crossed.data))
    quiet = _be_quiet if crossed else _say
    training = TrainingLoop(config, dataset.to(world.device), world, quiet)
    training.until, status = crossed.epoch if crossed else 0, StatusReporter()
    _start(training, state)
    signal.signal(signal.SIGTERM, lambda *_: setattr(training, "stop", True))

    def save(state: dict[str, Any]) -> None:
        if storage:
            storage.put(checkpoint.KEY, checkpoint.to_bytes({**state, **identity}))

    with Tracking(config if world.rank == 0 else replace(config, track=())) as tracking:

        def track(record: dict[str, float]) -> None:
            tracking.log(record)
            metrics = {name: record[name] for name in (*training.objective.metrics, "train_loss")}
            status.report(int(record["epoch"]), config.epochs, metrics, done=training.is_done())

        training.run(save, _be_quiet if crossed else track)
        with world.last_work():
            if world.rank == 0:
                for record in crossed.history if crossed else ():
                    _say(training.objective.line(record))
                    track({**record, "train_loss": record["loss"]})
                _write(training, storage, crossed)
                status.close()


def _be_quiet(_: object) -> None:
    """Print nothing of a training whose validation items are among those it learns from."""


def _cross_validate(
    config: TrainConfig, dataset: data.Dataset, world: World
) -> folds.CrossValidated:
    measure = objective.of(config, dataset.task)

    def fit(fold: TrainConfig) -> folds.Fit:
        part = data.load(fold)
        training = TrainingLoop(fold, part.to(world.device), world, _be_quiet)
        training.outputs = []
        _start(training, None)
        training.run(_be_quiet)
        records = [
            {name: record[name] for name in measure.metrics} for record in training.progress.history
        ]
        predictions = [measure.probabilities(each).numpy() for each in training.outputs]
        return folds.Fit(records, predictions, part.validation.target.cpu().numpy())

    return folds.cross_validate(
        config,
        fit,
        lambda record, other: measure.is_better(dict(record), dict(other)),
        _say if world.rank == 0 else _be_quiet,
        has_groups=dataset.has_groups,
    )


def _write(
    training: TrainingLoop, storage: Storage | None, crossed: folds.CrossValidated | None
) -> None:
    config = training.config
    seen = Seen.read(config.data, config.weights or checkpoint.inherited(config))
    if config.inherit:
        checkpoint.save_for_child(
            config, training.progress.weights, training.optimizer.state_dict()
        )
        seen.write(connect(config.inherit))
    if storage:
        output.write(storage, training, seen, crossed)


def _look_up(
    storage: Storage | None, config: TrainConfig, dataset: data.Dataset
) -> tuple[list[str] | None, Any]:
    """Return the metric lines if this training is finished, else None; and the state to resume
    from, or None.

    Raises:
        InvalidInput: The output holds another training, or cannot be read or written.
    """
    if storage is None:
        return None, None
    with output.usable(config.output):
        shown = config.shown(dataset.task.kind)
        lines = output.finished_before(storage, config, dataset.digest, shown)
        return lines, checkpoint.load(storage, config, dataset.digest)


def _start(training: TrainingLoop, state: dict[str, Any] | None) -> None:
    """Resume from a state if there is one, else begin with the weights to inherit, with those
    given, or new ones."""
    config, world = training.config, training.world
    if state is not None:
        remove = f"remove {checkpoint.KEY} there to start again"
        with checkpoint.fitting(
            f"the checkpoint in --output {config.output} is of another version", remove
        ):
            training.resume(state)
        if world.rank == 0:
            _say_resumed(training)
    elif (parent := world.broadcast(lambda: checkpoint.load_parent(config))) is not None:
        hint = "inherit from trainings of the same network"
        with checkpoint.fitting(
            f"--inherit {config.inherit} holds no weights of this network", hint
        ):
            training.inherit(parent)
    elif config.weights:
        pretrained = world.broadcast(lambda: weights.read(config.weights))
        if not weights.fill(training.model, pretrained, config.weights) and world.rank == 0:
            print(
                f"notice: the last layer of --weights {config.weights} has another number of outputs; "
                "this training begins with a new one",
                file=sys.stderr,
                flush=True,
            )
    if world.rank == 0 and training.outputs is None:  # not for each fold
        _warn_of_few_steps(config, training.steps * config.epochs)
    world.broadcast_tensors([*training.model.parameters(), *training.model.buffers()])


def _say_resumed(training: TrainingLoop) -> None:
    """Say after which step it goes on, and repeat the metrics so far: each log is whole."""
    progress = training.progress
    _say(f"{RESUMED}epoch {progress.epoch} after step {progress.step} of {training.steps}")
    for record in progress.history:
        _say(training.objective.line(record))


def _warn_of_few_steps(config: TrainConfig, steps: int) -> None:
    """Say so if a recipe made for hundreds of steps gets only a few."""
    if config.schedule == "onecycle" and steps < _FEW_STEPS:
        print(
            f"notice: {steps} steps in all are too few for the learning rate of --model {config.model} to rise and "
            "fall: more data, more --epochs or a smaller --batch-size help",
            file=sys.stderr,
        )


def _say(line: str) -> None:
    """Print a line at once: a collector reads it while the training runs."""
    print(line, flush=True)


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written and closed. The usual shutdown of the interpreter takes half a second
    # and more with torch loaded, and waits forever on messages to a rank that is gone.
    os._exit(code)
