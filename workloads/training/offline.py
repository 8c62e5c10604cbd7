"""What a team's own code is kept from while it is imported, made and tried: the network.

Libraries of models fetch weights by a name, and report their use, unless they are told not to.
Both would go abroad. It guards against what is done without a thought, not against code that means
to: that runs with a person's rights, as any program.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any, Final, cast

from falaj.workloads.errors import WorkloadError, printable

VARIABLES: Final = {
    # Nothing is fetched, and nothing is reported:
    # https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "WANDB_MODE": "offline",
}
"""Set before a team's code is imported, whatever they were: libraries read them as they load."""

HOW: Final = (
    "weights and tokenizers are read from folders of this machine: fetch them once on a machine "
    "that may, look at what they are, and give the folder's path as an option of the model"
)

_WORDS: Final = (
    "huggingface.co", "HF_HUB_OFFLINE", "offline mode", "is not a local folder",
    "LocalEntryNotFoundError", "OfflineModeIsEnabled",
)  # fmt: skip
"""How libraries say that they would have fetched something."""

_ASKS: Final = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.connect"})
_IS_KEPT: ContextVar[bool] = ContextVar("is_kept", default=False)


class NetworkError(WorkloadError):
    """A team's code wanted the network."""


def set_variables() -> None:
    """Tell libraries that are imported from now on to fetch and to report nothing."""
    os.environ.update(VARIABLES)


@contextlib.contextmanager
def offline() -> Generator[None]:
    """Refuse the thread that runs the block each host but this one; others go on.

    Raises:
        NetworkError: it wanted another one, unless its code caught that.
    """
    _hook()
    token = _IS_KEPT.set(True)
    try:
        yield
    finally:
        _IS_KEPT.reset(token)


def wanted(error: BaseException) -> bool:
    """Whether an error says that something would have been fetched."""
    text = f"{type(error).__name__} {error}"
    return isinstance(error, NetworkError) or any(each in text for each in _WORDS)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _ASKS or not _IS_KEPT.get():
        return
    host, port = _place(event, arguments)
    if host is not None and not _is_here(host):
        shown = printable(host if port is None else f"{host}:{port}")
        raise NetworkError(f"it wants {shown} of the network, which is kept from it: {HOW}")


def _place(event: str, arguments: tuple[Any, ...]) -> tuple[str | None, object]:
    """The host and the port that are asked for; None: of a socket that is a file."""
    if event == "socket.gethostbyname":
        host, port = arguments[0], None
    elif event == "socket.getaddrinfo":
        host, port = arguments[0], arguments[1]
    else:
        address: Any = arguments[1]
        if not isinstance(address, tuple):
            return None, None
        host, port = cast("tuple[Any, ...]", address)[:2]
    if host is None:
        return None, None
    return host.decode(errors="replace") if isinstance(host, bytes) else str(host), port


def _is_here(host: str) -> bool:
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


_hooked: list[bool] = []


def _hook() -> None:
    """Python's hooks stay for good: one is enough."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_refuse)
