"""A second version of a model that answers beside the champion, as options name it."""

from dataclasses import dataclass
from typing import Self

from podium.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Split:
    """A second version of a model: ``VERSION`` for a shadow, ``VERSION=5%`` for a canary, each
    perhaps with ``NAME@`` before it."""

    name: str
    """Of the model; empty for the only one that is served."""

    ref: str
    """Version or alias."""

    share: float = 0.0
    """Of the requests that it answers; 0 for a shadow."""

    @classmethod
    def shadow(cls, text: str) -> Self:
        """Parse the value of --shadow."""
        name, _, ref = text.rpartition("@")
        return cls(name=name, ref=ref)

    @classmethod
    def canary(cls, text: str) -> Self:
        """Parse the value of --canary.

        Raises:
            InvalidInput: It has no share, or one that is not above 0 % and below 100 %.
        """
        version, _, share = text.partition("=")
        try:
            number = float(share.removesuffix("%")) / 100
        except ValueError:
            number = 0.0
        if not share.endswith("%") or not 0 < number < 1:
            raise InvalidInput(
                f"--canary {text} does not say which share of the requests, above 0 % and below 100 %",
                f"--canary {version or 'VERSION'}=5%",
            )
        name, _, ref = version.rpartition("@")
        return cls(name=name, ref=ref, share=number)
