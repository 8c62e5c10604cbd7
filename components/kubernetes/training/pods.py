"""The pod of a training workload: its one container, its variables, and what its failures mean.

The container may do nothing but train. Its variables say who it is, where the others are and how
the collectives talk; an entry may refer to those before it as ``$(NAME)``, which the kubelet
replaces.

What a pod's exit status means is the workloads' to say (`falaj.workloads.exits`), and a program of
the team's own is judged by the same table: 2 for what would come again, which ends the job; 75
after a checkpoint on SIGTERM, which costs nothing; whatever else, 1 above all, costs a restart.
Python and torchrun end with 1 whatever the cause, so that a broken GPU looks like a mistake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.components.catalogue.pipelines import DATASET_NOTE
from falaj.components.kubernetes._key_ring import KEYS, SECRET, VARIABLE, unpack_command
from falaj.components.kubernetes._pods import USER, USER_NAME, unprivileged, unprivileged_pod
from falaj.components.kubernetes.training.arguments import (
    DATASET_VARIABLE,
    RUN_VARIABLE,
    Run,
    TrainingJobSpec,
)
from falaj.components.kubernetes.training.placement import pod_placement
from falaj.components.specification.node_pools import PREFIX
from falaj.components.specification.workload_bounds import fixed
from falaj.components.specification.workload_exits import exit_codes

RESERVED: Final = frozenset(
    {
        "POD_IP", "POD_NAME", "HOME", "TMPDIR", "NODE_RANK", "RESTART_ATTEMPT", "TF_CONFIG",
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "FALAJ_GRACE_SECONDS",
        "USER", "LOGNAME", "FALAJ_FABRIC", VARIABLE, RUN_VARIABLE, DATASET_VARIABLE,
        # The launcher's (workloads/horovod/world.py); others of Horovod's are the user's to set.
        "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
        "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_CONTROLLER",
        "HOROVOD_CPU_OPERATIONS", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
        "HOROVOD_ELASTIC",
    }
)  # fmt: skip
"""Names of variables that no user gives."""
CONTAINER: Final = "train"
METRICS_PORT: Final = 9464
RENDEZVOUS_PORT: Final = fixed("gang", "rendezvous_port")
TENSORFLOW_PORT: Final = 2222
SCRATCH: Final = "/scratch"
#: Of the processes in one pod; each loss of another pod takes one.
_ELASTIC_RESTARTS: Final = 100

#: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
_INDEX: Final = "metadata.labels['batch.kubernetes.io/job-completion-index']"
#: JobSet writes it on every pod: workers of an attempt never meet those of the one before.
_ATTEMPT: Final = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
#: And the name of the set that the pod is of.
_SET: Final = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"

#: What stays on in production, by docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html and
#: PyTorch's docs/source/torch_nccl_environment_variables.md: an end to hangs, and their trace.
_NCCL: Final[Mapping[str, str]] = {
    "NCCL_DEBUG": "WARN",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{SCRATCH}/flight-record-",
}
#: Virtual interfaces are left out; AKS names the pod's own in its guide to RDMA.
_SOCKETS: Final = {"aks": "eth0"}
_OTHER_SOCKETS: Final = "^lo,docker,veth"
_FABRIC: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    # Older settings (FI_PROVIDER, NCCL_PROTO …) are for old libfabric and stay unset:
    # github.com/aws-samples/awsome-distributed-training, 1.architectures/efa-cheatsheet.md
    "efa": {"FI_EFA_USE_HUGE_PAGE": "0"},
    "infiniband": {"NCCL_IB_DISABLE": "0", "NCCL_NET_GDR_LEVEL": "SYS"},
}


def base(run: Run) -> list[dict[str, Any]]:
    """What every pod has: its address, its folders, NCCL's settings where it has GPUs."""
    entries = [
        *(_repeated(run) if run.repeated else ()),
        _field("POD_IP", "status.podIP"),
        _field("POD_NAME", "metadata.name"),
        *_plain(
            {
                # Caches (~/.cache, ~/.triton, ~/.nv) fill what the job has asked for, not the
                # small /tmp, whose overflow would evict the pod.
                "HOME": SCRATCH,
                # Images know no user of this number, and getpass.getuser() looks here first.
                "USER": USER_NAME,
                "LOGNAME": USER_NAME,
                "TMPDIR": SCRATCH,
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
                "TORCHINDUCTOR_CACHE_DIR": f"{SCRATCH}/inductor",
                "FALAJ_GRACE_SECONDS": str(run.grace_seconds),
            }
        ),
    ]
    if run.size.gpus:
        sockets = _SOCKETS.get(run.placed.distribution, _OTHER_SOCKETS)
        fabric = _FABRIC[run.placement.fabric]
        entries += _plain({**_NCCL, "NCCL_SOCKET_IFNAME": sockets, **fabric})
        if fabric:
            entries += _plain({"FALAJ_FABRIC": run.placement.fabric})
    return entries


def _repeated(run: Run) -> list[dict[str, Any]]:
    """What tells pods which of its jobs they are of."""
    found = [_field(RUN_VARIABLE, _SET)]
    if run.dataset:
        found.append(_field(DATASET_VARIABLE, f"metadata.annotations['{DATASET_NOTE}']"))
    return found


def torch(spec: TrainingJobSpec, host: str) -> list[dict[str, Any]]:
    """Variables by which pods meet, those of torchrun: see workloads/training/distributed.py.

    Pods of a gang are ranked by their completion index, by which Kueue placed them: neighbours
    beside neighbours. Falaj's training does so for elastic jobs as well; torchrun can't, whose
    c10d ranks by addresses and ignores ``PET_NODE_RANK``.

    Args:
        spec: the job.
        host: DNS name of the pod that hosts the rendezvous.
    """
    if spec.nodes == 1 and spec.elastic is None:
        return []
    elastic = spec.elastic
    nodes = f"{elastic.least}:{elastic.most}" if elastic else str(spec.nodes)
    entries = [_field("PET_NODE_RANK", _INDEX)]
    identity = spec.run.job
    if elastic is None:
        entries.append(_field("RESTART_ATTEMPT", _ATTEMPT))
        identity = f"{identity}-$(RESTART_ATTEMPT)"
    values = {
        "PET_NNODES": nodes,
        "PET_NPROC_PER_NODE": str(spec.run.size.processes),
        "PET_RDZV_BACKEND": "c10d" if elastic else "static",
        "PET_RDZV_ENDPOINT": f"{host}:{RENDEZVOUS_PORT}",
        "PET_RDZV_ID": identity,
        "PET_RDZV_CONF": "timeout=900,last_call_timeout=5,keep_alive_interval=2,"
        "keep_alive_max_attempt=3",
        "PET_LOCAL_ADDR": "$(POD_IP)",
        # A gang starts anew as a whole; an elastic one meets again with whoever is left.
        "PET_MAX_RESTARTS": str(_ELASTIC_RESTARTS if elastic else 0),
    }
    return [*entries, *_plain(values)]


def tensorflow(role: str, cluster: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """``TF_CONFIG`` of one role: github.com/tensorflow/docs, guide/distributed_training.

    Args:
        role: ``chief``, ``worker`` or ``ps``.
        cluster: names with ports of the pods of each role.
    """
    task = '{"type": ' + json.dumps(role) + ', "index": $(NODE_RANK)}'
    text = '{"cluster": ' + json.dumps(cluster) + ', "task": ' + task + "}"
    return [*index_variable(), *_plain({"TF_CONFIG": text})]


INDEX: Final = "NODE_RANK"
"""Variable with a pod's index in its job."""


def index_variable() -> list[dict[str, Any]]:
    """What tells a pod its index, as `INDEX`."""
    return [_field(INDEX, _INDEX)]


def horovod() -> list[dict[str, Any]]:
    """What the launcher is told: which pod this is, of which attempt."""
    return [*index_variable(), _field("RESTART_ATTEMPT", _ATTEMPT)]


def given(run: Run) -> list[dict[str, Any]]:
    """The user's own variables."""
    return _plain(run.env)


def _plain(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


FINAL: Final = exit_codes("end")
"""After which the same would come again."""
STOPPED: Final = exit_codes("free")
"""After which to start again costs nothing."""

_DISRUPTED: Final = [{"type": "DisruptionTarget", "status": "True"}]
_REASON: Final = "PodFailurePolicy"


def _exit_codes(*values: int, container: str = CONTAINER) -> dict[str, Any]:
    return {"containerName": container, **_of_any(*values)}


def _of_any(*values: int) -> dict[str, Any]:
    """Exit statuses of any of the pod's containers."""
    return {"operator": "In", "values": list(values)}


def gang_pods() -> dict[str, Any]:
    """A job's rules where the set of jobs decides: the first that matters ends the gang."""
    return {
        "rules": [
            {"action": "FailJob", "onPodConditions": _DISRUPTED},
            {"action": "FailJob", "onExitCodes": _exit_codes(*FINAL)},
            {"action": "FailJob", "onExitCodes": _exit_codes(*STOPPED)},
        ]
    }


def gang(max_restarts: int) -> dict[str, Any]:
    """What becomes of a gang of which a job has failed.

    Evicted pods (spot, drains, pre-emption) start all again and cost nothing; what was refused
    ends it; what else there is (lost peers, GPUs, memory, what nobody knows) is tried
    ``max_restarts`` times: no rule is for it, and then the job counts.
    Messages: pkg/controller/job/pod_failure_policy.go of Kubernetes.
    """
    return {
        "maxRestarts": max_restarts,
        # Old pods hold GPUs: new ones start when these are free.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "evicted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": [_REASON],
                "onJobFailureMessagePatterns": [
                    "has condition DisruptionTarget matching FailJob rule",
                    *(f"failed with exit code {code} matching FailJob rule" for code in STOPPED),
                ],
            },
            {
                "name": "refused",
                "action": "FailJobSet",
                "onJobFailureReasons": [_REASON],
                "onJobFailureMessagePatterns": [
                    f"failed with exit code {code} matching FailJob rule" for code in FINAL
                ],
            },
        ],
    }


def elastic_pods() -> dict[str, Any]:
    """A job's rules where each pod is replaced alone, while the others go on."""
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": _DISRUPTED},
            {"action": "Ignore", "onExitCodes": _exit_codes(*STOPPED)},
            {"action": "FailJob", "onExitCodes": _exit_codes(*FINAL)},
        ]
    }


def trial_pods(container: str) -> dict[str, Any]:
    """A job's rules where each index is a work of its own: it fails alone.

    Args:
        container: which decides.
    """
    stopped = _exit_codes(*STOPPED, container=container)
    final = _exit_codes(*FINAL, container=container)
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": _DISRUPTED},
            {"action": "Ignore", "onExitCodes": stopped},
            {"action": "FailIndex", "onExitCodes": final},
        ]
    }


def publishing_pods() -> dict[str, Any]:
    """A job's rules where any of a pod's containers, one after the other, decides."""
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": _DISRUPTED},
            {"action": "FailJob", "onExitCodes": _of_any(*FINAL)},
            {"action": "Ignore", "onExitCodes": _of_any(*STOPPED)},
        ]
    }


#: What a program finds that asks the C library who it is: images name others, if anybody. By
#: passwd(5) and group(5); root is there for who asks whose the image's files are.
_USERS: Final[Mapping[str, str]] = {
    "passwd": (
        "root:x:0:0:root:/:/sbin/nologin\n"
        f"{USER_NAME}:x:{USER}:{USER}:{USER_NAME}:{SCRATCH}:/bin/sh\n"
    ),
    "group": f"root:x:0:\n{USER_NAME}:x:{USER}:\n",
}
RUNS: Final = "/runs"
DATA: Final = "/data"


def template(
    run: Run,
    command: Sequence[str],
    env: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    grace_seconds: int | None = None,
) -> dict[str, Any]:
    """The template of a pod.

    Args:
        run: what it is for.
        command: program and arguments. It is the container's first process, so that the request
            to stop reaches it.
        env: entries beside those that every pod has; they may refer to these.
        labels: of the pod.
        annotations: of the pod.
        grace_seconds: instead of the run's.
    """
    size = run.size
    memory: dict[str, Any] = {"medium": "Memory", "sizeLimit": f"{size.shared_memory_mib}Mi"}
    apart = run.data != run.checkpoints
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": run.image,
        "command": list(command),
        "env": [*base(run), *env, *given(run)],
        "resources": {"requests": dict(size.resources), "limits": dict(size.resources)},
        "securityContext": unprivileged(),
        "volumeMounts": [
            {"name": "runs", "mountPath": RUNS},
            {"name": "data" if apart else "runs", "mountPath": DATA, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "scratch", "mountPath": SCRATCH},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            *(
                {"name": "users", "mountPath": f"/etc/{file}", "subPath": file, "readOnly": True}
                for file in _USERS
            ),
        ],
    }
    if run.telemetry:
        container["ports"] = [{"name": "metrics", "containerPort": METRICS_PORT}]
    read_only = {"claimName": run.data, "readOnly": True}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": run.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": run.priority,
        "terminationGracePeriodSeconds": grace_seconds or run.grace_seconds,
        "securityContext": unprivileged_pod(
            fsGroup=USER,
            # A file system with years of runs isn't gone through at each start.
            fsGroupChangePolicy="OnRootMismatch",
        ),
        **pod_placement(run.placed, run.placement),
        "containers": [container],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": run.checkpoints}},
            *([{"name": "data", "persistentVolumeClaim": read_only}] if apart else []),
            {"name": "shared-memory", "emptyDir": memory},
            {"name": "scratch", "emptyDir": {"sizeLimit": f"{size.scratch_gib}Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "users", "downwardAPI": {"items": [_users_item(file) for file in _USERS]}},
        ],
    }
    about: dict[str, Any] = {"labels": {**run.placed.labels(run.name), **labels}}
    users = {_users_annotation(file): content for file, content in _USERS.items()}
    of_data = {DATASET_NOTE: run.dataset} if run.repeated and run.dataset else {}
    about["annotations"] = {
        **run.placed.annotations(), **users, **of_data, **(annotations or {}),
    }  # fmt: skip
    return {"metadata": about, "spec": spec}


def first(
    name: str, image: str, command: Sequence[str], mounts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A small container that ends before the others start."""
    size = {"cpu": "250m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    return {
        "name": name,
        "image": image,
        "command": list(command),
        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
        "resources": {"requests": dict(size), "limits": dict(size)},
        "securityContext": unprivileged(),
        "volumeMounts": [dict(each) for each in mounts],
    }


def unpacks(image: str, *more: str, prefix: str = "") -> dict[str, Any]:
    """The first container that lays a key ring out; it alone sees what the cluster handed over.

    Args:
        image: one of Falaj's.
        more: options of its command.
        prefix: of its volumes, see `falaj.components.kubernetes._key_ring.volumes`.
    """
    mounts = [
        {"name": f"{prefix}secret", "mountPath": SECRET, "readOnly": True},
        {"name": f"{prefix}keys", "mountPath": KEYS},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    return first(f"{prefix}keys", image, [*unpack_command(), *more], mounts)


def _users_annotation(file: str) -> str:
    return f"{PREFIX}{file}"


def _users_item(file: str) -> dict[str, Any]:
    """A file that the kubelet writes of the pod's own annotation: no object beside the pod."""
    field = f"metadata.annotations['{_users_annotation(file)}']"
    return {"path": file, "fieldRef": {"fieldPath": field}}


def training_command(run: Run, *more: str) -> list[str]:
    """Falaj's training, as `falaj up` starts it on one machine."""
    command = [
        "python", "-m", "falaj.workloads.training", "run",
        "--dataset", f"{DATA}/{run.snapshot}",
        "--output", f"{RUNS}/{run.job}",
        "--processes", str(run.size.processes),
        "--device", "cuda" if run.size.gpus else "cpu",
        "--progress", "json",
    ]  # fmt: skip
    if run.telemetry:
        command += ["--metrics", f"$(POD_IP):{METRICS_PORT}"]
    return [*command, *more, *run.arguments]
