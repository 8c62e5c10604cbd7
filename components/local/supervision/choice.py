"""Which supervisor this machine has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from falaj.components.local.machine.errors import LocalError
from falaj.components.local.supervision import systemd
from falaj.components.local.supervision.program import Supervisor
from falaj.components.local.supervision.supervisord import Supervisord
from falaj.components.local.supervision.systemd import Systemd

AUTO: Final = "auto"
KINDS: Final[Mapping[str, Callable[[], Supervisor]]] = {
    "systemd": Systemd,
    "supervisord": Supervisord,
}


def choose(kind: str) -> Supervisor:
    """The supervisor of this kind; for ``auto`` systemd where the user has it, else supervisord.

    Raises:
        LocalError: systemd was asked for and is not there.
    """
    if kind == AUTO:
        kind = "systemd" if systemd.is_usable() else "supervisord"
    elif kind == "systemd" and not systemd.is_usable():
        raise LocalError(
            "supervisor: given 'systemd', but `systemctl --user` doesn't work for this user; "
            "allowed here: auto, supervisord"
        )
    return KINDS[kind]()
