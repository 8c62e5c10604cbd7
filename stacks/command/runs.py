"""``falaj runs``: what was trained on this machine, one beside the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import click

from falaj.stacks.command import project as projects
from falaj.stacks.command import service
from falaj.stacks.command.console import say, table
from falaj.stacks.command.options import stack_option, the_stack
from falaj.stacks.errors import StackError
from falaj.stacks.runs import SHORT, Run, differences, find, in_folder, merged, of_site
from falaj.workloads.training import record as records

#: The figure that a line has, the first of these that a run has.
_FIRST: Final = tuple(records.FIRST.values())
_HEADLINES: Final = (*_FIRST, *(f"validation_{each}" for each in _FIRST))
#: Epochs of a run that are shown, spread over all.
_EPOCHS_SHOWN: Final = 10
_FEWEST: Final = 2
#: What is compared without saying of what it is.
_UNTITLED: Final = ("parameters", "figures")
_OF_EPOCHS: Final = (
    "loss", "validation_loss", *_HEADLINES[len(_FIRST) :], "seconds",
)  # fmt: skip

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_folder = click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Take the runs in a folder, as a sweep leaves them, and not a stack's.",
)


@click.group()
def runs() -> None:
    """See what was trained on this machine, and compare.

    RUN is a version (3, or NAME:3), an alias (@production) or the beginning of a run's digest.
    """


@runs.command("list")
@_json
@_folder
@stack_option
def list_(*, as_json: bool, folder: Path | None, stack: str | None, project: Path | None) -> int:
    """List runs, the newest first.

    Published versions, and runs that train, stopped or weren't published.
    """
    found, place = _runs(folder, stack, project)
    if as_json:
        # Hundreds of epochs of each are what `show` is for.
        listed = [{k: v for k, v in each.to_json().items() if k != "history"} for each in found]
        say(json.dumps(listed, indent=2, ensure_ascii=False))
        return 0
    if not found:
        say(f"{place} has no runs yet")
        return 0
    rows = [("run", "version", "state", "model", "data", "held-out", "validation loss", "when")]
    rows += [_row(each) for each in found]
    say(table(rows))
    for each in found:
        if each.error:
            say(f"{each.name}: {each.error}")
    return 0


@runs.command()
@click.argument("run")
@_json
@_folder
@stack_option
def show(
    *, run: str, as_json: bool, folder: Path | None, stack: str | None, project: Path | None
) -> int:
    """Show a run: its data, parameters, figures and epochs."""
    [found] = _chosen((run,), folder, stack, project)
    if as_json:
        say(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return 0
    rows = [
        ("run", found.identity or "unknown"),
        ("state", _state(found)),
        ("model", found.kind or "not chosen yet"),
        ("when", found.when),
        *((f"data {name}", _formatted(value)) for name, value in found.data.items()),
        *((f"code {name}", _formatted(value)) for name, value in found.code.items()),
        *((f"began with {name}", _formatted(value)) for name, value in found.start.items()),
        ("folder", str(found.folder) if found.folder else "gone: the package has its figures"),
    ]
    if found.versions:
        rows.insert(1, ("version", _versions(found)))
    _say_pairs("", rows)
    _say_pairs("figures", [(name, _figure(name, each)) for name, each in found.figures.items()])
    _say_pairs("parameters", [(name, _formatted(each)) for name, each in found.parameters.items()])
    if found.history:
        say(f"\nepochs ({len(found.history)})")
        say(table(list(_epochs(found.history))))
    if found.error:
        say(f"\n{found.error}")
    return 0


@runs.command()
@click.argument("run", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="Show what doesn't differ as well.")
@_json
@_folder
@stack_option
def compare(
    *,
    run: tuple[str, ...],
    everything: bool,
    as_json: bool,
    folder: Path | None,
    stack: str | None,
    project: Path | None,
) -> int:
    """Show what differs between runs.

    Parameters, data, code and figures, side by side.
    """
    if len(set(run)) < _FEWEST:
        raise StackError(f"RUN: given {', '.join(run)}; allowed: two or more that differ")
    chosen = _chosen(run, folder, stack, project)
    parts: dict[str, Callable[[Run], Mapping[str, Any]]] = {
        "parameters": lambda each: each.parameters,
        "data": lambda each: each.data,
        "code": lambda each: each.code,
        "model": lambda each: {"kept": each.kind},
        "figures": lambda each: each.figures,
    }
    compared = {title: differences(chosen, of) for title, of in parts.items()}
    if as_json:
        names = [each.name for each in chosen]
        differ = {title: dict(found) for title, (found, _) in compared.items()}
        same = {title: found for title, (_, found) in compared.items()}
        say(json.dumps({"runs": names, "differ": differ, "same": same}, indent=2))
        return 0
    rows = [("", *(each.name for each in chosen))]
    rows.append(("run", *(each.identity[:SHORT] for each in chosen)))
    for title, (differ, same) in compared.items():
        first = parts[title](chosen[0])
        alike = {name: (first.get(name),) * len(chosen) for name in same if everything}
        for name, values in {**differ, **alike}.items():
            cells = (_cell(title, name, value) for value in values)
            rows.append((_titled(title, name), *cells))
    say(table(rows))
    if not everything:
        names = [
            _titled(title, name)
            for title in ("parameters", "data", "code")
            for name in compared[title][1]
        ]
        say(f"\nthe same: {', '.join(names) or 'nothing'}")
    return 0


@runs.command("export")
@click.argument("run")
@click.option(
    "--output",
    metavar="FOLDER",
    required=True,
    type=click.Path(path_type=Path),
    help="A new folder.",
)
@stack_option
def export(*, run: str, output: Path, stack: str | None, project: Path | None) -> int:
    """Write a language model's weights for other programs.

    As Llama's, in safetensors, with the vocabulary as a tokenizer.json. They are neither encrypted
    nor signed there: keep the folder in the country, and where its data may be.
    """
    [chosen] = _chosen((run,), None, stack, project)
    found = the_stack(stack, project)
    if chosen.folder is None:
        raise StackError(
            f"RUN: given {run!r}, whose folder is gone: only its package is left; train it again "
            f"with {projects.command('up', found)}"
        )
    from falaj.components.local.provider.workloads import TRAINING  # noqa: PLC0415 - an extra

    return service.run_workload(
        [TRAINING, "export", "--run", str(chosen.folder), "--keyring",
         str(found.site / "keyring"), "--output", str(output)]
    )  # fmt: skip


def _runs(folder: Path | None, stack: str | None, project: Path | None) -> tuple[list[Run], str]:
    """The runs that are asked for, and where they are."""
    if folder is not None:
        return merged(in_folder(folder)), str(folder)
    found = the_stack(stack, project)
    if found.is_in_cloud:
        raise StackError(
            f"--stack: given {found.name!r}, whose runs are in a cluster; allowed: a stack of one "
            f"machine\n  see {projects.command('logs', found)}, and falaj pipelines"
        )
    return of_site(found.site), f"stack {found.name}"


def _chosen(
    names: Sequence[str], folder: Path | None, stack: str | None, project: Path | None
) -> list[Run]:
    found, place = _runs(folder, stack, project)
    if not found:
        raise StackError(f"RUN: given {', '.join(names)}, but {place} has no runs yet")
    return [find(found, name) for name in names]


def _row(run: Run) -> tuple[str, ...]:
    headline = next((name for name in _HEADLINES if name in run.figures), None)
    held_out = ""
    if headline is not None:
        held_out = f"{headline.replace('_', ' ')} {_figure(headline, run.figures[headline])}"
    loss = run.figures.get("validation_loss")
    return (
        run.identity[:SHORT] or "?",
        _versions(run),
        _state(run),
        run.kind,
        str(run.data.get("digest", ""))[:SHORT],
        held_out,
        "" if loss is None else f"{loss:.4g}",
        run.when,
    )


def _versions(run: Run) -> str:
    numbers = ", ".join(map(str, run.versions))
    aliases = f" ({', '.join(run.aliases)})" if run.aliases else ""
    return f"{run.model}:{numbers}{aliases}" if numbers else ""


def _state(run: Run) -> str:
    if run.state not in ("training", "stopped"):
        return run.state
    return f"{run.state}, epoch {run.epochs} of {run.parameters.get('epochs', '?')}"


def _figure(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{int(value):,}"
    return records.figure(name.removeprefix("served_").removeprefix("validation_"), value)


def _formatted(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        entries = cast("Mapping[str, Any]", value)
        return ", ".join(f"{name} {_formatted(each)}" for name, each in entries.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _titled(title: str, name: str) -> str:
    return name if title in _UNTITLED else f"{title} {name}"


def _cell(title: str, name: str, value: Any) -> str:
    if value is None:
        return "-"
    if title == "figures":
        return _figure(name, value)
    text = _formatted(value)
    return text[:SHORT] if name in ("digest", "own") else text


def _say_pairs(title: str, pairs: Sequence[tuple[str, str]]) -> None:
    if not pairs:
        return
    if title:
        say(f"\n{title}")
    wide = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"  {name:<{wide}}  {value}".rstrip())


def _epochs(history: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    names = [name for name in _OF_EPOCHS if any(name in each for each in history)]
    yield ("epoch", *(name.replace("_", " ") for name in names))
    last = len(history) - 1
    places = range(_EPOCHS_SHOWN) if last >= _EPOCHS_SHOWN else range(last + 1)
    steps = max(len(places) - 1, 1)
    for index in dict.fromkeys(round(place * last / steps) for place in places):
        epoch = history[index]
        cells = (epoch.get(name) for name in names)
        yield (
            str(epoch.get("epoch", "")),
            *(
                _figure(name, each) if isinstance(each, int | float) else "-"
                for name, each in zip(names, cells, strict=True)
            ),
        )
