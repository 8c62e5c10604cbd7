"""``falaj``: bring stacks up and down, judge them, and look after what they serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from falaj.engine.commands import INTERRUPTED, REFUSED, call
from falaj.engine.errors import EngineError
from falaj.engine.extras import extras_of
from falaj.engine.short_lived import collect_rarely
from falaj.stacks.command.console import complain
from falaj.stacks.command.tree import falaj
from falaj.stacks.errors import StackError

#: Further errors whose text is the message, by the module that defines them: one that is not
#: loaded has raised nothing.
_REFUSALS: Final = {
    "falaj.policies.model.settings": "PolicyError",
    "falaj.components.catalogue.sources": "CatalogueError",
    "falaj.workloads.errors": "WorkloadError",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 done, 1 failed, 2 refused, 130 interrupted."""
    collect_rarely()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return call(falaj, "falaj", given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        return _add(error)
    except Exception as error:
        if not isinstance(error, _refusals()):
            raise
        return _refuse(error)


def missing_extras(error: ModuleNotFoundError) -> list[str]:
    """The extras of ours that have a module which isn't there; none where it is none of theirs."""
    needed: set[str] = set()
    here: TracebackType | None = error.__traceback__
    while here is not None:
        needed |= extras_of(str(here.tb_frame.f_globals.get("__name__", "")))
        here = here.tb_next
    return [] if (error.name or "").partition(".")[0] == "falaj" else sorted(needed)


def _add(error: ModuleNotFoundError) -> int:
    """Have what is missing where that can be; the command then begins anew."""
    needed = missing_extras(error)
    if not needed:
        raise error
    from falaj.stacks.command import installation  # noqa: PLC0415 - on failure only

    try:
        installation.require(needed)
    except StackError as refusal:
        return _refuse(refusal)
    return _refuse(
        f"the Python package {error.name} is missing\n  {installation.how_to_install(needed)}"
    )


def _refusals() -> tuple[type[BaseException], ...]:
    loaded = [
        getattr(sys.modules[module], name)
        for module, name in _REFUSALS.items()
        if module in sys.modules
    ]
    return (StackError, EngineError, *loaded)


def _refuse(error: object) -> int:
    complain(str(error))
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
