# tests/search/test_halton.py
from pathlib import Path

from podium.manifests.experiment.space import read_space
from podium.search.search import Search


def test_halton_is_even_and_continues(tmp_path: Path) -> None:
    [*space] = read_space(
        [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}]
    )

    def points(folder: str, trials: range) -> list[float]:
        search = Search(
            space, "halton", {}, maximize=True, directory=tmp_path / folder, name="study"
        )
        return [float(search.ask(f"trial-{number}")["lr"]) for number in trials]

    whole = points("whole", range(8))
    assert sorted(int(value * 8) for value in whole) == list(range(8))  # one in each eighth
    assert points("halves", range(4)) + points("halves", range(4, 8)) == whole
