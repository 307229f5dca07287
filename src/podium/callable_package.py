"""Packages that are called like the function of the API with their name: ``podium.run(…)``, ``podium.registry(…)``.

Python sets a package's name in ``podium`` as soon as anything imports a module of it. So what is found under the name
is the package, whichever came first, and calling it calls the function.
"""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package with a function of its name in ``podium.api``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of the API."""
        return self._function(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """What inspect and notebooks show."""
        return inspect.signature(self._function)

    @property
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = sys.modules["podium"].function(self.__name__.rpartition(".")[2])
        return function


def make_callable(name: str) -> None:
    """Let a package be called.

    Args:
        name: ``__name__`` of the package, which is being imported.
    """
    sys.modules[name].__class__ = CallablePackage
