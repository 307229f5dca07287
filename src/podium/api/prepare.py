"""Prepare data from Python and from the shell."""

from pathlib import Path
from typing import Any

from podium.cluster.kubernetes.store_access import take_access
from podium.data.dataset import Dataset
from podium.data.in_memory import located
from podium.display.terminal import doing
from podium.errors import InvalidInput
from podium.system.arguments import checked, plain
from podium.system.settings import Settings
from podium.training.dataset import DataSettings
from podium.training.preparation import prepare


@checked
def prepare_data(
    dataset: Any = "mnist",
    output: str | Path | None = None,
    *,
    source: str | Path = "",
    target: str = "",
    limit: int = 0,
    seed: int | None = None,
    **options: Any,
) -> Dataset:
    """Read, verify, split and write data as one checksummed dataset, as ``podium data prepare``
    does.

    Args:
        dataset: ``mnist``, ``fashion-mnist``, ``images:DIRECTORY``, ``table:FILE``, ``text:FILE``
            or ``npz:FILE``; or the directory or URI of a prepared dataset, which is copied to
            output, or opened where there is none. Or what this program holds: a DataFrame, ``(X,
            y)``, columns or arrays by name, rows as dicts.
        output: Directory, or ``s3://`` or ``minio://`` prefix; ``$PODIUM_HOME/data/NAME`` if None.
        source: Directory or URI with the idx files of mnist; cache and mirrors if empty.
        target: Name of the target column of a table or of text.
        limit: Most items for train and validation together; 0 takes all. The test part of mnist
            stays whole.
        seed: Decides which items form which part: the option ``split_seed``, 1 if None.
        **options: Options of the source, such as ``validation=0.2`` or ``group="city"``.

    Raises:
        InvalidInput: The data or an option breaks a rule, or output holds something else.
        NotFound: There is no such file.
        Failed: No mirror has the files; the message names each.

    Example:
        >>> import podium
        >>> podium.prepare_data("table:houses.csv", target="price")
        <dataset houses: regression, train 57, validation 6, test 7>
    """
    if seed is not None and "split_seed" in options:
        raise InvalidInput(
            "seed and split_seed are the same setting, but both are set", "leave out split_seed"
        )
    options |= {} if seed is None else {"split_seed": seed}
    located_at, target = located(dataset, target)
    settings = DataSettings(
        dataset=located_at,
        source=str(source),
        target=target,
        limit=plain(limit),
        data_options={name: _listed(value) for name, value in options.items()},
    )
    return write(settings, output)


def _listed(value: Any) -> Any:
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return value.tolist() if getattr(value, "ndim", None) == 1 else plain(value)


def prepared(data: Any, target: str) -> str:
    """Return the path or URI of a dataset; data in memory are prepared first, with this target.

    Raises:
        InvalidInput: It is no data, or a DataFrame whose target nobody named.
    """
    if not isinstance(data, str | Path | Dataset):
        return str(prepare_data(data, target=target))
    if target:
        raise InvalidInput(
            f"a target is named, but {data} is no DataFrame",
            f"podium.prepare_data({str(data)!r}, target={target!r}) makes a dataset",
        )
    return str(data)


def write(settings: DataSettings, output: str | Path | None = None) -> Dataset:
    """Prepare a dataset where the user says, or below PODIUM_HOME; a prepared one without output
    stays where it is."""
    if settings.is_prepared and output is None:
        return Dataset(settings.dataset)
    where = output or Settings.from_environment().home / "data" / settings.name
    with doing(f"preparing {settings.name}"):
        take_access()
        prepare(settings, str(where))
    return Dataset(where)
