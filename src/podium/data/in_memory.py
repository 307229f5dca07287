"""Data that a Python program holds: DataFrames and arrays, kept in a file that every step can
read."""

import io
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from podium.errors import InvalidInput
from podium.files.documents import write_file
from podium.system.settings import Settings

_HINT = "a DataFrame, (X, y), columns or arrays by name, a prepared dataset, or a name such as table:houses.csv"


def located(data: Any, target: str = "") -> tuple[str, str]:
    """Return where data lie and the name of their target, which is empty where nobody named one.

    Args:
        data: A name, path, URI or Dataset, which stay as they are; a DataFrame of pandas or polars
            or a table of pyarrow; columns by name, or rows as dicts; arrays by name; ``(X, y)`` of
            such, or of numpy arrays. What is in memory is written below PODIUM_HOME, under its
            digest.
        target: Name of the target column, or of the array.

    Raises:
        InvalidInput: It is none of these, or X and y differ in length.
    """
    if isinstance(data, str | os.PathLike):
        return str(data), target
    if isinstance(data, tuple) and len(data) == 2:
        data, target = _joined(*data, target)
    arrays = _arrays(data)
    name = "arrays.npz" if arrays else "table.parquet"
    content = io.BytesIO()
    for of, array in (arrays or {}).items():
        if array.dtype == object:
            raise InvalidInput(f"{of} holds {array.dtype}s, not numbers or texts", _HINT)
    if arrays:
        np.savez(content, allow_pickle=False, **arrays)
    else:
        pq.write_table(to_table(data), content)
    digest = sha256(content.getvalue()).hexdigest()[:16]
    path = Settings.from_environment().home / "given" / digest / name
    if not path.is_file():
        write_file(path, content.getvalue())
    return f"{'npz' if arrays else 'table'}:{path}", target


def _joined(items: Any, targets: Any, target: str) -> tuple[Any, str]:
    if all(hasattr(side, "iloc") for side in (items, targets)):
        own, other = items.index, targets.index
        if not own.equals(other) and own.is_unique and set(own) == set(other):
            raise InvalidInput(
                "the index of y is that of X in another order: rows may get the targets of others",
                "y.loc[X.index] puts them in order; y.to_numpy() if they are in order already",
            )
    if hasattr(targets, "columns"):  # a frame of one column
        columns = to_table(targets)
        if columns.num_columns != 1:
            raise InvalidInput(f"y has {columns.num_columns} columns", "one target for each item")
        target, targets = target or columns.column_names[0], columns.column(0)
    if not hasattr(targets, "__len__"):
        raise InvalidInput(f"y cannot be {kind_of(targets)}", "one target for each item")
    target = target or str(getattr(targets, "name", None) or "target")
    table = None if isinstance(items, np.ndarray) else to_table(items)
    count = len(items) if table is None else table.num_rows
    if count != len(targets):
        raise InvalidInput(
            f"X has {count:,} items, but y has {len(targets):,}", "one target for each item"
        )
    if table is None:
        return {"x": items, target: np.asarray(targets)}, target
    if target in table.column_names:
        raise InvalidInput(
            f"X has a column {target!r} too, the name of y", "leave it out of X, or rename y"
        )
    if isinstance(targets, np.ndarray) and targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    return table.append_column(target, to_table({target: targets}).column(0)), target


def _arrays(data: Any) -> dict[str, np.ndarray] | None:
    """Return arrays by name if they are no columns of a table."""
    if not isinstance(data, Mapping) or not all(
        isinstance(value, np.ndarray) for value in data.values()
    ):
        return None
    arrays = {str(name): _without_objects(value) for name, value in data.items()}
    return arrays if any(value.ndim > 1 for value in arrays.values()) else None


def _without_objects(array: np.ndarray) -> np.ndarray:
    """Return texts that pandas keeps as objects as numpy does; any other array as it is."""
    texts = array.dtype == object and all(isinstance(value, str) for value in array.flat)
    return array.astype(np.str_) if texts else array


def is_table(data: Any) -> bool:
    """Return whether data are rows and columns: a frame, columns or one row by name, rows as
    dicts."""
    if isinstance(data, Mapping):
        return not any(isinstance(value, np.ndarray) for value in data.values())
    if isinstance(data, list):
        return bool(data) and all(isinstance(row, Mapping) for row in data)
    return _is_pandas(data) or (hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"))


def to_table(data: Any) -> pa.Table:
    """Return rows and columns of any such kind as a table of pyarrow.

    Raises:
        InvalidInput: It is none, or its columns hold what no table does.
    """
    try:
        if _is_pandas(data):  # whose index is no column
            return _writable(pa.Table.from_pandas(data, preserve_index=False))
        if isinstance(data, Mapping):
            one_row = all(
                isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__")
                for value in data.values()
            )
            return _of_columns(
                {name: [value] if one_row else value for name, value in data.items()}
            )
        if isinstance(data, list) and is_table(data):
            names = dict.fromkeys(name for row in data for name in row)
            return _of_columns({name: [row.get(name) for row in data] for name in names})
        if hasattr(data, "__arrow_c_stream__") and not hasattr(
            data, "iloc"
        ):  # a column of pandas has one too
            return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        first = "; ".join(map(str, error.args)).partition("\n")[0]
        raise InvalidInput(f"these columns are no table: {first:.120}", _HINT) from None
    raise InvalidInput(f"data cannot be {kind_of(data)}", _HINT)


def _writable(table: pa.Table) -> pa.Table:
    for column in table.schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else None
        if isinstance(kind, pa.BaseExtensionType):
            raise InvalidInput(
                f"column {column.name} holds {kind.extension_name}s, not numbers, texts or dates",
                f"write them as texts: frame[{column.name!r}].astype(str)",
            )
    return table


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """Return columns by name as a table; NaN is missing, among texts too."""
    table = pa.table(
        {
            str(name): values
            if isinstance(values, pa.Array | pa.ChunkedArray)
            else pa.array(values, from_pandas=True)
            for name, values in columns.items()
        }
    )
    return _writable(table)


def _is_pandas(data: Any) -> bool:
    return hasattr(data, "iloc") and hasattr(data, "columns")


def kind_of(data: Any) -> str:
    """Name the type of a value that nobody expected, for an error: never its content."""
    kind = type(data)
    return f"of type {kind.__name__ if kind.__module__ == 'builtins' else f'{kind.__module__}.{kind.__name__}'}"
