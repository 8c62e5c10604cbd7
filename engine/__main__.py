"""``falaj engine ensure | env | doctor``: the engine and what it needs."""

from __future__ import annotations

import json
import shlex
import sys

import click

from falaj.engine.commands import run
from falaj.engine.install import ensure_engine
from falaj.engine.launch import additions


@click.group()
def engine() -> None:
    """The Pulumi engine that is used, and what it needs."""


@engine.command()
@click.option("--json", "as_json", is_flag=True, help="Print the engine as one JSON object.")
def ensure(as_json: bool) -> None:
    """Have a Pulumi engine, getting one if need be."""
    found = ensure_engine()
    if as_json:
        fields = vars(found) | {
            "path": str(found.path),
            "bin_dirs": [str(folder) for folder in found.bin_dirs],
        }
        click.echo(json.dumps(fields))
    else:
        click.echo(
            f"pulumi {found.version} ({found.source}) at {found.path}, "
            f"Python language host: {found.language_host}"
        )


@engine.command()
def env() -> None:
    """Print shell exports with which plain `pulumi` works; no secrets are in them."""
    for name, value in additions(ensure_engine()).items():
        click.echo(f"export {name}={shlex.quote(value)}")


@engine.command()
def doctor() -> int:
    """Say what is there, what is not, and what to do."""
    from falaj.engine import doctor as examination  # noqa: PLC0415 - it looks at everything

    return examination.main()


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 done, 1 the doctor found something, 2 it cannot be done."""
    return run(engine, "falaj engine", arguments)


if __name__ == "__main__":
    sys.exit(main())
