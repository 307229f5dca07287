"""Requests to a Kubeflow Pipelines server, through the generated client alone.

`kfp.Client` (2.17, kfp/client/client.py) offers the same calls, but loads the Kubernetes client, a
second of CPU.
"""

import json
from typing import Any

from podium.errors import NotFound


class Services:
    """Calls to a server; each returns the generated client's answer.

    Args:
        api_client: A connection, ``kfp_server_api.ApiClient``.
    """

    def __init__(self, api_client: Any) -> None:
        import kfp_server_api

        self.api_client = api_client
        self._experiments = kfp_server_api.ExperimentServiceApi(api_client)
        self._health = kfp_server_api.HealthzServiceApi(api_client)
        self._pipelines = kfp_server_api.PipelineServiceApi(api_client)
        self._uploads = kfp_server_api.PipelineUploadServiceApi(api_client)
        self._runs = kfp_server_api.RunServiceApi(api_client)
        self._recurring = kfp_server_api.RecurringRunServiceApi(api_client)

    @property
    def host(self) -> str:
        """Address of the server."""
        return str(self.api_client.configuration.host)

    def health(self) -> Any:
        """Return whether it serves many users, among others."""
        return self._health.healthz_service_get_healthz()

    def create_group(self, name: str, namespace: str | None) -> Any:
        """Create a KFP experiment, a folder of runs."""
        from kfp_server_api import V2beta1Experiment

        body = V2beta1Experiment(display_name=name, namespace=namespace)
        return self._experiments.experiment_service_create_experiment(experiment=body)

    def find_group(self, name: str, namespace: str | None) -> Any:
        """Return a KFP experiment by its name.

        Raises:
            NotFound: There is none.
        """
        listed = self._experiments.experiment_service_list_experiments(
            filter=named(name), **_given(namespace=namespace)
        )
        if not listed.experiments:
            raise NotFound(f"there is no group of runs {name!r}")
        return listed.experiments[0]

    def list_pipelines(self, **arguments: Any) -> Any:
        """Return a page of the pipelines."""
        return self._pipelines.pipeline_service_list_pipelines(**_given(**arguments))

    def list_pipeline_versions(self, **arguments: Any) -> Any:
        """Return a page of a pipeline's versions."""
        return self._pipelines.pipeline_service_list_pipeline_versions(**_given(**arguments))

    def create_pipeline(self, name: str, namespace: str | None) -> Any:
        """Create a pipeline without a version."""
        from kfp_server_api import V2beta1Pipeline

        body = V2beta1Pipeline(display_name=name, name=name, namespace=namespace)
        return self._pipelines.pipeline_service_create_pipeline(pipeline=body)

    def upload_version(self, file: str, *, name: str, pipeline_id: str) -> Any:
        """Upload a compiled pipeline as a version."""
        return self._uploads.upload_pipeline_version(file, name=name, pipelineid=pipeline_id)

    def create_run(
        self,
        *,
        group: str,
        name: str,
        parameters: dict[str, Any],
        pipeline_id: str,
        version_id: str,
        service_account: str | None,
        pipeline_root: str | None,
    ) -> Any:
        """Start a run of a version."""
        from kfp_server_api import V2beta1Run

        body = V2beta1Run(
            experiment_id=group,
            display_name=name,
            service_account=service_account,
            **_what(parameters, pipeline_root, pipeline_id, version_id),
        )
        return self._runs.run_service_create_run(run=body)

    def get_run(self, run_id: str) -> Any:
        """Return a run."""
        return self._runs.run_service_get_run(run_id=run_id)

    def list_runs(self, **arguments: Any) -> Any:
        """Return a page of the runs."""
        return self._runs.run_service_list_runs(**_given(**arguments))

    def terminate_run(self, run_id: str) -> Any:
        """Cancel a run."""
        return self._runs.run_service_terminate_run(run_id=run_id)

    def list_recurring_runs(self, **arguments: Any) -> Any:
        """Return a page of the recurring runs."""
        return self._recurring.recurring_run_service_list_recurring_runs(**_given(**arguments))

    def create_recurring_run(
        self,
        *,
        group: str,
        name: str,
        description: str,
        cron: str,
        max_concurrency: int,
        no_catchup: bool,
        parameters: dict[str, Any],
        pipeline_id: str,
        version_id: str,
        enabled: bool,
        service_account: str | None,
        pipeline_root: str | None,
    ) -> Any:
        """Let the server start runs of a version by a crontab with seconds."""
        from kfp_server_api import (
            RecurringRunMode,
            V2beta1CronSchedule,
            V2beta1RecurringRun,
            V2beta1Trigger,
        )

        body = V2beta1RecurringRun(
            experiment_id=group,
            display_name=name,
            description=description,
            service_account=service_account,
            mode=RecurringRunMode.ENABLE if enabled else RecurringRunMode.DISABLE,
            no_catchup=no_catchup,
            max_concurrency=max_concurrency,
            trigger=V2beta1Trigger(cron_schedule=V2beta1CronSchedule(cron=cron)),
            **_what(parameters, pipeline_root, pipeline_id, version_id),
        )
        return self._recurring.recurring_run_service_create_recurring_run(recurring_run=body)

    def enable_recurring_run(self, recurring_run_id: str) -> Any:
        """Resume a recurring run."""
        return self._recurring.recurring_run_service_enable_recurring_run(
            recurring_run_id=recurring_run_id
        )

    def disable_recurring_run(self, recurring_run_id: str) -> Any:
        """Pause a recurring run."""
        return self._recurring.recurring_run_service_disable_recurring_run(
            recurring_run_id=recurring_run_id
        )

    def delete_recurring_run(self, recurring_run_id: str) -> Any:
        """Delete a recurring run."""
        return self._recurring.recurring_run_service_delete_recurring_run(
            recurring_run_id=recurring_run_id
        )


def named(name: str) -> str:
    """Return the filter of a list call for items of this display name."""
    return json.dumps(
        {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
    )


def _given(**arguments: Any) -> dict[str, Any]:
    """Drop the arguments that are None: the generated client would send them as text."""
    return {name: value for name, value in arguments.items() if value is not None}


def _what(
    parameters: dict[str, Any], pipeline_root: str | None, pipeline_id: str, version_id: str
) -> dict[str, Any]:
    from kfp_server_api import V2beta1PipelineVersionReference, V2beta1RuntimeConfig

    reference = V2beta1PipelineVersionReference(
        pipeline_id=pipeline_id, pipeline_version_id=version_id
    )
    return {
        "pipeline_version_reference": reference,
        "runtime_config": V2beta1RuntimeConfig(parameters=parameters, pipeline_root=pipeline_root),
    }
