"""Checks of a training job's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from falaj.components.kubernetes._images import resolve
from falaj.components.kubernetes._nested import options
from falaj.components.kubernetes._placed import check_in_cluster
from falaj.components.kubernetes.training.arguments import ElasticArgs, TrainingJobArgs
from falaj.components.kubernetes.training.horovod import LAUNCHER_IMAGE, MOST_PROCESSES
from falaj.components.kubernetes.training.run_checks import checked_run, words
from falaj.components.kubernetes.training.specification import Elastic, TrainingJobSpec
from falaj.components.specification.refusals import Refusals

FRAMEWORKS: Final = ("pytorch", "tensorflow", "horovod", "parameter-server")
MOST_NODES: Final = 512
#: Set from the component's own arguments; ``--resume never`` would lose the work of each attempt.
_OURS: Final = (
    "--output", "--dataset", "--processes", "--device", "--progress", "--metrics", "--resume",
    "--json",
)  # fmt: skip


def check(name: str, args: TrainingJobArgs) -> TrainingJobSpec:
    """Check the arguments of a `TrainingJob`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    refusals = Refusals(f"TrainingJob {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    refusals.names(given, TrainingJobArgs)
    framework = str(given.get("framework", "pytorch"))
    refusals.choice("framework", framework, FRAMEWORKS)
    program = words("program", given, refusals)
    _check_program(given, framework, program, refusals)
    nodes = refusals.whole("nodes", given.get("nodes", 1), 1, MOST_NODES)
    processes: int | None = None
    if "processes_per_node" in given:
        processes = refusals.whole("processes_per_node", given["processes_per_node"], 1, 256)
    run = checked_run(name, given, refusals, needs_dataset=not program, processes=processes)
    if not program:
        check_arguments(given, refusals)
    elastic = _elastic(given, framework, nodes, refusals)
    servers = _servers(given, framework, refusals)
    launcher = ""
    if framework == "horovod":
        launcher = _launcher(given, nodes, run.size.processes if run else 1, refusals)
    restarts = refusals.whole("max_restarts", given.get("max_restarts", 3), 0, 100)
    ttl = _ttl(given, program, refusals)
    refusals.raise_if_any()
    if run is None:
        raise AssertionError("what can't be used was refused")
    return TrainingJobSpec(
        run, program, framework, nodes, servers, elastic, restarts, ttl, launcher
    )


def check_arguments(given: Mapping[str, Any], refusals: Refusals) -> None:
    """Refuse arguments of the training that the component writes itself."""
    for argument in given.get("arguments", ()):
        option = str(argument).partition("=")[0]
        if option in _OURS:
            refusals.add(
                "arguments", argument, "options of training such as --epochs",
                "that one is set by the component, from its own arguments",
            )  # fmt: skip


def _check_program(
    given: Mapping[str, Any], framework: str, program: tuple[str, ...], refusals: Refusals
) -> None:
    if framework != "pytorch" and framework in FRAMEWORKS:
        for argument in ("program", "image"):
            if not given.get(argument):
                refusals.say(
                    argument,
                    f"missing; needed for framework {framework!r}: Falaj's own training and image "
                    "are PyTorch's, a team brings its own",
                )
    if program and ("arguments" in given or "dataset" in given):
        refusals.say("program", "has its own arguments; leave out 'arguments' and 'dataset'")


def _elastic(
    given: Mapping[str, Any], framework: str, nodes: int, refusals: Refusals
) -> Elastic | None:
    if given.get("elastic") is None:
        return None
    asked = options("elastic", given["elastic"], ElasticArgs, refusals)
    least = refusals.whole("elastic.min_nodes", asked.get("min_nodes", 1), 1, MOST_NODES)
    most = refusals.whole("elastic.max_nodes", asked.get("max_nodes", nodes), least, MOST_NODES)
    if framework == "horovod":
        refusals.say(
            "elastic",
            "is PyTorch's: Horovod's own elastic mode has a driver that starts processes on other "
            "machines by ssh; a gang that lost a machine starts again from its checkpoint",
        )
    elif framework != "pytorch":
        refusals.say("elastic", f"is PyTorch's; {framework} has no such rendezvous")
    if given.get("topology") is not None:
        refusals.say(
            "topology", "can't be had with 'elastic': Kueue places gangs of a fixed size only"
        )
    if not least <= nodes <= most:
        refusals.add("nodes", nodes, f"{least} to {most}, as elastic says")
    if most == 1:
        refusals.add("elastic.max_nodes", most, "at least 2", "else leave 'elastic' out")
    return Elastic(least, most)


def _launcher(given: Mapping[str, Any], nodes: int, processes: int, refusals: Refusals) -> str:
    """The image that Horovod's launcher comes from."""
    if nodes * processes > MOST_PROCESSES:
        refusals.add(
            "nodes", nodes, f"at most {MOST_PROCESSES // processes} of {processes} process(es)",
            "each of Horovod's processes talks to every other one; use PyTorch for more",
        )  # fmt: skip
    placed = check_in_cluster(given, Refusals("the same"))  # what is wrong there is said already
    if placed is None:
        return ""
    found = resolve(placed, [LAUNCHER_IMAGE], given.get("images"), refusals)
    return found.get(LAUNCHER_IMAGE, "")


def _servers(given: Mapping[str, Any], framework: str, refusals: Refusals) -> int:
    servers = refusals.whole("parameter_servers", given.get("parameter_servers", 1), 1, 64)
    if "parameter_servers" in given and framework != "parameter-server":
        refusals.say("parameter_servers", "is for framework 'parameter-server'")
    return servers


def _ttl(given: Mapping[str, Any], program: tuple[str, ...], refusals: Refusals) -> int | None:
    if "ttl_hours" not in given:
        return None
    hours = refusals.whole("ttl_hours", given["ttl_hours"], 1, 24 * 365)
    if program:
        refusals.say(
            "ttl_hours",
            "is for Falaj's own training alone: whatever declares a removed job makes it again, "
            "and a program that doesn't see that it was done would run once more",
        )
    return hours * 3_600
