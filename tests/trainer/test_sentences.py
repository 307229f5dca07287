"""``--model linear`` of sentences: TF-IDF of words, or of characters, in a row."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import podium
from podium.data import artifact
from podium.scoring import OnnxModel
from podium.trainer.__main__ import main

ENGLISH = (["the soup was", "I found the wine", "the waiter is"], ["good", "warm"], ["bad", "cold"])
CHINESE = (["这家的汤", "服务员", "今天的酒"], ["很好", "不错"], ["太差", "很冷"])


def sentences(folder: Path, parts: tuple[list[str], list[str], list[str]], gap: str) -> str:
    random = np.random.default_rng(0)
    begin, good, bad = parts
    with (folder / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "opinion"])
        for at in range(240):
            words = [random.choice(begin), random.choice(bad if at % 2 else good), f"{at}"]
            rows.writerow([gap.join(words), ("yes", "no")[at % 2]])
    where = f"text:{folder}/rows.csv"
    return str(podium.prepare_data(where, folder / "data", target="opinion"))


@pytest.mark.parametrize(("parts", "gap"), [(ENGLISH, " "), (CHINESE, "")])
def test_sentences_of_any_script_are_learned(
    tmp_path: Path, parts: tuple[list[str], list[str], list[str]], gap: str
) -> None:
    data, output = sentences(tmp_path, parts, gap), str(tmp_path / "model")
    assert main(["--data", data, "--output", output, "--model", "linear"]) == 0
    assert json.loads(Path(output, "metrics.json").read_text())["accuracy"] > 0.95


def test_the_graph_gives_the_figures_of_the_library(tmp_path: Path) -> None:
    data, output = sentences(tmp_path, ENGLISH, " "), str(tmp_path / "model")
    assert main(["--data", data, "--output", output, "--model", "linear"]) == 0
    train, test = (artifact.load(data, part) for part in ("train", "validation"))

    def text(split: artifact.Split) -> list[str]:
        return [" ".join(str(at) for at in row if at > 1) for row in split.inputs["tokens"]]

    terms = TfidfVectorizer(ngram_range=(1, 3), min_df=2, sublinear_tf=True, token_pattern=r"\d+")
    model = LogisticRegression(C=1 / (0.01 * len(train)), max_iter=1000)
    model.fit(10 * terms.fit_transform(text(train)), train.target)
    expected = model.predict_proba(10 * terms.transform(text(test)))
    found = OnnxModel(Path(output, "model.onnx")).predict(test.inputs, classes=2)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_network_for_sentences_needs_a_trainer_of_ones_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = sentences(tmp_path, ENGLISH, " ")
    assert main(["--data", data, "--model", "mlp"]) == 2
    assert "takes" in capfd.readouterr().err
