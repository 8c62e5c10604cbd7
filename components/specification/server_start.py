"""The end of every start of a machine or container of the inference tier: from a package in the
registry to the server.

Runs inside the inference image, as a part of each cloud's ``start_server.py``, whose text has it
when it is sent (`falaj.components.specification.sent_programs`): of the standard library alone.
Settings come as JSON in ``FALAJ_SERVING``: ``repository`` (host and name), ``package_digest`` and
``keys_digest`` of what is served, ``model`` and ``version`` that it is, ``folder``, ``secrets``,
``host_name``, ``port``, ``workers``, and what the cloud's own part reads.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


def commands(settings: dict[str, Any], login: Path) -> list[list[str]]:
    """Take the package over, and write the server's ``service.json``: the image knows its form.

    The first fetches the package by its digests, and verifies its signature before an alias stands
    for it.
    """
    folder, secrets = Path(settings["folder"]), Path(settings["secrets"])
    ring = secrets / "keyring"
    packages = [
        *("--registry", str(folder / "registry"), "--keyring", str(ring)),
        *("--model", settings["model"]),
    ]
    take = [
        *(sys.executable, "-m", "falaj.workloads.registry", "import", *packages),
        *("--version", str(settings["version"])),
        *("--repository", settings["repository"]),
        *("--package-digest", settings["package_digest"]),
        *("--keys-digest", settings["keys_digest"]),
        *("--login", str(login)),
    ]
    configure = [
        *(sys.executable, "-m", "falaj.workloads.inference", "configure", *packages),
        *("--config", str(folder / "service.json")),
        # The machine has private addresses only.
        *("--name", settings["model"], "--host", "0.0.0.0"),  # noqa: S104
        *("--port", str(settings["port"]), "--cpus", str(settings["workers"])),
        *("--certificate", str(secrets / "tls.crt"), "--private-key", str(secrets / "tls.key")),
        *("--issuer", "falaj", "--audience", settings["host_name"]),
        *("--jwks", str(ring / "tokens.jwks.json")),
        *("--logs", str(folder / "logs"), "--state", str(folder / "state.json")),
    ]
    return [take, configure]


def take_over(settings: dict[str, Any], login: Path) -> Path:
    """Take the package over and write the server's configuration; returns its path.

    The login is gone afterwards, so that the server hasn't got it.

    Args:
        settings: as the module tells them.
        login: Docker's configuration with a login to the registry, alone in its folder.

    Raises:
        subprocess.CalledProcessError: the package isn't what was signed, or the server wouldn't
            take the settings.
    """
    try:
        for command in commands(settings, login):
            subprocess.run(command, check=True)
    finally:
        shutil.rmtree(login.parent, ignore_errors=True)
    return Path(settings["folder"]) / "service.json"


def become_server(
    prepare: Callable[[dict[str, Any]], Path], *refused: type[Exception]
) -> NoReturn:
    """Prepare what the environment asks for, and have the server take this process over.

    Args:
        prepare: makes the server's configuration from the settings, and returns its path.
        refused: what it raises beside what `take_over` does.
    """
    try:
        path = prepare(json.loads(os.environ["FALAJ_SERVING"]))
    except (*refused, OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
    command = (sys.executable, "-m", "falaj.workloads.inference", "serve", "--config", str(path))
    os.execv(sys.executable, command)  # noqa: S606 - the point of it: the server takes over
