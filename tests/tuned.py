"""Functions that tests tune. Every trial imports this file, so it imports nothing."""


def length_of(word: str) -> float:
    return len(word)


def of_two(x: float, y: float = 0.0) -> float:
    return x - y


def divide(x: int) -> float:
    return 1 / x


def gain_and_cost(x: float) -> dict[str, float]:
    return {"gain": x, "cost": 3 * x, "mood": -x}


def only_large(x: float) -> float:
    if x < 0.7:
        raise ValueError("too small")
    return 1.0


def boosted(x: float) -> None:
    print(f"[0]\ttrain-auc:{1.0:.5f}\teval-auc:{x:.5f}")


def silent(x: float) -> None:
    print("nothing to see")


def only_loss(lr: float, width: int) -> dict[str, float]:
    return {"loss": (lr - 0.5) ** 2 / width}


def only_plain(amp: bool, penalty: str | None, name: str) -> float:
    """Return 1 for the arguments as they are, which are not as their text is."""
    return float(amp is False and penalty is None and name == "007")
