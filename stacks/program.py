"""Runs a stack: its settings, then its platform's blueprint. Programs of templates call `main`."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pulumi

from falaj.engine import debug_lines
from falaj.engine.errors import EngineError
from falaj.engine.short_lived import collect_rarely
from falaj.stacks.errors import StackError
from falaj.stacks.settings import load_engine

#: https://docs.pydantic.dev/latest/concepts/plugins/
_PLUGINS: Final = "PYDANTIC_DISABLE_PLUGINS"


def main(root: Path | None = None) -> None:
    """Declare the stack's resources.

    Args:
        root: folder where relative paths of the settings start. Default: the project's folder.

    Raises:
        pulumi.RunError: the configuration was refused; no resource was registered.
    """
    collect_rarely()  # whatever language host runs it
    debug_lines.leave_out()
    folder = root or Path(__file__).resolve().parents[1]
    try:
        # Sections that the blueprint asks are built as it asks them.
        with without_plugins():
            _declare(folder)
    except (StackError, EngineError, pulumi.InputPropertiesError) as error:
        raise pulumi.RunError(str(error)) from None


@contextmanager
def without_plugins() -> Generator[None]:
    """Let pydantic look for no plugins: it would read what every installed package registers.

    That takes as long as all else that a stack's settings are checked with, and no plugin has to
    know of them. What builds models afterwards, such as a person's own program, has its plugins.
    It is for a process that runs one stack: a variable is of all threads, and of programs that
    they start.
    """
    before = os.environ.get(_PLUGINS)
    os.environ[_PLUGINS] = "__all__"
    try:
        yield
    finally:
        os.environ.pop(_PLUGINS)
        if before is not None:
            os.environ[_PLUGINS] = before


def _declare(folder: Path) -> None:
    settings = load_engine(pulumi.get_stack(), folder)
    # What the other platforms stand on would be most of what a program loads.
    if settings.platform == "local":
        from falaj.stacks.blueprints.local import declare_local  # noqa: PLC0415

        declare_local(settings, folder)
    else:
        from falaj.stacks.cloud_program import declare  # noqa: PLC0415

        declare(settings, folder)
