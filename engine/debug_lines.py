"""The SDK's debug lines, left out where nobody sees them.

For each resource the SDK tells the engine four lines of what it is doing, and waits until the
engine has each: for a program of 276 resources that is 1,163 calls, a seventh of its time and two
thirds of all events. The engine shows them with ``--debug`` alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pulumi

_VARIABLE: Final = "FALAJ_NO_DEBUG_LINES"
LEFT_OUT: Final[Mapping[str, str]] = {_VARIABLE: "1"}
"""Variables of a run of the engine whose debug lines nobody reads."""


def leave_out() -> None:
    """Say no debug line from now on, in a run that was started with `LEFT_OUT`."""
    if os.environ.get(_VARIABLE) == "1":
        import pulumi  # noqa: PLC0415 - who asks for it has no SDK loaded

        pulumi.log.debug = _leave_out


def _leave_out(
    msg: str,
    resource: pulumi.Resource | None = None,
    stream_id: int | None = None,
    ephemeral: bool | None = None,
) -> None:
    del msg, resource, stream_id, ephemeral
