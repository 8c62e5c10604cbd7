"""A sweep: trials of a training side by side, as many at a time as the quota has room for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NotRequired

import pulumi

from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes.training import tracking
from falaj.components.kubernetes.training.arguments import (
    PARALLEL,
    RETRIES,
    GangArgs,
    KeyedRunArgs,
    KeyRing,
    Run,
)
from falaj.components.kubernetes.training.jobs import (
    add_key_ring,
    independent_job,
    network_policy,
    ring_arguments,
    ring_secret,
    tracking_objects,
)
from falaj.components.kubernetes.training.pods import DATA, RUNS, template
from falaj.components.kubernetes.training.tracking import Tracking, TrackingArgs
from falaj.components.kubernetes.training_job import check_arguments, checked_ring, checked_run
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default, SameAs
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between
from falaj.components.specification.workload_bounds import bound, choice

_PRUNER: Final = choice("sweep", "pruner")
#: What a file that all trials append to, one at a time, was tried with.
TRIALS: Final = Between(1, 1_000)


@described
class SweepArgs(KeyedRunArgs):
    """Arguments of `Sweep`."""

    search: dict[str, str]
    """What is tried, by the parameter's name: ``1e-4..1e-1``, ``1e-4..1e-1:log`` or ``8|16|32``.
    Names are those of options of ``python -m falaj.workloads.training run``, with ``_``."""
    trials: NotRequired[Annotated[int, TRIALS, Default(20)]]
    """How many."""
    parallel: NotRequired[Annotated[int, PARALLEL, Default(4)]]
    """Trials at a time, where the quota has room; fewer where it hasn't."""
    seed: NotRequired[Annotated[int, bound("training", "seed"), Default(0)]]
    """Of the runs, and the first of the sampler's."""
    pruner: NotRequired[Annotated[str, _PRUNER, Default(_PRUNER.default)]]
    """What ends a trial early: ``median`` is being worse than half of the others."""
    retries: NotRequired[Annotated[int, RETRIES, Default(2)]]
    """How often a trial is started again after faults of its machine."""
    tracking: NotRequired[Annotated[TrackingArgs, SameAs(GangArgs, "tracking")]]
    """Each trial is a run there; the tags ``falaj.sweep`` and ``falaj.trial`` tell which."""


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """The arguments of `Sweep`, checked."""

    run: Run
    search: Mapping[str, str]
    trials: int
    parallel: int
    seed: int
    pruner: str
    retries: int
    key_ring: KeyRing | None
    tracking: Tracking | None = None


def check(name: str, args: SweepArgs) -> SweepSpec:
    """Check the arguments of a `Sweep`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Sweep {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    checked = errors.checked(given, SweepArgs)
    run = checked_run(name, given, checked, errors)
    check_arguments(given, errors)
    ring = checked_ring(given, checked, run, errors)
    sent = tracking.checked(
        given, str(checked["secret_store"]), run.placed if run is not None else None, errors
    )
    options = [each.partition("=")[0] for each in run.arguments] if run is not None else []
    if any(len(each) > 2 and "--seed".startswith(each) for each in options):
        errors.say("arguments", "has --seed, which is the argument 'seed' of a sweep")
    search = errors.mapping("search", given["search"]) if "search" in given else {}
    if "search" in given and not search:
        errors.add("search", given["search"], "at least one parameter with what is tried")
    for parameter, values in search.items():
        is_one = not any(mark in values for mark in ("..", "|"))
        if not parameter.isidentifier() or is_one or "=" in values:
            errors.add(f"search[{parameter!r}]", values, "1e-4..1e-1, 1e-4..1e-1:log or 8|16|32")
    errors.raise_if_any()
    if run is None:
        raise AssertionError("what can't be used was refused")
    run = replace(run, telemetry=False)  # trials tell the study how they are doing
    trials: int = checked["trials"]
    return SweepSpec(
        run=run,
        search=search,
        trials=trials,
        parallel=min(checked["parallel"], trials),
        seed=checked["seed"],
        pruner=checked["pruner"],
        retries=checked["retries"],
        key_ring=ring,
        tracking=sent,
    )


def manifests(spec: SweepSpec) -> list[Manifest]:
    """An indexed Job, a trial for each index, and who may reach its pods: nobody."""
    run = spec.run
    pod = template(run, _command(spec), (), {})
    found = [network_policy(run, peers=False, sent=spec.tracking)]
    if spec.key_ring is not None:
        add_key_ring(pod, run, spec.key_ring)
        found.append(ring_secret(run, spec.key_ring))
    if spec.tracking is not None:
        tracking.add_files(pod, run.name, spec.tracking)
        found += tracking_objects(run, spec.tracking)
    job = independent_job(run, spec.trials, spec.parallel, spec.retries, pod)
    return [*found, job]


def _command(spec: SweepSpec) -> list[str]:
    """One trial; its number is the pod's index, which Kubernetes tells it."""
    run = spec.run
    searched = [
        word
        for parameter, values in sorted(spec.search.items())
        for word in ("--search", f"{parameter}={values}")
    ]
    return [
        "python", "-m", "falaj.workloads.training", "trial",
        "--dataset", f"{DATA}/{run.dataset}",
        "--output", f"{RUNS}/{run.name}",
        "--seed", str(spec.seed),
        "--pruner", spec.pruner,
        *searched,
        "--",
        "--processes", str(run.size.processes),
        "--device", "cuda" if run.size.gpus else "cpu",
        *ring_arguments(spec.key_ring),
        *tracking.arguments(spec.tracking),
        *run.arguments,
    ]  # fmt: skip


class Sweep(pulumi.ComponentResource):
    """Tries parameters of a training: trials share what they learned, a quota and a file system.

    The study is a journal (Optuna's) on the claim of checkpoints, so that nothing but the trials
    has to run. Bad trials are ended early; one that fails fails alone. ``python -m
    falaj.workloads.training study`` tells the outcome.
    """

    sweep_folder: pulumi.Output[str]
    """Folder of the sweep in the claim of checkpoints."""

    def __init__(
        self, name: str, args: SweepArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("Sweep"), name, None, opts)
        objects = manifests(spec)
        jobs = [each for each in objects if each["kind"] == "Job"]
        declare(self, name, [each for each in objects if each["kind"] != "Job"])
        declare(self, name, jobs, replace_on_changes=["spec"], delete_before_replace=True)
        self.sweep_folder = pulumi.Output.from_input(spec.run.name)
        self.register_outputs({"sweep_folder": self.sweep_folder})
