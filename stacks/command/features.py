"""``falaj features``: rows of a file, with what a stack's feature tables knew by their time."""

from __future__ import annotations

from pathlib import Path

import click

from falaj.stacks.command import service
from falaj.stacks.command.options import stack_option, the_stack
from falaj.stacks.errors import StackError
from falaj.stacks.settings.local import LocalSettings


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@stack_option
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="A .csv or .parquet file."
)
@click.option(
    "--encoding", help="Of a CSV file (default: UTF-8, or what the byte order mark says)."
)
def features(
    *, file: Path, stack: str | None, project: Path | None, output: Path, encoding: str | None
) -> int:
    """Give the rows of a file what the stack's feature tables knew by their time.

    FILE is a .csv or .parquet file with the keys and the time that falaj:features names. The
    output has its columns and those of the tables, as the model and `falaj predict` take them.
    """
    found = the_stack(stack, project)
    settings = found.settings()
    if not isinstance(settings, LocalSettings) or settings.features is None:
        raise StackError(
            f"--stack: given {found.name!r}, whose file has no falaj:features; allowed: a stack "
            "of one machine that has"
        )
    encoded = ["--encoding", encoding] if encoding is not None else []
    return service.run_workload([
        "falaj.workloads.training", "features", "--source", str(file), "--output", str(output),
        *settings.features.options(found.project.root), *encoded,
    ])  # fmt: skip
