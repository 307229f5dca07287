"""What katib-launcher and pytorch-launcher did, as two steps: podium run examples/launchers.py"""

from pathlib import Path

from kfp import dsl

from podium.components.images import STEPS_IMAGE

EXAMPLES = Path(__file__).parent


@dsl.component(base_image=STEPS_IMAGE, install_kfp_package=False)
def launch_experiment(experiment: str, cluster: str = "") -> dict:
    """Run an Experiment to its end and return the best parameters, as katib-launcher did."""
    import podium

    return dict(podium.sweep(experiment, cluster=cluster or None).best.parameters)


@dsl.component(base_image=STEPS_IMAGE, install_kfp_package=False)
def launch_pytorchjob(job: str, flags: dict, cluster: str = "") -> str:
    """Run a PyTorchJob to its end, as pytorch-launcher did; return the last line of rank 0."""
    import yaml

    import podium

    manifest = yaml.safe_load(job)
    for replica in manifest["spec"]["pytorchReplicaSpecs"].values():
        command = replica["template"]["spec"]["containers"][0]["command"]
        command += [f"--{name}={value}" for name, value in flags.items()]
    return str(podium.run_job(manifest, cluster=cluster or None).logs().splitlines()[-1])


@dsl.pipeline(name="launchers")
def launchers(cluster: str = "") -> str:
    """Search, then train on two processes with what was found.

    Args:
        cluster: kubernetes://NAMESPACE; empty for this machine.
    """
    experiment, job = (
        (EXAMPLES / f"spirals-{kind}.yaml").read_text() for kind in ("experiment", "pytorchjob")
    )
    found = launch_experiment(experiment=experiment, cluster=cluster)
    return launch_pytorchjob(job=job, flags=found.output, cluster=cluster).output
