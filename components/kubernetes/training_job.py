"""A training job: one GPU, a machine of them, many machines, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pulumi

from falaj.components.catalogue.clusters import TRAINING_ENDING
from falaj.components.catalogue.pipelines import QUEUE_LABEL
from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes._placed import (
    InCluster,
    check_in_cluster,
    check_secret_entry,
    checked_image,
    checked_regions,
)
from falaj.components.kubernetes._pods import INFERENCE_IMAGE
from falaj.components.kubernetes._validation import RELATIVE_PATH, options
from falaj.components.kubernetes.bill_of_materials import resolve_one
from falaj.components.kubernetes.gpu_queues.queues import BURST_QUEUE
from falaj.components.kubernetes.training import publication, tracking, traffic
from falaj.components.kubernetes.training.arguments import (
    FRAMEWORKS,
    GRACE_SECONDS,
    NODES,
    Elastic,
    ElasticArgs,
    GangArgs,
    KeyRing,
    Placement,
    PodSize,
    Publication,
    PublishArgs,
    Run,
    RunArgs,
    TopologyArgs,
    TrainingJobArgs,
    TrainingJobSpec,
)
from falaj.components.kubernetes.training.jobs import (
    MOST_PROCESSES,
    elastic_job,
    job_set,
    network_policy,
    pod_monitor,
    ring_secret,
    tracking_objects,
)
from falaj.components.kubernetes.training.placement import (
    checked_topology,
    computing,
    devices,
    fabric_devices,
    is_gpu_flavor,
)
from falaj.components.kubernetes.training.pods import RESERVED
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import arguments_of, with_defaults
from falaj.components.specification.parallel import (
    COMPILE,
    COMPRESSION,
    PARTS,
    RECOMPUTE,
    ParallelArgs,
    division_of,
)

__all__ = [
    "ElasticArgs", "ParallelArgs", "PublishArgs", "TopologyArgs", "TrainingJob",
    "TrainingJobArgs", "check", "manifests",
]  # fmt: skip


#: A job's name starts those of its pods, which are labels of DNS: at most 63 with the role, two
#: indexes and what Kubernetes adds.
NAME: Final = re.compile(r"^[a-z]([a-z0-9-]{0,34}[a-z0-9])?$")
_FLAVOR: Final = re.compile(r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")
_VARIABLE: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_RESERVED: Final = ("PET_", "KUBERNETES_", "JOB_COMPLETION_")
_NOTICE_SECONDS: Final[Mapping[str, int]] = {"eks": 120, "aks": 30, "existing": 120}
"""How long before a spot machine goes it is told: AWS 2 minutes, Azure 30 seconds.
docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html,
learn.microsoft.com/azure/virtual-machines/linux/scheduled-events"""
_USUAL_GRACE: Final = 120
_MIB: Final = 1024
#: Python with torch, before a byte of data.
_PROCESS_MIB: Final = 512


def checked_run(
    name: str,
    given: Mapping[str, Any],
    checked: Mapping[str, Any],
    errors: ArgumentErrors,
    *,
    needs_dataset: bool = True,
    processes: int | None = None,
) -> Run | None:
    """The arguments of `RunArgs`; None where one was refused.

    Args:
        name: the workload's.
        given: its arguments.
        checked: what `ArgumentErrors.checked` found them to be; of those that it doesn't have
            their defaults hold.
        errors: gets what is wrong.
        needs_dataset: whether Falaj's training runs in it.
        processes: of each pod. Default: one for each GPU.
    """
    refused = errors.has(*arguments_of(RunArgs))
    before = errors.count
    checked = {**with_defaults(GangArgs, {}), **checked}
    if not NAME.match(name):
        errors.add("name", name, "1 to 36 of a-z, 0-9 and '-', first a letter, last no '-'")
    elif name.endswith(publication.ENDING):
        errors.say(
            "name", f"may not end in {publication.ENDING!r}: objects of publications are called so"
        )
    placed = check_in_cluster(given, errors)
    flavor = checked_flavor(given, errors)
    size = checked_size(checked, flavor, processes, errors)
    further = _further_regions(given, checked["queue"], placed, errors)
    spot = checked_spot(checked, placed, flavor, errors)
    dataset = str(given.get("dataset", ""))
    if needs_dataset:
        dataset = errors.text(given, "dataset")
    if dataset and not RELATIVE_PATH.match(dataset):
        errors.add("dataset", dataset, "a path below the claim of datasets, without '..'")
    env = _env(given, errors)
    grace = _grace(checked, placed, spot, errors)
    image, fabric, level, mode = "", "none", None, "required"
    if placed is not None:
        image = _image(given, placed, size.gpus, errors)
        fabric, interfaces = fabric_devices(checked, placed, flavor, size.gpus, errors)
        size = replace(size, resources={**size.resources, **interfaces})
        level, mode = checked_topology(given, placed, errors)
    if refused or errors.count > before or placed is None:
        return None
    return Run(
        placed=placed,
        name=name,
        namespace=checked["namespace"] or f"{placed.tenant}{TRAINING_ENDING}",
        service_account=checked["service_account"],
        image=image,
        size=size,
        placement=Placement(flavor, spot, level, mode, fabric, further),
        queue=checked["queue"],
        priority=checked["priority"],
        checkpoints=checked["checkpoints"],
        data=checked["data"] or checked["checkpoints"],
        dataset=dataset,
        arguments=checked["arguments"] or (),
        grace_seconds=grace,
        env=env,
        telemetry=checked["telemetry"],
        monitoring_namespace=checked["monitoring_namespace"],
    )


def _further_regions(
    given: Mapping[str, Any], queue: str, placed: InCluster | None, errors: ArgumentErrors
) -> tuple[str, ...]:
    found = checked_regions("further_regions", given.get("further_regions"), errors)
    if queue == BURST_QUEUE and not found:
        errors.say(
            "further_regions",
            f"missing; queue {queue!r} sends the job to another cluster, whose region its pods "
            "have to allow",
        )
    if queue == BURST_QUEUE and given.get("topology") is not None:
        errors.say(
            "topology",
            f"can't be had in queue {queue!r}: levels are of one cluster's nodes; leave it out, "
            "and the other cluster places the gang by its own",
        )
    if found and placed is not None and placed.zones:
        errors.say("zones", "are of one region; leave them out where there are further_regions")
    return found


def checked_flavor(given: Mapping[str, Any], errors: ArgumentErrors) -> str:
    """The argument ``flavor``."""
    flavor = errors.text(given, "flavor")
    if flavor and not _FLAVOR.match(flavor):
        errors.add("flavor", flavor, "the value of the nodes' label falaj.io/flavor")
    return flavor


def checked_size(
    checked: Mapping[str, Any], flavor: str, processes: int | None, errors: ArgumentErrors
) -> PodSize:
    """The arguments of `SizedArgs` that say how much a pod takes, each checked by itself."""

    def given_or(argument: str, fallback: float) -> Any:
        value = checked.get(argument)
        return fallback if value is None else value

    gpus: int = given_or("gpus_per_node", 1 if is_gpu_flavor(flavor) else 0)
    device = devices(flavor, gpus, errors)
    cpus: float = given_or("cpus", 3 * gpus or 2)
    memory: float = given_or("memory_gib", 12 * gpus or 4)
    shared: float = given_or("shared_memory_gib", 2 * gpus or 0.5)
    scratch: int = checked["scratch_gib"]
    count = processes or max(1, gpus)
    if gpus and count != gpus:
        errors.add(
            "processes_per_node", count, f"{gpus}, or leave it out",
            "each process has one GPU",
        )  # fmt: skip
    if shared * _MIB + count * _PROCESS_MIB > memory * _MIB:
        errors.add(
            "memory_gib", memory,
            f"at least {shared + count * _PROCESS_MIB / _MIB:g}: /dev/shm counts as memory and "
            f"each of {count} process(es) takes half a GiB to start",
        )  # fmt: skip
    resources = {**computing(cpus, memory, scratch), **device}
    return PodSize(resources, gpus, count, round(shared * _MIB), scratch)


def checked_spot(
    checked: Mapping[str, Any], placed: InCluster | None, flavor: str, errors: ArgumentErrors
) -> bool:
    """The argument ``spot``, where it is true or false."""
    spot: bool = flavor.endswith("-spot") if checked["spot"] is None else checked["spot"]
    if spot and placed is not None and placed.data_class == "restricted":
        errors.say(
            "spot",
            "is not for data_class 'restricted': memory of a machine that is taken back is out "
            "of one's hands; use a flavor on demand",
        )
    if not spot and flavor.endswith("-spot"):
        errors.say("spot", f"given false, but {flavor!r} has spot machines alone")
    return spot


def _grace(
    checked: Mapping[str, Any], placed: InCluster | None, spot: bool, errors: ArgumentErrors
) -> int:
    notice = _NOTICE_SECONDS[placed.distribution] if placed is not None else _USUAL_GRACE
    allowed = replace(GRACE_SECONDS, high=notice) if spot else GRACE_SECONDS
    seconds = checked["grace_seconds"]
    if seconds is None:
        return min(_USUAL_GRACE, int(allowed.high))
    return errors.within("grace_seconds", seconds, allowed)


def _env(given: Mapping[str, Any], errors: ArgumentErrors) -> dict[str, str]:
    values = errors.mapping("env", given["env"]) if "env" in given else {}
    for name in values:
        if not _VARIABLE.match(name):
            errors.add(f"env[{name!r}]", name, "letters, digits and '_', first no digit")
        elif name.startswith(_RESERVED) or name in RESERVED:
            errors.say(f"env[{name!r}]", "is set by the component; leave it out")
    return values


def _image(given: Mapping[str, Any], placed: InCluster, gpus: int, errors: ArgumentErrors) -> str:
    if (own := given.get("image")) is not None:
        return checked_image("image", own, placed, errors)
    short = "falaj-training" if gpus else "falaj-training-cpu"
    return resolve_one(placed, short, given.get("images"), errors)


#: Set from the component's own arguments; ``--resume never`` would lose the work of each attempt.
_KEY_RING: Final = "--keyring"
_TRACKING: Final = "--tra"
"""What options of a tracking server begin with; the program takes the first letters, too."""
_OWN_MODEL: Final = ("--code", "--code-digest", "--option")
"""Of a model of a team's own, whose code is on the machine that trains it."""
_OURS: Final = (
    "--output", "--dataset", "--processes", "--device", "--progress", "--metrics", "--resume",
    "--json",
)  # fmt: skip
_DIVIDING: Final = ("parallel", "recompute", "compile", "compression")
"""Arguments that say how a model is divided and computed."""
_DIVIDES: Final = tuple(f"--{each}" for each in (*PARTS, *_DIVIDING[1:]))
"""The options of a training that they become."""


def check(name: str, args: TrainingJobArgs) -> TrainingJobSpec:
    """Check the arguments of a `TrainingJob`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"TrainingJob {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    found = checked_job(name, given, errors.checked(given, TrainingJobArgs), errors)
    errors.raise_if_any()
    if found is None:
        raise AssertionError("what can't be used was refused")
    return found


def checked_job(
    name: str, given: Mapping[str, Any], checked: Mapping[str, Any], errors: ArgumentErrors
) -> TrainingJobSpec | None:
    """The arguments of `TrainingJobArgs`; None where one was refused.

    Args:
        name: the job's.
        given: its arguments.
        checked: as `checked_run` takes it.
        errors: gets what is wrong.
    """
    checked = {**with_defaults(TrainingJobArgs, {}), **checked}
    framework = str(checked["framework"])
    program: tuple[str, ...] = checked["program"] or ()
    _check_program(given, framework, program, errors)
    nodes: int = checked["nodes"]
    processes: int | None = checked["processes_per_node"]
    run = checked_run(name, given, checked, errors, needs_dataset=not program, processes=processes)
    if not program:
        check_arguments(given, errors, (*_OURS, *_DIVIDES))
    elastic = _elastic(given, framework, nodes, errors)
    is_own = bool(program) or framework != "pytorch"
    division = _division(given, nodes, run, elastic, errors, checked=checked, is_own=is_own)
    if "parameter_servers" in given and framework != "parameter-server":
        errors.say("parameter_servers", "is for framework 'parameter-server'")
    launcher = ""
    if framework == "horovod":
        launcher = _launcher(given, nodes, run.size.processes if run else 1, errors)
    ring = checked_ring(given, checked, run, errors, launcher)
    placed = run.placed if run is not None else None
    sent = tracking.checked(given, str(checked["secret_store"]), placed, errors)
    ttl = _ttl(checked["ttl_hours"], program, errors)
    published = _publication(given, run, ring, errors)
    most = elastic.most if elastic is not None else nodes
    between = traffic.checked(
        given,
        str(checked["peer_encryption"]),
        run.placed.data_class if run is not None else "",
        run.placement.fabric if run is not None else str(checked["fabric"]),
        errors,
        peers=most > 1 or framework == "parameter-server",
    )
    if run is None:
        return None
    return TrainingJobSpec(
        run=run,
        program=program,
        framework=framework,
        nodes=nodes,
        parameter_servers=checked["parameter_servers"],
        elastic=elastic,
        max_restarts=checked["max_restarts"],
        ttl_seconds=ttl,
        traffic=between,
        launcher_image=launcher,
        key_ring=ring,
        publication=published,
        tracking=sent,
        division=division,
    )


def check_arguments(
    given: Mapping[str, Any], errors: ArgumentErrors, ours: Sequence[str] = _OURS
) -> None:
    """Refuse arguments of a program of ours that the component writes itself, or can't provide.

    Args:
        given: the component's arguments.
        errors: gets what is wrong.
        ours: options that the component writes. The program takes the first letters of one, too.
    """
    for argument in given.get("arguments", ()):
        option = str(argument).partition("=")[0]
        if not option.startswith("--"):
            continue
        if any(each.startswith(option) for each in ours):
            errors.add(
                "arguments", argument, "options of training such as --epochs",
                "that one is set by the component, from its own arguments",
            )  # fmt: skip
        elif any(each.startswith(option) for each in _OWN_MODEL) and option != "--c":
            errors.say(
                "arguments",
                f"has {argument}, but a folder of code doesn't travel to pods: build an image "
                "with the model and its training, and name them as 'image' and 'program'; on one "
                "machine falaj:training.model trains it as it is",
            )
        elif option.startswith(_TRACKING):
            errors.say(
                "arguments",
                f"has {argument}, but no way to a server is opened by it: jobs, pipelines "
                "and sweeps have the argument tracking; elsewhere leave it out, and send the "
                "run's folder from where it is mounted, with `python -m falaj.workloads.training "
                "track`",
            )
        elif _KEY_RING.startswith(option):
            errors.add(
                "arguments", argument, "options of training such as --epochs",
                "pods have no key ring but that of key_secret, an argument of its own",
            )  # fmt: skip


def checked_ring(
    given: Mapping[str, Any],
    checked: Mapping[str, Any],
    run: Run | None,
    errors: ArgumentErrors,
    launcher: str = "",
) -> KeyRing | None:
    """The arguments of `KeyedRunArgs`.

    Args:
        given: the component's arguments.
        checked: what `ArgumentErrors.checked` found them to be.
        run: what they are for; None where it was refused.
        errors: gets what is wrong.
        launcher: Falaj's image, where Horovod's pods have it already.
    """
    if given.get("key_secret") is None:
        if "secret_store" in given and not tracking.needs_store(given):
            errors.say("secret_store", "is where key_secret is; name that as well")
        return None
    entry = errors.text(given, "key_secret")
    if run is None:
        return None
    check_secret_entry("key_secret", entry, run.placed, errors)
    if run.queue == BURST_QUEUE:
        errors.say(
            "key_secret",
            f"can't be had in queue {BURST_QUEUE!r}: the cluster that the job is sent to has no "
            "secret of it, and the keys stay where they are",
        )
    # A team's own image needn't have what unpacks it; Falaj's are on the node already.
    image = launcher or run.image
    if "image" in given and not launcher:
        image = resolve_one(run.placed, INFERENCE_IMAGE, given.get("images"), errors)
    return KeyRing(entry, checked["secret_store"], image)


def _publication(
    given: Mapping[str, Any], run: Run | None, ring: KeyRing | None, errors: ArgumentErrors
) -> Publication | None:
    if given.get("publish") is None:
        return None
    for argument in ("program", "image", "elastic"):
        if given.get(argument) is not None:
            errors.say("publish", f"is for Falaj's own training in a gang; leave out {argument!r}")
    if given.get("key_secret") is None:
        errors.say("publish", "needs key_secret: a model that is served is sealed from the start")
    if run is None:
        return None
    image = resolve_one(run.placed, _PUBLISHING_IMAGE, given.get("images"), errors)
    store = ring.store if ring is not None else ""
    return publication.checked(given["publish"], run, store, image, errors)


_PUBLISHING_IMAGE: Final = "falaj-training-cpu"
"""Falaj's that has what exports, quantises and measures models: GPUs aren't needed for it."""


def _check_program(
    given: Mapping[str, Any], framework: str, program: tuple[str, ...], errors: ArgumentErrors
) -> None:
    if framework != "pytorch" and framework in FRAMEWORKS:
        for argument in ("program", "image"):
            if not given.get(argument):
                errors.say(
                    argument,
                    f"missing; needed for framework {framework!r}: Falaj's own training and image "
                    "are PyTorch's, a team brings its own",
                )
    if program and ("arguments" in given or "dataset" in given):
        errors.say("program", "has its own arguments; leave out 'arguments' and 'dataset'")


def _elastic(
    given: Mapping[str, Any], framework: str, nodes: int, errors: ArgumentErrors
) -> Elastic | None:
    if given.get("elastic") is None:
        return None
    asked = options("elastic", given["elastic"], ElasticArgs, errors)
    found = errors.checked_only(asked, ElasticArgs, at="elastic.")
    least: int = found["min_nodes"] or int(NODES.low)
    most: int = found["max_nodes"] or max(least, nodes)
    most = errors.within("elastic.max_nodes", most, replace(NODES, low=least))
    if framework == "horovod":
        errors.say(
            "elastic",
            "is PyTorch's: Horovod's own elastic mode has a driver that starts processes on other "
            "machines by ssh; a gang that lost a machine starts again from its checkpoint",
        )
    elif framework != "pytorch":
        errors.say("elastic", f"is PyTorch's; {framework} has no such rendezvous")
    if given.get("topology") is not None:
        errors.say(
            "topology", "can't be had with 'elastic': Kueue places gangs of a fixed size only"
        )
    if given.get("queue") == BURST_QUEUE:
        errors.say(
            "elastic",
            f"can't be had in queue {BURST_QUEUE!r}: the Service by whose name its pods meet "
            "isn't sent along",
        )
    if not least <= nodes <= most:
        errors.add("nodes", nodes, f"{least} to {most}, as elastic says")
    if most == 1:
        errors.add("elastic.max_nodes", most, "at least 2", "else leave 'elastic' out")
    return Elastic(least, most)


def _division(
    given: Mapping[str, Any],
    nodes: int,
    run: Run | None,
    elastic: Elastic | None,
    errors: ArgumentErrors,
    *,
    checked: Mapping[str, Any],
    is_own: bool,
) -> tuple[str, ...]:
    """The options of Falaj's training for the arguments that divide a model.

    Args:
        given: the component's arguments.
        nodes: how many pods there are.
        run: what they are for; None where it was refused.
        elastic: how many pods there may be.
        errors: gets what is wrong.
        checked: what `ArgumentErrors.checked` found the arguments to be.
        is_own: whether a program of the team's own trains.
    """
    asked = [argument for argument in _DIVIDING if given.get(argument) is not None]
    if is_own:
        for argument in asked:
            errors.say(
                argument,
                "is of Falaj's own training: a program of a team's own divides its model itself, "
                "and has its own arguments; leave it out",
            )
    if is_own or not asked:
        return ()
    before = errors.count
    words = {"recompute": RECOMPUTE, "compile": COMPILE, "compression": COMPRESSION}
    refused = errors.has(*words)
    chosen = {name: str(checked[name]) for name in words}
    parallel = options("parallel", given.get("parallel", {}), ParallelArgs, errors)
    found = errors.checked_only(parallel, ParallelArgs, at="parallel.")
    if refused or errors.count > before or run is None:
        return ()
    division, each = division_of(found), run.size.processes
    if each % division.tensor:
        errors.add(
            "parallel.tensor", division.tensor,
            f"a divisor of {each}, the processes of a pod",
            "what a layer exchanges stays in one machine",
        )  # fmt: skip
    if elastic is not None:
        most = each * elastic.most
        if found["data"] is not None:
            errors.say(
                "parallel.data",
                f"given {found['data']}, but an elastic job has as many processes as it has pods "
                "for at a time; leave it out",
            )
        if each % division.processes:
            errors.say(
                "parallel",
                f"given {division}; allowed: numbers whose product divides {each}, the processes "
                "of a pod, so that an elastic job can go on with any number of pods",
            )
    else:
        most = each * nodes
        if (reason := division.refuse_processes(most, found["data"])) is not None:
            errors.say("parallel", reason)
    if (reason := division.refuse_compression(chosen["compression"], most)) is not None:
        errors.say("compression", reason)
    if (reason := division.refuse_compile(chosen["compile"])) is not None:
        errors.say("compile", reason)
    others = {name: value for name, value in chosen.items() if value != words[name].default}
    return tuple(
        word
        for name, value in {**division.options, **others}.items()
        for word in (f"--{name}", str(value))
    )


def _launcher(given: Mapping[str, Any], nodes: int, processes: int, errors: ArgumentErrors) -> str:
    """The image that Horovod's launcher comes from."""
    if nodes * processes > MOST_PROCESSES:
        errors.add(
            "nodes", nodes, f"at most {MOST_PROCESSES // processes} of {processes} process(es)",
            "each of Horovod's processes talks to every other one; use PyTorch for more",
        )  # fmt: skip
    placed = check_in_cluster(
        given, ArgumentErrors("the same")
    )  # what is wrong there is said already
    if placed is None:
        return ""
    return resolve_one(placed, INFERENCE_IMAGE, given.get("images"), errors)


def _ttl(hours: int | None, program: tuple[str, ...], errors: ArgumentErrors) -> int | None:
    if hours is None:
        return None
    if program:
        errors.say(
            "ttl_hours",
            "is for Falaj's own training alone: whatever declares a removed job makes it again, "
            "and a program that doesn't see that it was done would run once more",
        )
    return hours * 3_600


def manifests(spec: TrainingJobSpec) -> list[Manifest]:
    """The objects of a job: the job itself, who may reach its pods, who reads its figures."""
    run = spec.run
    peers = spec.nodes > 1 or spec.elastic is not None
    found = [network_policy(run, peers=peers, sent=spec.tracking)]
    if spec.key_ring is not None:
        found.append(ring_secret(run, spec.key_ring))
    if spec.tracking is not None:
        found += tracking_objects(run, spec.tracking)
    if spec.publication is not None:
        found += publication.manifests(run, spec.publication)
    found += elastic_job(spec) if spec.elastic is not None else [job_set(spec)]
    if run.telemetry:
        found.append(pod_monitor(run))
    return found


class TrainingJob(pulumi.ComponentResource):
    """Trains on GPUs or CPUs of a cluster, with checkpoints on a file system that all pods share.

    Kueue admits all pods of a job or none. It is asked for by Falaj's own training or a program of
    the team's; evicted pods (spot machines, drains, pre-emption) save a checkpoint and start
    again. Faults of machines and those of unknown cause, such as exit status 1, cost one of
    ``max_restarts``; what the program refuses (exit status 2) ends the job at once.

    Programs of PyTorch and TensorFlow get the variables by which their pods meet; those of Horovod
    are started by a launcher, once for each process, with neither ssh nor MPI.

    A job can't be changed while it runs: a change replaces it, and what was trained goes on from
    the checkpoint where data and parameters are the same. ``nodes`` of an elastic job is changed
    in place.
    """

    run_folder: pulumi.Output[str]
    """Folder of the run in the claim of checkpoints."""

    def __init__(
        self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("TrainingJob"), name, None, opts)
        options: dict[str, Any] = {}
        if spec.elastic is None:
            # Kueue decides when a job is made whether this cluster runs it or another.
            changes = ["spec", f'metadata.labels["{QUEUE_LABEL}"]']
            options = {"replace_on_changes": changes, "delete_before_replace": True}
        objects = manifests(spec)
        jobs = [each for each in objects if each["kind"] == "JobSet"]
        declare(self, name, [each for each in objects if each["kind"] != "JobSet"])
        declare(self, name, jobs, **options)
        self.run_folder = pulumi.Output.from_input(spec.run.name)
        self.register_outputs({"run_folder": self.run_folder})
