"""Pieces of an Experiment as they should be, shown where one is missing."""

OBJECTIVE = "objective: {type: maximize, objectiveMetricName: accuracy}"
SPACE = '- {name: lr, parameterType: double, feasibleSpace: {min: "0.1", max: "1"}}'
TEMPLATE = (
    "a trialTemplate has a primaryContainerName, trialParameters like {name: lr, reference: lr}, and as trialSpec a "
    "Job, PyTorchJob or TrainJob with apiVersion and kind that says ${trialParameters.lr}"
)
PODS = (
    "containers stand in spec.template.spec of a Job, in spec.pytorchReplicaSpecs.Master.template.spec of a "
    "PyTorchJob, in spec.trainer of a TrainJob"
)
