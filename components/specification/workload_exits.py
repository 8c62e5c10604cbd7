"""What a training process's exit status means, as the workloads themselves say.

The file beside this one is written by ``python -m falaj.workloads.exits``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_suffix(".json")


@cache
def _all() -> list[dict[str, Any]]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def exit_codes(then: str) -> tuple[int, ...]:
    """The statuses after which the same is done, in their order.

    Args:
        then: ``end`` (the job is over at once), ``retry`` (it costs a restart), ``free`` (it is
            started again for nothing) or ``done``.

    Raises:
        KeyError: there is no status of that kind.
    """
    found = tuple(int(each["code"]) for each in _all() if each["then"] == then)
    if not found:
        raise KeyError(then)
    return found
