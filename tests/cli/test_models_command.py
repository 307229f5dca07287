"""`podium models` and `podium storage`, as typed."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from handmade import npy

from podium.cli import model_view as view
from podium.models import Model, Registry, open_registry
from podium.models.difference import _difference
from podium.models.shared_items import SharedItems
from podium.scoring import METRICS

LABELS = (np.arange(200) % 10).astype(np.uint8)
Typed = Callable[..., tuple[int, str, str]]


def add(model: Model, version: str, wrong: int, test_digest: str = "t") -> None:
    """Upload a version that takes its first wrong pictures for the next class."""
    predicted = np.where(np.arange(200) < wrong, (LABELS + 1) % 10, LABELS).astype(np.uint8)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (LABELS, predicted), 1)
    model.upload(
        {
            "model.onnx": b"graph " + version.encode(),
            "predictions.npy": npy(predicted),
            "target.npy": npy(LABELS),
        },
        {
            "run_id": version,
            "metric": {"name": "accuracy", "maximize": True},
            "metrics": {"accuracy": 1 - wrong / 200},
            "report": {
                "classes": [{"name": str(n)} for n in range(10)],
                "confusion": confusion.tolist(),
            },
            "dataset": {
                "digest": "d" * 64,
                "test_digest": test_digest,
                "classes": [str(n) for n in range(10)],
            },
        },
    )


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Model:
    """bad, good and best, of which bad is champion."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    model = open_registry(tmp_path / "store").model("mnist")
    for version, wrong in (("bad", 40), ("good", 20), ("best", 5)):
        add(model, version, wrong)
    model.set_champion("bad", {"reason": "the first"}, expect=None)
    return model


def test_an_empty_registry_lists_nothing(typed: Typed, tmp_path: Path) -> None:
    assert typed("models", "list", "--storage", str(tmp_path / "none"), "--json") == (0, "[]\n", "")


@pytest.mark.usefixtures("model")
def test_list_shows_models_and_versions(typed: Typed) -> None:
    (model,) = json.loads(typed("models", "list", "--json")[1])
    assert (model["name"], model["versions"], model["champion"]) == ("mnist", 3, "bad")
    lines = typed("models", "list", "mnist")[1].splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["bad", "0.8000"],
        ["good", "0.9000"],
        ["best", "0.9750"],
    ]
    assert lines[1].endswith("champion")


@pytest.mark.usefixtures("model")
def test_show_draws_the_confusion_matrix_and_names_what_is_confused(typed: Typed) -> None:
    code, out, _ = typed("models", "show", "mnist", "best")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["0", "19", "1", *"········", "95.0%"] in rows
    assert ["precision", "%", "100", *["95.0"] * 4, "95.2", *["100"] * 4] in rows
    assert "0 taken for 1  1    5.0% of 0" in out
    assert (
        json.loads(typed("models", "show", "mnist", "--json")[1])["most_confused"][0]["items"] == 4
    )


@pytest.mark.usefixtures("model")
def test_diff_gives_test_classes_and_flipped_pictures(typed: Typed) -> None:
    found = json.loads(typed("models", "diff", "mnist", "champion", "best", "--json")[1])
    assert (found["only_challenger_right"], found["only_champion_right"]) == (35, 0)
    assert found["p_value"] == pytest.approx(2 / 2**35)
    assert found["gained"][0] == {"item": 5, "target": "5", "before": "6", "after": "5"}
    out = typed("models", "diff", "mnist", "champion", "best")[1]
    rows = [line.split() for line in out.splitlines()]
    assert ["first", "right", "160", "0"] in rows
    assert ["first", "wrong", "35", "5"] in rows
    assert ["5,", "not", "6:", "4", "#5", "#15", "#25", "#35"] in rows
    assert "and 5 more kinds" in out
    assert "more kinds" not in typed("models", "diff", "mnist", "champion", "best", "--all")[1]


def fashion(model: Model) -> None:
    names = [
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ]
    confusion = [
        [1000 if row == column else row * 10 + column for column in range(10)] for row in range(10)
    ]
    report = {"classes": [{"name": name} for name in names], "confusion": confusion}
    reported = {
        "run_id": "a-run-with-quite-a-long-name",
        "report": report,
        "hyperparameters": {"lr": 0.1, "note": "[/x]"},
    }
    Registry(model.storage).model("fashion").upload({"model.onnx": b"graph"}, reported)


@pytest.mark.parametrize("width", [80, 120])
def test_everything_fits_the_terminal(
    typed: Typed, model: Model, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    fashion(model)
    typed(
        "models",
        "promote",
        "fashion",
        "a-run-with-quite-a-long-name",
        "--reason",
        "a [long] reason " * 20,
    )
    shown = [typed("models", "show", "fashion"), typed("models", "history", "fashion")]
    shown += [
        typed("models", "show", "mnist"),
        typed("models", "diff", "mnist", "champion", "best", "--all"),
    ]
    for code, out, _ in shown:
        assert code == 0
        assert max(map(len, out.splitlines())) <= width
    assert "note [/x]" in shown[0][1]
    assert "Ankle boot" in shown[0][1]
    assert "a [long] reason" in shown[1][1]


def test_a_confusion_matrix_too_wide_for_the_terminal_says_so(
    typed: Typed, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    fashion(model)
    out = typed("models", "show", "fashion", "a-run-with-quite-a-long-name")[1]
    assert "10 classes need a wider terminal than 40 columns" in out
    assert "Ankle boot taken for Bag" in out


def test_pictures_that_flipped_are_drawn_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    truth, before, after = np.array([0, 1, 1, 0]), np.array([1, 0, 1, 0]), np.array([0, 1, 0, 0])
    pictures = np.zeros((4, 28, 28), np.uint8)
    pictures[0, 6:10, 5:8] = 255
    pictures[1, 6:8] = 150
    seen = SharedItems(
        items=np.arange(4),
        target=truth,
        predicted=(before, after),
        decided=(before, after),
        classes=("T-shirt", "Bag"),
        inputs={},
    )
    lines = view.difference(_difference(seen, METRICS["accuracy"]), ("a", "b"), 5, pictures, 2)
    at = next(number for number, line in enumerate(lines) if "#0 T-shirt, not Bag  " in line)
    assert "#1 Bag, not T-shirt" in lines[at]
    assert [line.split() for line in lines[at + 4 : at + 7]] == [["███", "▒" * 28], ["███"], []]
    assert max(map(len, lines[at : at + 14])) <= 80
    assert any("#2 Bag, not T-shirt" in line for line in lines[at + 10 :])


def test_diff_of_few_numbers_says_what_would_undo_it() -> None:
    before, after = np.random.default_rng(0).normal(size=(2, 100))
    seen = SharedItems(
        items=np.arange(100),
        target=np.zeros(100),
        predicted=(before * 3, after),
        decided=(before * 3, after),
        classes=(),
        inputs={},
    )
    said = " ".join(view.difference(_difference(seen, METRICS["rmse"]), ("a", "b"), 5, None, 0))
    assert "neither is reliable: 100 items are few, and 3 that may be missing, with rmse " in said
    assert "more than chance" not in said


@pytest.mark.usefixtures("model")
def test_pictures_cannot_be_drawn_without_a_dataset(typed: Typed) -> None:
    code, out, err = typed("models", "diff", "mnist", "champion", "best", "--draw", "2")
    assert (code, out) == (2, "")
    assert "--data" in err


def test_diff_refuses_versions_that_saw_other_pictures(typed: Typed, model: Model) -> None:
    add(model, "other", 1, test_digest="u")
    code, out, err = typed("models", "diff", "mnist", "best", "other")
    assert (code, out) == (2, "")
    assert "evaluated on different test parts" in err
    assert "--data" in err


def test_promote_by_rule_promotes_only_what_meets_it(typed: Typed, model: Model) -> None:
    assert typed("models", "promote", "mnist", "good", "--rule", "likely=.97")[0] == 0
    code, out, err = typed("models", "promote", "mnist", "bad", "--rule", "better")
    assert (code, out) == (1, "")
    assert "no: better than the champion" in err
    assert model.version().version == "good"
    promotion, refusal = model.records()[-2:]
    assert promotion.evidence["only_challenger_right"] == 20
    assert (refusal.version, refusal.evidence["champion"]) == ("bad", "good")
    assert "kept good: no: better than" in " ".join(typed("models", "history", "mnist")[1].split())


def test_promote_rollback_and_alias_tell_what_they_did(typed: Typed, model: Model) -> None:
    assert (
        typed("models", "promote", "mnist", "best")[1]
        == "champion of mnist: best, instead of bad\n"
    )
    again = typed("models", "promote", "mnist", "best")[1]
    assert again == "champion of mnist: best, as before\n"
    assert typed("models", "alias", "mnist", "staging", "good")[1] == "staging of mnist: good\n"
    assert (
        typed("models", "rollback", "mnist", "--reason", "sevens")[1]
        == "champion of mnist: bad, instead of best\n"
    )
    assert model.version().version == "bad"
    lines = typed("models", "history", "mnist")[1].splitlines()
    assert [line.split()[2] for line in lines[::2]] == [
        "promotion",
        "promotion",
        "alias",
        "rollback",
    ]
    assert lines[-1].split() == ["instead", "of", "best:", "sevens"]


@pytest.mark.usefixtures("model")
def test_a_dry_run_moves_no_champion(typed: Typed) -> None:
    before = typed("models", "history", "mnist")[1]
    for words in (["promote", "mnist", "good"], ["rollback", "mnist", "--to", "good"]):
        said = typed("models", *words, "--dry-run")[1]
        assert said == "dry run: champion of mnist: good, instead of bad\n"
    assert typed("models", "history", "mnist")[1] == before


@pytest.mark.usefixtures("model")
def test_what_an_alias_points_at_can_be_promoted(typed: Typed) -> None:
    typed("models", "alias", "mnist", "staging", "good")
    assert (
        typed("models", "promote", "mnist", "staging")[1]
        == "champion of mnist: good, instead of bad\n"
    )


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("grace", ["-5", "nan", "1e30"])
def test_a_grace_that_is_no_time_is_refused(typed: Typed, grace: str) -> None:
    code, out, err = typed("models", "verify", "--grace", grace)
    assert (code, out) == (2, "")
    assert "0 <= grace" in err


@pytest.mark.usefixtures("model")
def test_export_writes_the_version(typed: Typed, tmp_path: Path) -> None:
    assert typed("models", "export", "mnist", "best", str(tmp_path / "out")) == (
        0,
        f"{tmp_path / 'out'}\n",
        "",
    )
    assert (tmp_path / "out/model.onnx").read_bytes() == b"graph best"


def test_verify_says_what_is_damaged_and_fails(typed: Typed, model: Model) -> None:
    code, out, _ = typed("models", "verify")
    assert (code, out) == (0, "1 model, 9 files, 2.0 kB: no findings\n")
    model.storage.put("models/mnist/versions/good/model.onnx", b"rotten")
    code, out, _ = typed("models", "verify", "mnist", "--json")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert finding["where"] == "models/mnist/versions/good/model.onnx"


def test_verify_tells_first_and_deletes_on_demand_only(typed: Typed, model: Model) -> None:
    words = ("models", "verify", "--quick", "--keep", "1", "--grace", "0")
    code, out, _ = typed(*words)
    assert (code, out.splitlines()[1].split()[:2]) == (0, ["retired", "version"])
    assert out.splitlines()[1].endswith("models/mnist/versions/good")
    assert "nothing deleted" in out
    assert len(model.versions) == 3
    told = json.loads(typed(*words, "--fix", "--json")[1])
    assert [item["version"] for item in told["garbage"]] == ["good"]
    assert [version.version for version in model.versions] == ["bad", "best"]


def test_verify_of_one_version_fixes_nothing(typed: Typed, model: Model) -> None:
    code, out, err = typed("models", "verify", "mnist", "good", "--fix")
    assert (code, out) == (2, "")
    assert "podium models verify mnist --fix" in err
    assert len(model.versions) == 3


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "mnist", "nobody"], 1, "versions: bad, good, best; aliases: champion"),
        (["show", "imagenet"], 1, "models there: mnist"),
        (
            ["promote", "mnist", "good", "--rule", "best"],
            2,
            "one of likely, better, not-worse",
        ),
        (["rollback", "mnist"], 1, "first champion"),
        (["list", "--storage", "ftp://x"], 2, "file://, s3:// or minio://"),
        (["list", "a/b"], 1, "models there: mnist"),
        (["list", "mnits"], 1, "there is no model mnits"),
        (["history", "mnits"], 1, "models there: mnist"),
        (["verify", "mnits"], 1, "models there: mnist"),
        (["verify", "mnits", "--fix"], 1, "models there: mnist"),
    ],
)
def test_a_mistake_is_two_lines_without_a_traceback(
    typed: Typed, words: list[str], code: int, said: str
) -> None:
    assert typed("models", *words)[:2] == (code, "")
    assert said in typed("models", *words)[2]


def test_storage_check_of_a_directory_passes(typed: Typed, tmp_path: Path) -> None:
    code, out, _ = typed("storage", "check", str(tmp_path), "--json")
    assert code == 0
    assert [check["name"] for check in json.loads(out)["checks"] if check["ok"]] == [
        "reach and list", "write and read", "conditional writes", "large object in parts", "clock",
        "unfinished uploads", "delete",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_storage_check_makes_a_directory_only_where_asked(typed: Typed, tmp_path: Path) -> None:
    place = tmp_path / "new" / "store"
    code, _, reported = typed("storage", "check", str(place))
    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert reported.splitlines() == [
        f"error: there is no directory {place}",
        f"hint: podium storage check {place} --create",
    ]
    assert typed("storage", "check", str(place), "--create")[0] == 0
    assert list(tmp_path.iterdir()) == [], "a directory comes with its first object"


def test_storage_check_of_the_default_leaves_no_directory_behind(
    typed: Typed, tmp_path: Path
) -> None:
    assert typed("storage", "check")[0] == 0
    assert not list(tmp_path.rglob("store"))


def test_storage_check_says_what_to_mend(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setenv("MINIO_ENDPOINT", f"http://127.0.0.1:{unused_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    code, out, _ = typed("storage", "check", "minio://models")
    assert code == 1
    assert "FAIL  reach and list" in out
    assert "nothing listens there" in out
    assert "hint: is the server up" in out


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_verify_makes_a_damaged_document_anew(
    typed: Typed, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    key = model.ledger.key
    model.storage.put(key, model.storage.get(key)[:-9])
    code, out, _ = typed("models", "list")
    assert (code, out.splitlines()[-1].split()) == (0, ["mnist", "0", "-", "-", "-", "-"])
    assert "model.json is damaged" in caplog.text
    code, out, err = typed("models", "promote", "mnist", "best")
    assert (code, out) == (1, "")
    assert "podium models verify mnist --fix" in err
    code, out, _ = typed("models", "verify")
    assert (code, out.splitlines()[0]) == (1, key)
    code, out, _ = typed("models", "verify", "--fix")
    assert (code, out.splitlines()[0]) == (0, key)
    assert "its aliases are gone" in out
    assert typed("models", "verify")[0] == 0
    assert typed("models", "promote", "mnist", "best")[:2] == (0, "champion of mnist: best\n")


def test_promoting_what_lacks_a_file_fails(typed: Typed, model: Model) -> None:
    model.storage.delete("models/mnist/versions/best/model.onnx")
    code, out, err = typed("models", "promote", "mnist", "best")
    assert (code, out) == (1, "")
    assert "best/model.onnx" in err
    assert model.version().version == "bad"


class Malicious:
    """Runs something where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (
            "import pathlib, os; pathlib.Path(os.environ['PODIUM_HOME'] + '-hacked').touch()",
        )


def test_a_pickle_among_the_predictions_is_never_loaded(
    typed: Typed, model: Model, tmp_path: Path
) -> None:
    predicted = npy(np.array([Malicious()], dtype=object))
    metadata = {"dataset": {"digest": "d" * 64, "test_digest": "t"}}
    files: dict[str, Path | bytes] = {
        "model.onnx": b"m",
        "predictions.npy": predicted,
        "target.npy": predicted,
    }
    model.upload(files, metadata, "evil")
    for words in (
        ["promote", "mnist", "evil", "--rule", "better"],
        ["diff", "mnist", "evil", "best"],
    ):
        code, out, err = typed("models", *words)
        assert (code, out) == (1, "")
        assert "is not an array" in err
    assert not (tmp_path / "podium-home-hacked").exists()
    np.load(io.BytesIO(predicted), allow_pickle=True)
    assert (tmp_path / "podium-home-hacked").exists(), "the pickle does what it says"


@pytest.fixture
def houses(model: Model) -> Model:
    """Two versions of a regression: the second has smaller errors, all but one."""
    houses = Registry(model.storage).model("houses")
    random = np.random.default_rng(0)
    prices = random.normal(300, 50, 120)
    noise = random.normal(size=120)
    for version, spread in (("rough", 40.0), ("fine", 20.0)):
        predicted = prices + noise * spread
        predicted[7] += 200 if version == "fine" else 0
        rmse = float(np.sqrt(np.square(predicted - prices).mean()))
        houses.upload(
            {"model.onnx": b"graph", "predictions.npy": npy(predicted), "target.npy": npy(prices)},
            {"run_id": version, "metric": {"name": "rmse", "maximize": False}, "metrics": {"rmse": rmse},
             "dataset": {"digest": "h" * 64, "test_digest": "h", "kind": "regression"}},
        )  # fmt: skip
    houses.set_champion("rough", {"reason": "the first"}, expect=None)
    return houses


@pytest.mark.usefixtures("houses")
def test_lists_show_each_models_own_metric(typed: Typed) -> None:
    listed = {row["name"]: row for row in json.loads(typed("models", "list", "--json")[1])}
    assert [listed[name]["metric"] for name in ("houses", "mnist")] == ["rmse", "accuracy"]
    assert listed["houses"]["value"] == pytest.approx(40, rel=0.2)
    lines = typed("models", "list", "houses")[1].splitlines()
    assert lines[0].split()[:3] == ["VERSION", "AT", "UPLOAD"]
    assert [line.split()[2] for line in lines[1:]] == ["rmse", "rmse"]


@pytest.mark.usefixtures("houses")
def test_diff_of_numbers_lists_the_items_that_moved_most(typed: Typed) -> None:
    code, out, _ = typed("models", "diff", "houses", "champion", "fine")
    assert code == 0
    assert "95 % interval of the change -" in out
    assert "rmse" in out
    assert "mae" in out
    worse = out.split("larger errors in second")[1].splitlines()
    assert worse[2].split()[0] == "#7"
    found = json.loads(
        typed("models", "diff", "houses", "champion", "fine", "--metric", "mae", "--json")[1]
    )
    assert found["metric"] == {"name": "mae", "maximize": False}
    assert found["metrics"]["mae"] == {"first": found["champion_value"], "second": found["value"]}
    assert found["interval"][0] < found["difference"] < found["interval"][1]
    assert [change["item"] for change in found["lost"]] == [7]


def test_promotion_of_numbers_follows_their_metric(typed: Typed, houses: Model) -> None:
    assert typed("models", "promote", "houses", "fine", "--rule", "likely")[0] == 0
    code, _, err = typed("models", "promote", "houses", "rough", "--rule", "better,metric=r2")
    assert code == 1
    assert "no: better than the champion: r2 0." in err
    assert "rmse" in typed("models", "history", "houses")[1]


@pytest.mark.usefixtures("model")
def test_a_metric_of_the_other_kind_is_refused_by_diff(typed: Typed) -> None:
    code, out, err = typed("models", "diff", "mnist", "bad", "best", "--metric", "rmse")
    assert (code, out) == (2, "")
    assert "rmse measures regression, but the dataset is classification" in err
    assert (
        "needs probabilities"
        in typed("models", "diff", "mnist", "bad", "best", "--metric", "log_loss")[2]
    )


def test_a_function_named_by_a_version_is_not_imported(typed: Typed, model: Model) -> None:
    files: dict[str, Path | bytes] = {
        "model.onnx": b"m",
        "predictions.npy": npy(LABELS),
        "target.npy": npy(LABELS),
    }
    metadata = {
        "metric": {"name": "os:system", "maximize": True},
        "dataset": {"digest": "d" * 64, "test_digest": "t"},
    }
    model.upload(files, metadata, "evil")
    for words in (
        ["promote", "mnist", "evil", "--rule", "better"],
        ["diff", "mnist", "best", "evil"],
    ):
        code, out, err = typed("models", *words)
        assert (code, out) == (2, "")
        assert "evil was chosen by os:system, which podium imports only if you ask for it" in err
    assert typed("models", "diff", "mnist", "best", "evil", "--metric", "accuracy")[0] == 0
