"""The pipeline with a sweep: prepare, sweep, train, evaluate, upload, promote."""

from kfp import dsl

from podium.components.evaluate import evaluate
from podium.components.images import TRAINER_IMAGE
from podium.components.katib_sweep import katib_sweep
from podium.components.train_distributed import train_distributed
from podium.pipelines.tasks import add, prepare, upload_and_promote


@dsl.pipeline(name="tune-and-promote")
def tune_and_promote(
    dataset: str = "mnist",
    source: str = "",
    target: str = "",
    data_options: dict = {},  # noqa: B006
    limit: int = 0,
    experiment: str = "auto",
    max_trials: int = 4,
    parallel_trials: int = 2,
    confirm: str = "",
    folds: int = -1,
    ensemble: bool = False,
    trial_epochs: int = -1,
    trial_workers: int = 0,
    network: str = "",
    weights: str = "",
    epochs: int = -1,
    workers: int = -1,
    gpus_per_worker: int = 0,
    seed: int = 1,
    model_name: str = "",
    metric: str = "",
    rule: str = "likely",
    tracking: str = "",
    storage: str = "",
    cluster: str = "",
    trainer_image: str = "",
    pods: dict = {},  # noqa: B006
    code: str = "",
    install_requirements: bool = False,
    predict: list = [],  # noqa: B006
    job_kind: str = "auto",
) -> None:
    """Find the best hyperparameters, train with them, promote the better model.

    1. Look at the data: are they those of the last run?
    2. Prepare them, checksummed, unless they are.
    3. Sweep hyperparameters; every trial keeps its own model.
    4. Train the same way with the best hyperparameters, distributed.
    5. Choose the better of both by validation and open the test part for it alone.
    6. Upload it as a version of the model.
    7. Promote it if it beats the champion.

    Args:
        dataset: mnist, fashion-mnist, images:DIRECTORY, table:FILE, text:FILE, npz:FILE, or a prepared dataset's URI.
        source: A directory or URI that holds the idx files of mnist; empty for the known mirrors.
        target: Name of the target column of a table or of text.
        data_options: Options of the source, as in {"group": "patient", "test": 0.2}.
        limit: At most this many items for training and validation together; 0 takes all.
        experiment: A bundled Katib Experiment, a YAML file, or its text; auto: tables for tables, else random.
        max_trials: Trials in all.
        parallel_trials: Trials at a time.
        confirm: Reruns of the best trials as TRIALSxSEEDS, as in 3x3; empty for none.
        folds: Folds of the cross-validation of each trial; -1: 5 for small tables and texts of auto; 0: none.
        ensemble: Add an ensemble of the trials that do best together on the validation part as a candidate.
        trial_epochs: Epochs of a trial of podium's trainer; -1: one where auto has pictures or arrays; 0: the YAML's.
        trial_workers: Workers of each trial, besides its master; 0: none, or the Experiment's for your own trainer.
        network: Network of podium's trainer, or trees; empty: fast for pictures, mlp for arrays, else the Experiment's.
        weights: File or URI of weights that podium's trainer starts from, such as torchvision's; empty for new ones.
        epochs: Epochs of the distributed training; -1: the best trial's, or the network's usual if more; 0: its own.
        workers: Workers of the training, besides its master; -1: one, none for tables and text; yours: as in trials.
        gpus_per_worker: GPUs of the master and of each worker, of trials too; 0 trains on the CPU.
        seed: Seed of search and training; 0 leaves it to the Experiment. data_options split_seed is that of the split.
        model_name: Name of the model in the registry; empty for the dataset's.
        metric: As in rmse, max:module:function, threshold:f1_macro; empty for the Experiment's, else accuracy or rmse.
        rule: Rule by which a challenger is promoted.
        tracking: Address of an MLflow server that logs the run and the version; empty for none.
        storage: URL under which models are kept; empty for the bucket of the run's artifacts.
        cluster: URL of the cluster that runs trials and training; empty for the one the steps run on.
        trainer_image: Image of trials, master and workers; empty for the Experiment's own.
        pods: Settings of every launched pod, as in {"memory": "4Gi", "node_selector": {"pool": "gpu"}}.
        code: Directory with your own code, packed and brought into every pod; empty for the image's.
        install_requirements: Install the code's requirements.txt in each pod first.
        predict: Command that predicts with what your trainer leaves, like ["python", "predict.py"]; its files go along.
        job_kind: Kind of the jobs of trials and training: pytorchjob, trainjob, job, or auto for what the cluster has.
    """
    values = locals()
    data, test = prepare(values)
    swept = add(katib_sweep, "Sweep hyperparameters", values, data=data, podium_image=TRAINER_IMAGE)
    trained = add(
        train_distributed,
        "Train with the best hyperparameters",
        values,
        data=data,
        recipe=swept.outputs["recipe"],
        podium_image=TRAINER_IMAGE,
    )
    evaluated = add(
        evaluate,
        "Evaluate the better candidate",
        values,
        data=data,
        test=test,
        best_model=swept.outputs["best_model"],
        ensemble_model=swept.outputs["ensemble_model"],
        trials=swept.outputs["trials"],
        trained=trained.outputs["model"],
    )
    upload_and_promote(values, test, evaluated)
