"""Fields of a pod template: honored here, or without meaning here. Any other field is refused."""

HONORED_POD = {
    "containers",
    "initContainers",
    "volumes",
    "terminationGracePeriodSeconds",
    "restartPolicy",
}

NO_MEANING_POD = {
    "nodeSelector",
    "nodeName",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "schedulerName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "runtimeClassName",
    "overhead",
    "os",
    "resources",
    "resourceClaims",
    "readinessGates",
    "schedulingGates",
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "imagePullSecrets",
    "securityContext",
    "dnsPolicy",
    "dnsConfig",
    "hostname",
    "subdomain",
    "setHostnameAsFQDN",
    "hostAliases",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "shareProcessNamespace",
    "enableServiceLinks",
}

HONORED_CONTAINER = {"name", "image", "command", "args", "env", "workingDir", "volumeMounts"}

NO_MEANING_CONTAINER = {
    "imagePullPolicy",
    "resources",
    "resizePolicy",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "terminationMessagePath",
    "terminationMessagePolicy",
}
