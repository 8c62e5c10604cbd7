"""``falaj predict`` and ``falaj unseal``: files of rows, by the model of a local stack."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from falaj.components.local.machine import TABLES
from falaj.components.specification.workload_bounds import choice, decimals
from falaj.stacks.command import installation, service
from falaj.stacks.command.console import complain, say
from falaj.stacks.command.options import models_here, stack_option, the_stack
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings.local import LocalSettings
from falaj.stacks.watching.aliases import store_of
from falaj.workloads.bounds import VERSION_NUMBER
from falaj.workloads.errors import REFUSED, WorkloadError
from falaj.workloads.training.header import read_header

_MODULE: Final = "falaj.workloads.batch"
_FORMAT: Final = choice("batch", "format")
#: As packages are referred to elsewhere: a name with an alias, or with a version.
_REFERENCE: Final = re.compile(rf"([^@:]+)(?:@([^@:]+)|:({VERSION_NUMBER}))?")


@dataclass(frozen=True)
class Reference:
    """Which model: ``credit@production``, ``credit:7`` or ``credit``."""

    model: str
    alias: str
    version: str

    @classmethod
    def of(cls, text: str) -> Reference:
        """Read a reference. Raises StackError: it isn't one."""
        found = _REFERENCE.fullmatch(text)
        if found is None:
            raise StackError(
                f"--model: given {text!r}; allowed: a name, with @ and an alias or : and a "
                "version behind it, such as credit@production or credit:7"
            )
        return cls(found[1], found[2] or "", found[3] or "")

    def options(self, alias: str) -> list[str]:
        """Options of the workload; ``alias`` is taken where none is said."""
        which = ["--version", self.version] if self.version else ["--alias", self.alias or alias]
        return ["--model", self.model, *which]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@stack_option
@click.option(
    "--model",
    "reference",
    metavar="REF",
    shell_complete=models_here,
    help="A name, of a further model too, with @ALIAS or :VERSION behind it (default: what the "
    "stack serves).",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="A .csv, .jsonl or .parquet file (default: named as the first file, in the stack's "
    "folder of predictions; with --plain in the working folder).",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(_FORMAT.words),
    help=f"Of the output where its name isn't given (default: {_FORMAT.default}).",
)
@click.option(
    "--keep", multiple=True, metavar="COLUMN", help="Goes along; may be given again, '*' is all."
)
@click.option(
    "--encoding", help="Of CSV files (default: UTF-8, or what the byte order mark says)."
)
@click.option(
    "--decimal", type=click.Choice(decimals().values), help="Default: what each column tells."
)
@click.option("--plain", is_flag=True, help="Don't seal the output.")
@click.option(
    "--skip-bad-rows", is_flag=True, help="Write rows that can't be predicted to a file beside."
)
@click.option(
    "--raw-text", is_flag=True, help="Leave text that a spreadsheet would take for a formula."
)
@click.option("--restart", is_flag=True, help="Throw away what an earlier run has done.")
@click.option("--overwrite", is_flag=True, help="Replace an output that is there.")
@click.option("--dry-run", is_flag=True, help="Check model and rows; write nothing.")
def predict(
    *,
    files: tuple[Path, ...],
    stack: str | None,
    project: Path | None,
    reference: str | None,
    output: Path | None,
    kind: str | None,
    keep: tuple[str, ...],
    encoding: str | None,
    decimal: str | None,
    plain: bool,
    skip_bad_rows: bool,
    raw_text: bool,
    restart: bool,
    overwrite: bool,
    dry_run: bool,
) -> int:
    """Predict the rows of files by the model of a stack on this machine.

    FILES are .csv, .jsonl and .parquet files, folders of them, and dataset snapshots. The output
    is sealed with the stack's key ring; `falaj unseal` writes it out. A run that was ended goes
    on where it was.
    """
    found = the_stack(stack, project)
    if found.is_in_cloud:
        raise StackError(
            f"stack {found.name} is of a cloud, and files are predicted where they are: give a "
            "stack of this machine, or write falaj:batchInferences into a stack of workloads"
        )
    config = service.require_config(found)
    chosen = Reference.of(str(config["model"]) if reference is None else reference)
    own = _config_of(config, chosen.model)
    if output is not None and kind is not None:
        raise StackError("--format: is told by the name of --output; leave one of both away")
    target = output
    if target is None:
        stem = files[0].resolve().stem or "predictions"
        name = f"{stem}.predictions.{kind or _FORMAT.default}"
        target = Path.cwd() / name if plain else found.site / "batches" / name
    values = {"--encoding": encoding, "--decimal": decimal}
    flags = {
        "--plain": plain, "--skip-bad-rows": skip_bad_rows, "--raw-text": raw_text,
        "--restart": restart, "--overwrite": overwrite, "--dry-run": dry_run,
    }  # fmt: skip
    status = _run(
        "run", "--registry", str(own["registry"]), *chosen.options(str(own["alias"])),
        "--keyring", str(config["keyring"]), "--output", str(target),
        *(() if own is config else ("--package-keyring", str(own["keyring"]))),
        *(f"--keep={column}" for column in keep),
        *(part for name, value in values.items() if value for part in (name, value)),
        *(name for name, given in flags.items() if given),
        "--", *map(str, files),
    )  # fmt: skip
    if status == REFUSED and (bare := _unjoined(found, files)) is not None:
        joining = ["features", str(bare), "--output", f"joined-{bare.stem}.csv"]
        again = installation.call(shlex.join([*joining, "--stack", found.name]))
        complain(f"the stack has feature tables; their columns are given to rows by: {again}")
    sealed = target.with_name(f"{target.name}.sealed")
    if status == 0 and not (plain or dry_run) and sealed.exists():
        opening = ["unseal", str(sealed), "--output", target.name, "--stack", found.name]
        say(f"write them out in plain with: {installation.call(shlex.join(opening))}")
    return status


def _unjoined(found: StackFile, files: Sequence[Path]) -> Path | None:
    """The first table that has no column of the stack's feature tables; None: it has no such."""
    settings = found.settings()
    if not isinstance(settings, LocalSettings) or settings.features is None:
        return None
    for each in files:
        if each.suffix.lower() not in TABLES:
            continue
        try:
            names = read_header(each)
        except (WorkloadError, OSError):  # told of it already
            continue
        if not any(name.partition(".")[0] in settings.features.tables for name in names):
            return each
    return None


def _config_of(config: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """What holds for a model that the server has, or that is in the stack's own registry.

    Raises:
        StackError: neither is so.
    """
    served, own = service.models_of(config), store_of(config).models()
    if model in served:
        return service.config_of(config, model)
    if model in own:
        return config
    raise StackError(
        f"--model: given {model!r}, which neither the server nor the stack's registry has; "
        f"allowed: {', '.join(dict.fromkeys((*served, *own)))}"
    )


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@stack_option
@click.option(
    "--output", type=click.Path(path_type=Path), help="Default: what is printed, the rows alone."
)
def unseal(*, file: Path, stack: str | None, project: Path | None, output: Path | None) -> int:
    """Write sealed predictions out in plain, or the bad rows beside them.

    FILE is the .sealed file; its record lies beside it.
    """
    found = the_stack(stack, project)
    config = service.require_config(found)
    where = ["--output", str(output)] if output is not None else []
    status = _run("open", "--keyring", str(config["keyring"]), *where, "--", str(file))
    if status == REFUSED and file.is_file():
        _say_whose(file, found)
    return status


def _say_whose(file: Path, stack: StackFile) -> None:
    """Say which other stacks may have sealed a file that this one's keys don't open."""
    siblings = [stack.sibling(each) for each in stack.project.stack_names if each != stack.name]
    others = [each for each in siblings if service.config_path(each).is_file()]
    place = file.resolve()
    of = [each for each in others if place.is_relative_to(each.site.resolve())]
    if of:
        hint = f"{file} lies in the folder of stack {of[0].name}: give --stack {of[0].name}"
    elif others:
        names = ", ".join(each.name for each in others)
        hint = (
            "sealed files open with the keys of the stack that predicted them, and this was "
            f"tried with those of {stack.name}; if another one did, give it with --stack: {names}"
        )
    else:
        return
    # The standard output may be the file that rows are written to.
    print(f"  {hint}", file=sys.stderr, flush=True)


def _run(*arguments: str) -> int:
    return service.run_workload([_MODULE, *arguments])
