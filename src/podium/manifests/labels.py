"""Every label and annotation that podium reads or writes, each with its owner's source."""

# Katib (katib 0.19: pkg/controller.v1beta1/consts)
EXPERIMENT = "katib.kubeflow.org/experiment"
"""Experiment of a trial, on the Trial and its pods; of a job of podium's own engine too."""

TRIAL = "katib.kubeflow.org/trial"
"""Trial of a job and its pods."""

SUGGESTION = "katib.kubeflow.org/suggestion"
"""Experiment whose algorithm a pod of Katib runs."""

METRICS_INJECTION = "katib.kubeflow.org/metrics-collector-injection"

PBT_GENERATION = "pbt.suggestion.katib.kubeflow.org/generation"
PBT_PARENT = "pbt.suggestion.katib.kubeflow.org/parent"

# Training operator (kubeflow/trainer release-1.9: pkg/apis/kubeflow.org/v1/common_types.go)
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
MPI_ROLE = "mpi-job-role"
"""Label of an MPIJob's launcher in early operators, which Katib's example still asks for."""

REPLICA_INDEX = "training.kubeflow.org/replica-index"

# Trainer and JobSet (kubeflow/trainer v2.3.0: pkg/apis/trainer/v1alpha1; jobset v0.12.0:
# api/jobset/v1alpha2)
TRAINER_API = "trainer.kubeflow.org"
"""API group of TrainJobs and their runtimes."""

TRAINJOB_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
"""Values of a TrainJob's managedBy; the first is Trainer itself."""

PATCH_MANAGER = "podium.dev/podium"
"""Manager of podium's own entry in a TrainJob's runtimePatches."""

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
"""Name of the TrainJob, on each of its pods."""

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
"""``node``, or the name of an initializer, on each pod of a TrainJob."""

# Kubernetes (pkg/apis/batch/types.go)
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Label and annotation: index of a pod of an Indexed Job."""

# Others
KFP_RUN = "pipeline/runid"
"""Kubeflow Pipelines: run id of a step's pod."""

ARGO_NODE = "workflows.argoproj.io/node-name"
"""Argo: where in the workflow a pod belongs, ``<workflow>.root.<task>.executor`` (annotation)."""

ARGO_PHASE = "workflows.argoproj.io/phase"
"""Argo: ``status.phase`` of a Workflow, as a label of it."""

MANAGED_BY = "app.kubernetes.io/managed-by"
NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"

# KServe (kserve v0.20.0: pkg/constants/constants.go)
INFERENCE_SERVICE = "serving.kserve.io/inferenceservice"
"""Name of the InferenceService, on each of its pods."""

KSERVE_MODE, KSERVE_AUTOSCALER = (
    "serving.kserve.io/deploymentMode",
    "serving.kserve.io/autoscalerClass",
)
"""Annotations of an InferenceService."""

# Kueue (kueue 0.15: pkg/controller/constants/constants.go)
QUEUE = "kueue.x-k8s.io/queue-name"
"""Local queue of a job."""

QUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
"""WorkloadPriorityClass of a job: its place in the queue, without meaning for its pods."""

JOB_UID = "kueue.x-k8s.io/job-uid"
"""Uid of the job, on Kueue's own record of it."""

ISTIO_INJECT = "sidecar.istio.io/inject"
"""``false`` keeps Istio's proxy out of a pod; current Istio reads the label only
(kubeflow/katib#2527)."""

# podium's own
RUN = "podium/run-id"
"""The run that launched an object; reap finds the objects of runs that are over by it."""

RUN_NAMESPACE = "podium.dev/run-namespace"
"""Annotation of objects that a run's step launched: namespace of the run's Workflow."""

TRIAL_UID = "podium.dev/trial-uid"
"""Annotation of a trial's job: uid of the trial, by which the next engine recognizes it."""

LAUNCHED = "podium.dev/launched"
"""Set on every pod that podium launches on a real cluster; the network policy in deploy/ selects
them by it."""

IGNORED_FIELDS = "podium.dev/ignored-fields"
"""Fields of a manifest that mean nothing on one machine."""

CPU_SHARE = "podium.dev/cpu-share"
"""Number of this machine's cores that a job may use."""

READINGS = "podium.dev/readings"
"""Annotation of a Trial: the first values of its objective, by which a stopping rule judges later
trials."""

KATIB_FINALIZERS = ("clean-metrics-in-db", "update-prometheus-metrics")
"""Finalizers that Katib's controller sets on Trials and Experiments: without the controller their
deletion would hang forever (observed)."""

POOL_STATE = "podium.dev/pool-state"
"""Annotation of an Experiment with a pool: URL below which its trials are kept."""

OPTIMIZATION_JOB = "podium.dev/optimization-job"
"""Annotation of an Experiment that was an OptimizationJob: JSON of that."""

SWEEP = "podium.dev/sweep"
"""Annotation of an Experiment and its trials: YAML of podium's sweep options."""

PUSHES = "podium.dev/pushes"
"""Annotation of an Experiment, which tune writes: what its trials post counts where they print
nothing, whatever the kind of their jobs."""

REUSE = "podium.dev/reuse"
"""Annotation of an Experiment, which tune writes: on one machine a process that has called the
function for a trial calls it for the next one, too."""

NUMBER = "podium.dev/number"
"""Label of a trial of a deterministic Experiment: which one it is, counted from 0."""

REPEATS = "podium.dev/repeats"
"""Label of a trial that runs another one again with a fresh seed: the name of that one."""

SEED = "podium.dev/seed"
"""Label of such a trial: its seed."""

SAMPLER = "podium.dev/sampler"
"""Label of a trial of a deterministic Experiment: the library, with its version, that suggested it."""

FIGURES = "podium.dev/figures"
"""Annotation of a trial as it is shown: how its figures came about."""

NOTE = "podium.dev/note"
"""Annotation of an Experiment or a trial on a cluster: a person's note."""

POD_DIGEST = "podium.dev/pod-digest"
"""Annotation of a server's pods: SHA-256 of their spec as podium wrote it, by which a rollout tells
them from those before."""

BY_HAND = "podium.dev/by-hand"
"""Label of a trial whose values a person gave, not the search."""
