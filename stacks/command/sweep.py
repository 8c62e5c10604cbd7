"""``falaj sweep``: training parameters of a stack of one machine, tried out and taken."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from falaj.components.local.arguments.training_run import TrainingRunArgs
from falaj.components.specification.arguments import arguments_of
from falaj.components.specification.workload_bounds import choice
from falaj.engine.commands import INTERRUPTED
from falaj.stacks.command import project as projects
from falaj.stacks.command import service
from falaj.stacks.command.console import complain, say
from falaj.stacks.command.options import stack_option, the_stack
from falaj.stacks.errors import StackError
from falaj.workloads.errors import REFUSED, STOPPED

if TYPE_CHECKING:
    from falaj.stacks.command.project import StackFile
    from falaj.stacks.settings import LocalSettings

_PRUNER: Final = choice("sweep", "pruner")
#: Before the name of an option of a model of one's own, as `falaj.workloads.training` takes it.
_OWN: Final = "option."
#: Of a training's settings those of its dataset: what a text is cut by.
_CUT: Final = ("context", "vocabulary")
#: Settings of a training that a sweep doesn't pass on as they are called: its own option,
#: sections, what the dataset is cut by, and the tracking server, which the sweep itself sends to.
#: Trials side by side would measure each other.
_OTHERWISE: Final = frozenset({"seed", "options", "tracking", "tune"})
#: Those that are passed on where they say something: sweeps had their folders before them.
_ADDED: Final = {
    name: each.default.value
    for name, each in arguments_of(TrainingRunArgs).items()
    if each.default
}
_SHORT: Final = 16


@click.command()
@stack_option
@click.option(
    "--search",
    multiple=True,
    required=True,
    metavar="NAME=VALUES",
    help="What is tried: learningRate=1e-4..1e-1:log, width=8|16|32, options.NAME=… of a model of "
    "your own. May be given again.",
)
@click.option("--trials", default=20, type=click.IntRange(1), help="How many (default: 20).")
@click.option("--parallel", default=1, type=click.IntRange(1), help="At a time (default: 1).")
@click.option(
    "--pruner",
    type=click.Choice(_PRUNER.words),
    default=_PRUNER.default,
    help=f"What ends bad trials early (default: {_PRUNER.default}).",
)
@click.option(
    "--take", is_flag=True, help="Write the best trial's parameters into the stack's file."
)
@click.option("--json", "as_json", is_flag=True, help="Print what trials say, as JSON lines.")
def sweep(
    *,
    stack: str | None,
    project: Path | None,
    search: tuple[str, ...],
    trials: int,
    parallel: int,
    pruner: str,
    take: bool,
    as_json: bool,
) -> int:
    """Try training parameters of a stack of this machine.

    Each trial trains as the stack's file says, with other values for what is searched, and is
    judged on validation rows; a table tells how each ended. What was stopped goes on when the same
    command is run again. After --take, `falaj up` publishes the best trial without training again.
    """
    found = the_stack(stack, project)
    settings = _settings(found)
    spaces = dict(_space(text, settings) for text in search)
    if len(spaces) < len(search):
        raise StackError(f"--search: given {', '.join(search)}; allowed: each name once")
    dataset = _dataset(found, settings)
    words = [
        *(part for name, values in spaces.items() for part in ("--search", f"{name}={values}")),
        "--seed", str(settings.training.seed or 0), "--pruner", pruner,
    ]  # fmt: skip
    code = _code(found, settings)
    every = _run_options(found, settings, spaces, code)
    folder = found.site / "runs" / _name(dataset, words, every, code)
    places = ["--dataset", str(dataset), "--output", str(folder)]
    sent = _tracking(found, settings)
    status = service.run_workload(
        [_training(), "sweep", *places, *words, *sent, "--trials", str(trials),
         "--parallel", str(parallel), "--progress", "json" if as_json else "text", "--", *every]
    )  # fmt: skip
    if status == STOPPED:
        return INTERRUPTED
    if not folder.is_dir():  # nothing was begun, and it has been said why
        return status
    if not as_json:
        say(f"the trials are runs of stack {found.name}: falaj runs list --folder {folder}")
    best = _best(places)
    if best is not None and take:
        _take(found, settings, best, quiet=as_json)
    elif take:
        complain("--take: no trial was done, so the stack's file stays as it is")
    elif best is not None and not as_json:
        say("write the best one's parameters into the stack's file: the same command with --take")
    return status if status in (0, REFUSED) else 1


def _training() -> str:
    """The module whose commands train."""
    from falaj.components.local.provider.workloads import TRAINING  # noqa: PLC0415 - an extra

    return TRAINING


def _settings(stack: StackFile) -> LocalSettings:
    from falaj.stacks.settings import LocalSettings  # noqa: PLC0415 - the models: not for `--help`
    from falaj.stacks.settings.load import load_file  # noqa: PLC0415

    if not stack.is_in_cloud:
        settings = load_file(stack.path, stack.project.root)
        if isinstance(settings, LocalSettings):
            return settings
    raise StackError(
        f"--stack: given {stack.name!r}, which trains in a cluster; allowed: a stack of one "
        "machine\n  write falaj:sweeps into a stack of workloads: falaj settings sweeps"
    )


def _space(text: str, settings: LocalSettings) -> tuple[str, str]:
    """A parameter that is searched, as the workload calls it, and its values.

    Raises:
        StackError: it is none that the stack's file could say.
    """
    from falaj.workloads.training.sweep import TUNABLE  # noqa: PLC0415 - imports Optuna

    name, equals, values = text.partition("=")
    sections = type(settings.training).model_fields
    allowed = {sections[each].alias or each: each for each in TUNABLE if each in sections}
    option = name.strip().removeprefix("options.")
    if equals and option != name.strip():
        if settings.training.code is None:
            raise StackError(
                f"--search: given {text!r}, but the stack trains no model of its own, which alone "
                "has options"
            )
        return f"{_OWN}{option}", values
    if not equals or name.strip() not in allowed:
        raise StackError(
            f"--search: given {text!r}; allowed: {', '.join(allowed)}, and options.NAME of a "
            "model of your own, each as NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=ONE|TWO"
        )
    return allowed[name.strip()], values


def _dataset(stack: StackFile, settings: LocalSettings) -> Path:
    """The snapshot that the stack's file asks for; one that is there is taken."""
    if not (stack.site / "keyring").is_dir():
        raise StackError(
            f"stack {stack.name} has no keys yet, with which its data are sealed; make them with: "
            f"{projects.command('up', stack)}"
        )
    target = ["--target", settings.target] if settings.target is not None else []
    cut = [
        part
        for name in _CUT
        if (given := getattr(settings.training, name)) is not None
        for part in (f"--{name}", str(given))
    ]
    if settings.features is not None:
        cut += settings.features.options(stack.project.root)
    start = _folder(stack, settings.training.start)
    if start is not None and settings.is_text(stack.project.root):
        cut += ["--vocabulary-of", str(start)]
    done = subprocess.run(
        [
            sys.executable, "-P", "-m", _training(), "dataset",
            "--source", settings.dataset_source(stack.project.root), *target, *cut,
            "--task", settings.task, "--seed", str(settings.split.seed),
            "--holdout", str(settings.split.holdout), "--output", str(stack.site / "datasets"),
            "--keyring", str(stack.site / "keyring"), "--json",
        ],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise StackError("the dataset can't be used, as said above")
    return Path(json.loads(done.stdout)["path"])


def _run_options(
    stack: StackFile, settings: LocalSettings, spaces: dict[str, str], code: Path | None
) -> list[str]:
    """The options of every trial: what the stack's file says and isn't searched."""
    from falaj.components.local.provider.workloads import own_options  # noqa: PLC0415 - an extra

    training = settings.training
    words = ["--keyring", str(stack.site / "keyring")]
    instead = {
        "code": code, "processes": training.all_processes,
        "teacher": _folder(stack, training.teacher), "start": _folder(stack, training.start),
    }  # fmt: skip
    for name in arguments_of(TrainingRunArgs):
        if name not in type(training).model_fields:
            continue
        value = instead.get(name, getattr(training, name))
        if name in _OTHERWISE or value == _ADDED.get(name):
            continue
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif name not in spaces and value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for part, number in training.division.options.items():
        words += [f"--{part}", str(number)]
    fixed = {
        name: each for name, each in training.options.items() if f"{_OWN}{name}" not in spaces
    }
    return [*words, *own_options(fixed)]


def _tracking(stack: StackFile, settings: LocalSettings) -> list[str]:
    """Options of the tracking server: where a sweep is sent doesn't name its folder."""
    from falaj.components.local.provider.workloads import tracking_options  # noqa: PLC0415
    from falaj.stacks.settings.tracking import tracking_args  # noqa: PLC0415

    return tracking_options(tracking_args(settings.training.tracking, stack.project.root))


def _code(stack: StackFile, settings: LocalSettings) -> Path | None:
    """The folder of a model of one's own, if the stack trains one."""
    return _folder(stack, settings.training.code)


def _folder(stack: StackFile, folder: str | None) -> Path | None:
    """A folder that the stack's file names, if it does."""
    from falaj.stacks.settings.paths import resolved  # noqa: PLC0415

    return resolved(folder, stack.project.root) if folder is not None else None


def _name(dataset: Path, words: list[str], every: list[str], code: Path | None) -> str:
    """The name of a sweep's folder: other data, values, options or code are another sweep."""
    from falaj.workloads.training.own_code import read_folder  # noqa: PLC0415

    digest = read_folder(code).digest if code is not None else ""
    decisive = json.dumps([dataset.name, sorted(words), every, digest])
    return f"sweep-{hashlib.sha256(decisive.encode()).hexdigest()[:_SHORT]}"


def _best(places: list[str]) -> dict[str, Any] | None:
    """The parameters of the best trial; None where none was done."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", _training(), "study", *places],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    best = json.loads(done.stdout)["best"] if done.returncode == 0 else None
    return None if best is None else best["parameters"]


def _take(
    stack: StackFile, settings: LocalSettings, parameters: dict[str, Any], *, quiet: bool
) -> None:
    """Write parameters into the stack's file."""
    from falaj.stacks.command import config  # noqa: PLC0415
    from falaj.stacks.settings import edit  # noqa: PLC0415

    sections = type(settings.training).model_fields
    values: dict[str, str] = {}
    for name, value in parameters.items():
        option = name.removeprefix(_OWN)
        key = f"options.{option}" if option != name else sections[name].alias
        values[f"falaj:training.{key}"] = str(value)
    if quiet:
        edit.set_values(stack.path, stack.project.root, values)
        return
    config.put(stack, [part for pair in values.items() for part in pair])
    say(f"publish it, without training again: {projects.command('up', stack)}")
