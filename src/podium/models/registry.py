"""The models of a storage: ``podium.registry()["mnist"].champion.predict(x)``."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from podium.display.notebook import table
from podium.errors import NoSuchKey
from podium.models.ledger import names_below
from podium.models.model import Model, Overview
from podium.storage import Storage, connect
from podium.system.arguments import checked
from podium.system.settings import STORAGE, Settings


class Registry(Mapping[str, Model]):
    """The models below ``models/`` of a storage. All state is in the storage: any number may be
    open at once."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.url = storage, storage.url

    def model(self, name: str) -> Model:
        """Return a model, whether it has versions yet or not.

        Raises:
            InvalidInput: It is not a model name.
        """
        return Model(self.storage, name)

    def select(self, name: str | None = None) -> list[Model]:
        """Return the named model, or all.

        Raises:
            NotFound: There is no such model; a misspelled name must not look like an empty one.
        """
        names = list(self)
        if name is not None and name not in names:
            there = f"models there: {', '.join(names) or 'none'}"
            raise NoSuchKey(f"there is no model {name} in {self.url}", there)
        return [self.model(each) for each in names if name in (None, each)]

    def __getitem__(self, name: str) -> Model:
        """Return a model that has a version.

        Raises:
            NotFound: There is no such model.
        """
        return self.select(name)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(names_below(self.storage, "models"))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"<registry {self.url}: {', '.join(self) or 'no models'}>"

    def _repr_html_(self) -> str:
        return table(
            Overview.HEADS, [model.overview().cells() for model in self.select()], title=self.url
        )


@partial(checked, path="podium.registry")
def open_registry(url: str | Path | None = None) -> Registry:
    """Open the registry of a storage; an empty storage is an empty registry.

    Args:
        url: A directory, ``s3://`` or ``minio://``; PODIUM_STORAGE, else ``$PODIUM_HOME/store``, if
            None.

    Example:
        >>> import podium
        >>> models = podium.registry(storage)
        >>> list(models)
        ['digits']
        >>> models["digits"].champion.predict(images).values.tolist()
        ['zero', 'one']
    """
    return Registry(connect(url or os.environ.get(STORAGE) or Settings.from_environment().storage))
