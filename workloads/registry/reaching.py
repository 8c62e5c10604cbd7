"""How a pod reaches the registry of images: its address, and the login that it was given."""

from __future__ import annotations

import argparse
from pathlib import Path

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.aliases import DAYS
from falaj.workloads.registry.distribution import PAUSES, RegistryClient, read_login
from falaj.workloads.registry.shelf import Shelf


def add_options(command: argparse.ArgumentParser) -> None:
    """Options of a command that sends: the registry, its login, and how long a record holds."""
    command.add_argument(
        "--to", required=True, metavar="HOST/PATH",
        help="the registry, and in it the folder of all models",
    )  # fmt: skip
    command.add_argument(
        "--login", type=Path, metavar="FILE",
        help="the registry's login, as ~/.docker/config.json has it; default: none is shown",
    )  # fmt: skip
    command.add_argument(
        "--days", type=int, default=DAYS,
        help="for which the alias's record is valid; default: %(default)s",
    )  # fmt: skip


def client_of(host: str, login: Path | None) -> RegistryClient:
    """Who asks a registry.

    Args:
        host: the registry's, with its port.
        login: a file in the form of ``~/.docker/config.json``; None: no login is shown.

    Raises:
        WorkloadError: the file can't be used, or has no login for the host.
    """
    return RegistryClient({host: read_login(login, host)} if login else {}, pauses=PAUSES)


def shelf_at(to: str, login: Path | None) -> Shelf[RegistryClient]:
    """The packages of a registry, ``HOST[:PORT]/PATH/FOLDER``.

    Raises:
        WorkloadError: it isn't of this form, or see `client_of`.
    """
    address, slash, folder = to.rpartition("/")
    if not slash or not address or not folder:
        raise WorkloadError(f"--to: given {to!r}; allowed: HOST[:PORT]/PATH/FOLDER")
    return Shelf(address, folder, client_of(address.partition("/")[0], login))
