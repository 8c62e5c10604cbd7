"""A job of a fixed size: all of its pods at once, and all again after a fault (JobSet)."""

from __future__ import annotations

from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.training import environment, horovod
from falaj.components.kubernetes.training.failures import gang, gang_pods
from falaj.components.kubernetes.training.placement import topology_annotations
from falaj.components.kubernetes.training.pods import template, training_command
from falaj.components.kubernetes.training.specification import TrainingJobSpec
from falaj.components.kubernetes.training.surroundings import queue_labels

NODE: Final = "node"


def job_set(spec: TrainingJobSpec) -> Manifest:
    """The JobSet of a job: one role, or three for parameter servers."""
    run = spec.run
    body: dict[str, Any] = {
        # Names resolve before pods are ready: they have to meet to become so.
        "network": {
            "enableDNSHostnames": True,
            "subdomain": run.name,
            "publishNotReadyAddresses": True,
        },
        "failurePolicy": gang(spec.max_restarts),
        "replicatedJobs": [
            {"name": role, "replicas": 1, "template": {"spec": _job(spec, role, count)}}
            for role, count in roles(spec).items()
        ],
    }
    if spec.framework == "parameter-server":
        # Parameter servers wait for ever: the chief's end is the job's.
        body["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["chief"]}
    if spec.ttl_seconds is not None:
        body["ttlSecondsAfterFinished"] = spec.ttl_seconds
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(
            run.placed, run.name, run.name, run.namespace, labels=queue_labels(run)
        ),
        "spec": body,
    }


def roles(spec: TrainingJobSpec) -> dict[str, int]:
    """Pods of each role."""
    if spec.framework != "parameter-server":
        return {NODE: spec.nodes}
    found = {"chief": 1, "worker": spec.nodes - 1, "ps": spec.parameter_servers}
    return {role: count for role, count in found.items() if count}


def host(spec: TrainingJobSpec, role: str = NODE, index: int = 0) -> str:
    """DNS name of a pod: JobSet's ``<set>-<role>-<job>-<pod>.<subdomain>``."""
    return f"{spec.run.name}-{role}-0-{index}.{spec.run.name}"


def _job(spec: TrainingJobSpec, role: str, count: int) -> dict[str, Any]:
    pod = template(
        spec.run,
        command(spec),
        _environment(spec, role),
        {},
        annotations=topology_annotations(spec.run.placement),
    )
    if spec.framework == "horovod":
        horovod.add_launcher(pod, spec.launcher_image)
    return {
        "completionMode": "Indexed",
        "parallelism": count,
        "completions": count,
        "backoffLimit": 0,
        "podFailurePolicy": gang_pods(),
        "template": pod,
    }


def command(spec: TrainingJobSpec) -> list[str]:
    """What each pod runs."""
    if spec.framework == "horovod":
        return horovod.command(spec, host(spec), spec.program)
    return list(spec.program) or training_command(spec.run)


def _environment(spec: TrainingJobSpec, role: str) -> list[dict[str, Any]]:
    if spec.framework == "pytorch":
        return environment.torch(spec, host(spec))
    if spec.framework == "horovod":
        return environment.horovod()
    if spec.framework == "tensorflow" and spec.nodes == 1:
        return []  # MirroredStrategy finds the GPUs of its machine itself
    port = environment.TENSORFLOW_PORT
    cluster = {
        _TASKS.get(each, each): [f"{host(spec, each, index)}:{port}" for index in range(count)]
        for each, count in roles(spec).items()
    }
    return environment.tensorflow(_TASKS.get(role, role), cluster)


#: MultiWorkerMirroredStrategy calls all of its pods workers.
_TASKS: Final = {NODE: "worker"}
