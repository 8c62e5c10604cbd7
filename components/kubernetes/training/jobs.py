"""Jobs of training pods, and what stands beside them: who may talk to them, who asks for figures.

- A gang has a fixed size: all of its pods at once, and all again after a fault (JobSet).
- Pods of an indexed Job don't need each other to exist: each is replaced alone.
- An elastic job goes on with fewer or more pods: an indexed Job that Kueue lets grow and shrink.
  Of the kinds that Kueue can resize, `batch/v1` Job is the one that fits; it can't ask for
  topology then. The pod of index 0 hosts the rendezvous: without it the others end and start anew.
- Horovod runs without ssh and without MPI, in an image of a team's own. Kubeflow's MPI operator
  starts processes by ssh: it wants keys in every pod, a server that listens for shells, and in its
  images root or ``SYS_CHROOT`` for it, none of which a pod of the restricted standard has.
  Horovod's Gloo controller needs neither: each machine starts its own processes with the variables
  that tell them their ranks, and they meet at a rendezvous that the pod of index 0 serves. Data of
  GPUs goes through NCCL, if the image's Horovod was built with ``HOROVOD_GPU_OPERATIONS=NCCL``.
  The launcher is Falaj's (workloads/horovod): an init container copies it, as one file of the
  standard library alone, to where the team's image finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.catalogue.pipelines import QUEUE_LABEL
from falaj.components.kubernetes._key_ring import (
    KEY_RING,
    KEYS,
    VARIABLE,
    packed_secret,
    volumes,
)
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._peers import in_namespace, resolver_egress
from falaj.components.kubernetes._placed import COMPONENT_LABEL, PROTECTED
from falaj.components.kubernetes.training import publication, tracking
from falaj.components.kubernetes.training.arguments import KeyRing, Run, TrainingJobSpec
from falaj.components.kubernetes.training.placement import topology_annotations
from falaj.components.kubernetes.training.pods import (
    RENDEZVOUS_PORT,
    TENSORFLOW_PORT,
    elastic_pods,
    first,
    gang,
    gang_pods,
    horovod,
    template,
    tensorflow,
    torch,
    training_command,
    trial_pods,
    unpacks,
)
from falaj.components.kubernetes.training.tracking import Tracking
from falaj.components.specification.node_pools import label_value
from falaj.components.specification.workload_bounds import fixed


def selector(run: Run) -> dict[str, str]:
    """Labels of the pods of this workload alone."""
    return {TENANT_LABEL: run.placed.tenant, COMPONENT_LABEL: label_value(run.name)}


def network_policy(run: Run, *, peers: bool, sent: Tracking | None = None) -> Manifest:
    """Pods of the job reach each other on every port, ask for names, and send their record.

    Rendezvous and collectives choose ports as they go. It adds to the tenant's own policies, and
    holds where a namespace has none.
    """
    own = {"podSelector": {"matchLabels": selector(run)}}
    ingress: list[dict[str, Any]] = [{"from": [own]}] if peers else []
    egress: list[dict[str, Any]] = [resolver_egress()]
    if peers:
        egress.append({"to": [own]})
    if sent is not None:
        egress.append(tracking.egress(sent))
    if run.telemetry:
        scraper = in_namespace(run.monitoring_namespace)
        ports = [{"port": "metrics", "protocol": "TCP"}]
        ingress.append({"from": [scraper], "ports": ports})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace),
        "spec": {
            "podSelector": {"matchLabels": selector(run)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def pod_monitor(run: Run) -> Manifest:
    """Prometheus asks each pod for its figures."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace),
        "spec": {
            "selector": {"matchLabels": selector(run)},
            "podMetricsEndpoints": [{"port": "metrics", "interval": "15s"}],
            "podTargetLabels": [TENANT_LABEL, COMPONENT_LABEL],
        },
    }


def queue_labels(run: Run) -> Mapping[str, str]:
    """What hands a job to Kueue, which keeps it suspended until there is room for all of it.

    The job's own ``suspend`` is left to Kueue: whoever declared it would stop the job again with
    each update.
    """
    return {
        QUEUE_LABEL: run.queue,
        "kueue.x-k8s.io/priority-class": run.priority,
    }


MOST_PROCESSES: Final = fixed("gang", "most_horovod_processes")
_FOLDER: Final = "/launcher"
_FILE: Final = f"{_FOLDER}/horovod.pyz"


def horovod_command(spec: TrainingJobSpec, host: str, program: Sequence[str]) -> list[str]:
    """What each pod runs: the launcher, which starts the program in each process.

    Args:
        spec: the job.
        host: DNS name of the pod that serves the rendezvous.
        program: the team's, with its arguments.
    """
    return [
        "python3", _FILE, "run",
        "--nodes", str(spec.nodes),
        "--processes", str(spec.run.size.processes),
        "--index", "$(NODE_RANK)",
        "--rendezvous", f"{host}:{RENDEZVOUS_PORT}",
        "--address", "$(POD_IP)",
        "--attempt", "$(RESTART_ATTEMPT)",
        "--grace-seconds", "$(FALAJ_GRACE_SECONDS)",
        "--", *program,
    ]  # fmt: skip


def add_launcher(pod: dict[str, Any], image: str) -> None:
    """Add to a pod's template what brings the launcher into it.

    Args:
        pod: the template, which is changed.
        image: Falaj's, with its digest.
    """
    command = ["python", "-m", "falaj.workloads.horovod", "pack", _FILE]
    mounts = [{"name": "launcher", "mountPath": _FOLDER}]
    pod["spec"].setdefault("initContainers", []).append(first("launcher", image, command, mounts))
    (container,) = pod["spec"]["containers"]
    container["volumeMounts"].append({"name": "launcher", "mountPath": _FOLDER, "readOnly": True})
    pod["spec"]["volumes"].append({"name": "launcher", "emptyDir": {"sizeLimit": "8Mi"}})


def key_secret(run: Run) -> str:
    """Name of the Secret with a job's packed key ring."""
    return f"{run.name}-keys"


def ring_secret(run: Run, ring: KeyRing) -> Manifest:
    """External Secrets brings the key ring; who can't read secrets doesn't change what it is."""
    about = metadata(run.placed, run.name, key_secret(run), run.namespace, labels=PROTECTED)
    return packed_secret(about, ring.store, ring.entry)


def add_key_ring(pod: dict[str, Any], run: Run, ring: KeyRing) -> None:
    """Add to a pod's template the key ring, in memory, and what lays it out there.

    Args:
        pod: the template, which is changed.
        run: what it is for.
        ring: where it comes from.
    """
    pod["spec"].setdefault("initContainers", []).append(unpacks(ring.image))
    (container,) = pod["spec"]["containers"]
    # Not read-only: who opens a ring locks it.
    container["volumeMounts"].append({"name": "keys", "mountPath": KEYS})
    container["env"].append({"name": VARIABLE, "value": KEY_RING})
    pod["spec"]["volumes"] += volumes(key_secret(run))


def tracking_objects(run: Run, sent: Tracking) -> list[Manifest]:
    """What stands beside a job for the server that its record is sent to."""
    name = tracking.object_name(run.name)

    def about(ending: str, /, *, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        return metadata(run.placed, run.name, f"{name}{ending}", run.namespace, labels=labels)

    return tracking.manifests(about, sent)


def ring_arguments(ring: KeyRing | None) -> list[str]:
    """What tells Falaj's training of the key ring that `add_key_ring` brings."""
    return ["--keyring", KEY_RING] if ring is not None else []


def indexed_job(
    run: Run,
    annotations: Mapping[str, str],
    counts: Mapping[str, Any],
    rules: Mapping[str, Any],
    pod: Mapping[str, Any],
) -> Manifest:
    """The Job, in Kueue's queue.

    Args:
        run: what it is for.
        annotations: what Kueue has to know of it.
        counts: fields of the Job that say how many pods, and how many failures of them.
        rules: its pod failure policy.
        pod: template of its pods.
    """
    # It may wait for its quota for hours: an update doesn't wait for its end.
    notes = {**annotations, "pulumi.com/skipAwait": "true"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            run.placed,
            run.name,
            run.name,
            run.namespace,
            labels=queue_labels(run),
            annotations=notes,
        ),
        "spec": {
            "completionMode": "Indexed",
            **counts,
            # A pod that is still on its way out has its GPUs and its place in the run.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": rules,
            "template": pod,
        },
    }


def independent_job(
    run: Run, count: int, parallel: int, retries: int, pod: Mapping[str, Any]
) -> Manifest:
    """An indexed Job whose pods don't need each other: with little room left, some go first.

    Args:
        run: what it is for.
        count: how many pods.
        parallel: how many at a time, where the quota has room.
        retries: how often each is started again.
        pod: template of its pods, of one container, which decides how a pod ended.
    """
    counts = {
        "completions": count,
        "parallelism": parallel,
        "backoffLimitPerIndex": retries,
        "maxFailedIndexes": count,
    }
    partial = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    (container,) = pod["spec"]["containers"]
    return indexed_job(run, partial, counts, trial_pods(container["name"]), pod)


def elastic_job(spec: TrainingJobSpec) -> list[Manifest]:
    """The Job, and the headless Service that gives its pods names."""
    run, elastic = spec.run, spec.elastic
    most = elastic.most if elastic else spec.nodes
    pod = _pod(spec, torch(spec, f"{run.name}-0.{run.name}"))
    pod["spec"]["subdomain"] = run.name
    counts = {
        "parallelism": spec.nodes,
        "completions": spec.nodes,
        "backoffLimit": spec.max_restarts * most,
    }
    growing = {"kueue.x-k8s.io/elastic-job": "true", **spec.traffic.annotations}
    job = indexed_job(run, growing, counts, elastic_pods(), pod)
    if spec.ttl_seconds is not None:
        job = {**job, "spec": {**job["spec"], "ttlSecondsAfterFinished": spec.ttl_seconds}}
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(run),
            "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
        },
    }
    return [service, job]


NODE: Final = "node"


def job_set(spec: TrainingJobSpec) -> Manifest:
    """The JobSet of a job: one role, or three for parameter servers."""
    run = spec.run
    body: dict[str, Any] = {
        # Names resolve before pods are ready: they have to meet to become so.
        "network": {
            "enableDNSHostnames": True,
            # Without it each set has a domain of its own name.
            **({} if run.repeated else {"subdomain": run.name}),
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
    if spec.publication is not None:
        body["failurePolicy"]["rules"].insert(0, publication.failure_rule())
        body["replicatedJobs"].append({
            "name": publication.ROLE,
            "replicas": 1,
            # https://jobset.sigs.k8s.io/docs/concepts/, "DependsOn"
            "dependsOn": [{"name": NODE, "status": "Complete"}],
            "template": {"spec": publication.job(run, spec.publication, key_secret(run))},
        })  # fmt: skip
    if spec.ttl_seconds is not None:
        body["ttlSecondsAfterFinished"] = spec.ttl_seconds
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(
            run.placed,
            run.name,
            run.name,
            run.namespace,
            labels=queue_labels(run),
            annotations=spec.traffic.annotations,
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
    return f"{spec.run.job}-{role}-0-{index}.{spec.run.job}"


def _job(spec: TrainingJobSpec, role: str, count: int) -> dict[str, Any]:
    notes = topology_annotations(spec.run.placement)
    return {
        "completionMode": "Indexed",
        "parallelism": count,
        "completions": count,
        "backoffLimit": 0,
        "podFailurePolicy": gang_pods(),
        "template": _pod(spec, _environment(spec, role), notes),
    }


def _pod(
    spec: TrainingJobSpec,
    env: Sequence[Mapping[str, Any]],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The template of a pod, with what its containers need to be brought first."""
    told = dict(spec.traffic.environment)
    if spec.tracking is not None and spec.program:
        told |= tracking.variables(spec.tracking)
    more = [{"name": name, "value": value} for name, value in told.items()]
    pod = template(spec.run, command(spec), [*env, *more], {}, annotations=annotations)
    if spec.framework == "horovod":
        add_launcher(pod, spec.launcher_image)
    if spec.key_ring is not None:
        add_key_ring(pod, spec.run, spec.key_ring)
    if spec.tracking is not None:
        tracking.add_files(pod, spec.run.name, spec.tracking)
    return pod


def command(spec: TrainingJobSpec) -> list[str]:
    """What each pod runs."""
    if spec.framework == "horovod":
        return horovod_command(spec, host(spec), spec.program)
    if spec.program:
        return list(spec.program)
    sent = tracking.arguments(spec.tracking)
    return training_command(spec.run, *ring_arguments(spec.key_ring), *spec.division, *sent)


def _environment(spec: TrainingJobSpec, role: str) -> list[dict[str, Any]]:
    if spec.framework == "pytorch":
        return torch(spec, host(spec))
    if spec.framework == "horovod":
        return horovod()
    if spec.framework == "tensorflow" and spec.nodes == 1:
        return []  # MirroredStrategy finds the GPUs of its machine itself
    port = TENSORFLOW_PORT
    cluster = {
        _TASKS.get(each, each): [f"{host(spec, each, index)}:{port}" for index in range(count)]
        for each, count in roles(spec).items()
    }
    return tensorflow(_TASKS.get(role, role), cluster)


#: MultiWorkerMirroredStrategy calls all of its pods workers.
_TASKS: Final = {NODE: "worker"}
