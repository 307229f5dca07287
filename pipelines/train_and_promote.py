"""The pipeline without a sweep: prepare, train, evaluate, upload, promote."""

from kfp import dsl

from podium.components.evaluate import evaluate
from podium.components.images import TRAINER_IMAGE
from podium.components.train_distributed import train_distributed
from podium.pipelines.tasks import add, prepare, upload_and_promote


@dsl.pipeline(name="train-and-promote")
def train_and_promote(
    dataset: str = "mnist",
    source: str = "",
    target: str = "",
    data_options: dict = {},  # noqa: B006
    limit: int = 0,
    command: list = [],  # noqa: B006
    hyperparameters: dict = {},  # noqa: B006  KFP takes the default from the signature
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
    """Train with given hyperparameters and promote the model if it is better.

    1. Look at the data: are they those of the last run?
    2. Prepare them, checksummed, unless they are.
    3. Train distributed with the given hyperparameters.
    4. Evaluate it on the test part.
    5. Upload it as a version of the model.
    6. Promote it if it beats the champion.

    Args:
        dataset: mnist, fashion-mnist, images:DIRECTORY, table:FILE, text:FILE, npz:FILE, or a prepared dataset's URI.
        source: A directory or URI that holds the idx files of mnist; empty for the known mirrors.
        target: Name of the target column of a table or of text.
        data_options: Options of the source, as in {"group": "patient", "test": 0.2}.
        limit: At most this many items for training and validation together; 0 takes all.
        command: Command of a trainer of your own, as in ["python", "train.py"]; empty for podium's.
        hyperparameters: Flags of the command without the dashes and their values, as in {"lr": 0.7}.
        network: Network of podium's trainer; empty is fast for pictures, else mlp, unless hyperparameters name one.
        weights: File or URI of weights that podium's trainer starts from, such as torchvision's; empty for new ones.
        epochs: Epochs of podium's trainer; -1 or 0: those of the hyperparameters, else the network's usual number.
        workers: Workers besides the master; -1: one, or none for tables, text and a command of your own.
        gpus_per_worker: GPUs of the master and of each worker; 0 trains on the CPU.
        seed: Seed of the training; data_options split_seed is that of the split.
        model_name: Name of the model in the registry; empty for the dataset's.
        metric: As in rmse, max:package.module:function, threshold:f1_macro; empty for accuracy or rmse.
        rule: Rule by which a challenger is promoted.
        tracking: Address of an MLflow server that logs the run and the version; empty for none.
        storage: URL under which models are kept; empty for the bucket of the run's artifacts.
        cluster: URL of the cluster that runs the training; empty for the one the steps run on.
        trainer_image: Image of master and workers; empty for podium's trainer image.
        pods: Settings of every launched pod, as in {"memory": "4Gi", "node_selector": {"pool": "gpu"}}.
        code: Directory with your own code, packed and brought into every pod; empty for the image's.
        install_requirements: Install the code's requirements.txt in each pod first.
        predict: Command that predicts with what your trainer leaves, like ["python", "predict.py"]; its files go along.
        job_kind: Kind of the training's job: pytorchjob, trainjob, job, or auto for what the cluster has.
    """
    parameters = locals()
    data, test = prepare(parameters)
    trained = add(
        train_distributed, "Train the model", parameters, data=data, podium_image=TRAINER_IMAGE
    )
    evaluated = add(
        evaluate,
        "Evaluate the model",
        parameters,
        data=data,
        test=test,
        trained=trained.outputs["model"],
    )
    upload_and_promote(parameters, test, evaluated)
