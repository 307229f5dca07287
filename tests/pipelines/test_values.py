"""What pipelines demand of their values, told before anything runs."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from podium.errors import InvalidInput, PodiumError
from podium.kfp.compiling import compile_pipeline
from podium.kfp.parameters import Parameters
from podium.kfp.values import check_values
from podium.manifests.experiment import load as load_experiment
from podium.pipelines import load
from podium.runner.checks import check_here
from podium.training import preparation

LATER = [
    ("train_and_promote", "metric=threshold:roc_auc", "roc_auc does not follow from decided"),
    ("tune_and_promote", "rule=beter", "one of likely, better, not-worse"),
    (
        "tune_and_promote",
        "rule=better,trial.ms<=20",
        "the rule has trial.ms<=20, but no trial will report ms",
    ),
    ("tune_and_promote", "rule=trial.ms<=20", r"additionalMetricNames: .ms. in spec.objective"),
    (
        "train_and_promote",
        "rule=trial.ms<=20",
        "leave it out; it is for podium run tune_and_promote",
    ),
    (
        "tune_and_promote",
        "rule=trial.ms=20",
        "a constraint is a metric, <=, <, >= or >, and a number",
    ),
    ("tune_and_promote", "metric=acuracy", "did you mean accuracy"),
    (
        "tune_and_promote",
        "metric=rmse",
        "rmse measures regression, but the dataset is classification",
    ),
    ("train_and_promote", "metric=shop:revenue", "write max:shop:revenue or min:shop:revenue"),
    ("train_and_promote", "metric=min:f1_macro", "of f1_macro more is better"),
    ("train_and_promote", "rule=minimum=98", "accuracy is a share, not a percentage"),
    ("train_and_promote", "metric=log_loss rule=max_class_drop=0.1", "but the metric is log_loss"),
    ("train_and_promote", "rule=slice=city", "slice=city, but mnist has no columns"),
    ("train_and_promote", "rule=likely=97", "0.5 <= likely < 1"),
    ("tune_and_promote", "model_name=a/b", "model name"),
    ("tune_and_promote", "seed=-1", "0 <= seed < 2\\*\\*32"),
    ("tune_and_promote", "max_trials=0", "max_trials >= 1"),
    ("tune_and_promote", "parallel_trials=0", "parallel_trials >= 1"),
    ("tune_and_promote", "trial_epochs=-2", "trial_epochs >= -1"),
    ("train_and_promote", "epochs=-2", "epochs >= -1"),
    ("train_and_promote", "workers=-2", "workers >= -1"),
    ("train_and_promote", "gpus_per_worker=-1", "gpus_per_worker >= 0"),
    (
        "train_and_promote",
        'command=["python"] network=fast',
        "network=fast is for podium's trainer",
    ),
    (
        "train_and_promote",
        'command=["sh"] hyperparameters={"lr":1}',
        "a shell takes no hyperparameters",
    ),
    ("train_and_promote", 'pods={"gpu":1}', "GPUs are gpus_per_worker"),
    ("train_and_promote", "cluster=cloud://nine", "use kubernetes://namespace or local:///dir"),
    ("tune_and_promote", "limit=10", "limit >= 20"),
    ("train_and_promote", "limit=-1 source=/anywhere", "limit >= 20"),
    ("train_and_promote", "dataset=mnits", "did you mean mnist"),
    ("tune_and_promote", "experiment=rndom", "did you mean random"),
    ("tune_and_promote", "experiment=random-job trial_workers=1", "a Job has no workers"),
    ("tune_and_promote", "job_kind=jop", "job_kind cannot be .jop."),
    ("tune_and_promote", "job_kind=job trial_workers=1 workers=0", "a Job has no workers"),
    ("train_and_promote", "job_kind=job workers=1", "a Job has no workers"),
    (
        "tune_and_promote",
        'job_kind=trainjob pods={"priority_class":"high"}',
        "cannot set a pod's priorityClassName",
    ),
    ("tune_and_promote", "experiment=grid max_trials=10", "set maxTrialCount to 9 or less"),
    (
        "tune_and_promote",
        "experiment=tables network=fast",
        "with model=fast the Experiment searches nothing",
    ),
    ("tune_and_promote", "experiment=tables network=fast", "network=trees"),
]
HERE = [
    ("tune_and_promote", "network=bset", "no network 'bset' in podium"),
    ("tune_and_promote", "network=bset", "did you mean best"),
    ("tune_and_promote", "experiment=tables network=tress", "did you mean trees"),
    ("train_and_promote", 'hyperparameters={"lr":0}', "--lr > 0"),
    ("train_and_promote", 'hyperparameters={"rate":1}', "unrecognized arguments: --rate=1"),
    (
        "train_and_promote",
        "storage=ftp://models",
        "a storage URL starts with file://, s3:// or minio://",
    ),
    ("train_and_promote", "cluster=local://here", "local:///absolute/dir"),
]


def values_of(pipeline: str, words: str, home: Path) -> dict[str, Any]:
    known = Parameters.of(load(pipeline).pipeline_func)
    places = {"storage": str(home / "store"), "cluster": f"local://{home / 'cluster'}"}
    return {
        **{parameter.name: parameter.default for parameter in known},
        **places,
        **known.read(words.split(" ")),
    }


@pytest.mark.parametrize(("pipeline", "words", "expected"), LATER + HERE)
def test_bad_values_are_refused_before_a_run(
    tmp_path: Path, pipeline: str, words: str, expected: str
) -> None:
    with pytest.raises(PodiumError, match=expected) as caught:
        check_here(values_of(pipeline, words, tmp_path / "home"))
    assert type(caught.value) is not PodiumError
    assert not (tmp_path / "home").exists()


def test_what_katib_alone_runs_is_refused_before_a_run(tmp_path: Path) -> None:
    experiment = load_experiment("random-job")
    experiment["spec"]["trialTemplate"]["successCondition"] = "status.succeeded > 0"
    values = values_of("tune_and_promote", "limit=143", tmp_path)
    values["experiment"] = json.dumps(experiment)
    check_values(values)  # what a cluster runs is compiled
    with pytest.raises(InvalidInput, match="podium understands conditions of field names"):
        check_here(values)


@pytest.mark.parametrize(("pipeline", "words", "expected"), LATER)
def test_bad_values_are_refused_before_compiling(pipeline: str, words: str, expected: str) -> None:
    with pytest.raises(PodiumError, match=expected):
        compile_pipeline(pipeline, words.split(" "))


def test_an_image_of_your_own_may_have_other_networks() -> None:
    assert "resnet" in compile_pipeline(
        "train_and_promote", ["network=resnet"], trainer_image="example/trainer:1"
    )


@pytest.mark.parametrize(
    "words",
    [
        "experiment=random",
        "limit=143 experiment=random-job",
        "dataset=./own experiment=medianstop max_trials=12",
    ],
)
def test_values_that_every_step_takes_pass_and_leave_nothing(
    tmp_path: Path, words: str, tiny_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own").symlink_to(tiny_dataset)
    check_here(values_of("tune_and_promote", words, tmp_path / "home"))
    assert not (tmp_path / "home").exists()


TABLE = "train_and_promote", "dataset=table:churn.csv"
DATA = [
    (*TABLE, "", "no target of churn.csv is named", "target=NAME"),
    (*TABLE, "target=lefft", "has no column 'lefft'", "did you mean left?"),
    (*TABLE, 'target=left data_options={"drop":["idd"]}', "drop: churn.csv has no column 'idd'", "did you mean id?"),
    (*TABLE, 'target=left data_options={"group":"ag"}', "has no column 'ag', which is the group", "mean age?"),
    (*TABLE, 'target=left data_options={"resize":[8,8]}', "table has no option resize", ""),
    (*TABLE, "target=left metric=rmse", "rmse measures regression", "one of accuracy"),
    (*TABLE, 'target=age metric=accuracy data_options={"kind":"regression"}', "accuracy measures classification", "one of rmse"),
    (*TABLE, "target=id", "has 600 different whole numbers", """data_options='{"kind": "regression"}'"""),
    (*TABLE, "target=left network=mlp rule=slice=plam", "no column 'plam', which is a slice of the rule", "mean plan?"),
    (*TABLE, "target=left network=fast", "network=fast learns from pictures", "network=trees"),
    (*TABLE, "target=left network=mlp weights=/none.pt", "there is no file /none.pt", "name a file"),
    ("train_and_promote", "dataset=text:words.csv", "target=label", "no column 'text'", "its columns"),
    ("train_and_promote", "dataset=npz:a.npz", "target=z", "a.npz has no array 'z'", "one of x, y"),
    ("tune_and_promote", "dataset=./churn.csv", "target=left", "is not a prepared dataset", "table:./churn.csv"),
    ("tune_and_promote", "dataset=./pictures", "", "is not a prepared dataset", "images:./pictures"),
    ("train_and_promote", "dataset=images:pictures", "", "pictures has 0 folders of pictures", "into a folder"),
]  # fmt: skip


def write_data() -> None:
    """Write a table, sentences, arrays and an empty folder into the working directory."""
    rows = [
        f"{at},{20 + at * 7 % 60},{'abc'[at % 3]},{'yes' if at % 2 else 'no'}" for at in range(600)
    ]
    Path("churn.csv").write_text("\n".join(["id,age,plan,left", *rows]))
    Path("words.csv").write_text(
        "sentence,other,label\n" + "".join(f"word {at},x,{at % 2}\n" for at in range(50))
    )
    np.savez("a.npz", x=np.ones((60, 3), np.float32), y=np.arange(60) % 2)
    Path("pictures").mkdir()


@pytest.mark.parametrize(("pipeline", "dataset", "words", "expected", "hint"), DATA)
def test_data_that_do_not_fit_are_refused_before_a_run(
    tmp_path: Path,
    pipeline: str,
    dataset: str,
    words: str,
    expected: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_data()
    with pytest.raises(PodiumError, match=re.escape(expected)) as caught:
        check_here(values_of(pipeline, f"{dataset} {words}".strip(), tmp_path / "home"))
    assert hint in (caught.value.hint or "")
    assert not (tmp_path / "home").exists()


def test_columns_of_a_large_table_are_known_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "SMALL", 100)
    monkeypatch.chdir(tmp_path)
    write_data()
    with pytest.raises(PodiumError, match="has no column 'lefft'"):
        check_here(
            values_of(
                "train_and_promote", "dataset=table:churn.csv target=lefft", tmp_path / "home"
            )
        )
    words = "dataset=table:churn.csv target=left network=mlp rule=slice=plan"
    check_here(values_of("train_and_promote", words, tmp_path / "home"))


def test_a_column_that_no_table_takes_can_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"a": list(range(200)), "list": [[1, 2]] * 200, "y": [at % 2 for at in range(200)]}
    parquet.write_table(pa.table(columns), "lists.parquet")
    words = "dataset=table:lists.parquet target=y network=mlp"
    with pytest.raises(PodiumError, match="here they are list") as caught:
        check_here(values_of("train_and_promote", words, tmp_path / "home"))
    (fix,) = shlex.split((caught.value.hint or "").partition(": ")[2])
    check_here(values_of("train_and_promote", f"{words} {fix.replace(' ', '')}", tmp_path / "home"))


def test_a_missing_script_is_refused_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = 'command=["python","train.py"]'
    with pytest.raises(
        PodiumError, match=r"a script of the local environment, not train\.py"
    ) as caught:
        check_here(values_of("train_and_promote", words, tmp_path / "home"))
    assert (caught.value.hint or "").startswith("start podium where it lies")
    with pytest.raises(PodiumError, match="a program of the local environment, not pyton"):
        check_here(
            values_of("train_and_promote", words.replace("python", "pyton"), tmp_path / "home")
        )
    Path("train.py").touch()
    check_here(values_of("train_and_promote", words, tmp_path / "home"))
    assert not (tmp_path / "home").exists()


def test_a_package_of_another_name_is_installed_by_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip install hydra brings a Bloom filter."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import hydra\nfrom sklearn_of_nobody import tree\n")
    values = values_of("train_and_promote", 'command=["python","train.py"]', tmp_path / "home")
    with pytest.raises(PodiumError) as caught:
        check_here(values)
    assert str(caught.value.hint).startswith("pip install hydra-core sklearn_of_nobody, or")


@pytest.mark.parametrize("beside", [True, False], ids=["a module beside it", "the script itself"])
def test_a_script_without_its_packages_is_refused_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    imports = "import json, no_such_torch.nn\nfrom sklearn_of_nobody import tree\n"
    Path("train.py").write_text("import helper\n" if beside else imports)
    Path("helper.py").write_text(imports)
    values = values_of("train_and_promote", 'command=["python","train.py"]', tmp_path / "home")
    packed = {**values, "code": f"file://{tmp_path}/store/code/{'0' * 64}.tar.gz"}
    for given, code in ((values, ""), (packed, str(tmp_path))):
        with pytest.raises(PodiumError, match="imports no_such_torch, sklearn_of_nobody") as caught:
            check_here(given, code)
        assert caught.value.hint == (
            "pip install no_such_torch sklearn_of_nobody, "
            "or put a module of your own beside train.py"
        )
    check_here({**packed, "install_requirements": True}, str(tmp_path))
    Path("train.py").write_text("import helper\n")
    for first in (
        "import sys\nsys.path.append('lib')\n",
        "import site\nsite.addsitedir('lib')\n",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'x'])\n",
    ):
        Path("helper.py").write_text(first + imports)
        check_here(values)


def test_a_rules_key_is_needed_where_the_steps_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_PUBLIC_KEY", raising=False)
    check_values({"rule": "better,signed"})
    with pytest.raises(InvalidInput, match="PODIUM_PUBLIC_KEY"):
        check_values({"rule": "better,signed"}, here=True)
