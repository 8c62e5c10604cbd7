"""Build the engine from its Go module, for networks that reach nothing but a Go module proxy."""

from __future__ import annotations

from pathlib import Path

from falaj.engine.gobuild import GoModule, compile_commands, find_go
from falaj.engine.progress import Report
from falaj.engine.versions import pins

__all__ = ["build_engine", "find_go"]

MODULE = Path(__file__).with_name("gomodule")


def build_engine(target: Path, report: Report) -> None:
    """Compile the pinned engine into the file `target`.

    Raises EngineError: no usable Go, modules that cannot be had, a compilation that fails.
    """
    pinned = pins()
    module = GoModule(
        MODULE,
        f"the engine, pulumi {pinned.version}",
        pinned.go_toolchain,
        {pinned.go_version_variable: f"v{pinned.version}"},
    )
    compile_commands(module, {target.name: pinned.go_package}, target.parent, report)
