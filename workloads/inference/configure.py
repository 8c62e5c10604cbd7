"""Writing `service.json` from a command line, for places where a start is all there is: pods."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import orjson

from falaj.workloads.files import write_atomic
from falaj.workloads.inference import settings
from falaj.workloads.inference.errors import InferenceError

#: Threads of one session that wait for each other gain little on the small models of the CPU tier,
#: and lose much when the machine is loaded: so workers are what fills the cores.
_THREADS = 1


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of ``python -m falaj.workloads.inference configure``."""
    folders = {
        "config": "the service.json to write",
        "registry": "the registry of packages",
        "keyring": "the key ring",
        "certificate": "the server's certificate, PEM",
        "private-key": "its private key, PEM",
        "jwks": "the public keys of tokens",
        "logs": "folder of the logs",
        "state": "file that says what the server does",
    }
    for name, text in folders.items():
        command.add_argument(f"--{name}", type=Path, required=True, help=text)
    command.add_argument("--client-ca", type=Path, help="authority of client certificates")
    command.add_argument("--name", required=True, help="the service's name")
    command.add_argument("--model", required=True)
    command.add_argument("--alias", default="production", help="default: %(default)s")
    command.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    command.add_argument("--port", type=int, required=True)
    command.add_argument("--issuer", required=True, help="of tokens")
    command.add_argument("--audience", required=True, help="of tokens")
    command.add_argument(
        "--client", action="append", default=[], metavar="NAME=SCOPE[,SCOPE]",
        help="what a client certificate may do; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--cpus", type=float, required=True, help="cores that the server has for itself"
    )
    command.add_argument(
        "--workers", type=int, help="processes, each with the model; default: one for each core"
    )
    command.add_argument("--max-body-bytes", type=int, default=8 * 1024 * 1024)
    command.add_argument("--max-rows", type=int, default=1024)
    command.add_argument("--drain-seconds", type=float, default=10)
    command.add_argument("--load-seconds", type=float, default=300)
    command.add_argument("--upstream", help="http://127.0.0.1:PORT of the model's runtime")
    command.add_argument("--spill-to", help="https://HOST:PORT of the next tier")
    command.add_argument("--spill-version", type=int, help="the version that it serves")
    command.add_argument("--spill-above-ms", type=float, help="expected time in the queue")
    command.add_argument("--spill-timeout-ms", type=float, default=1000)


def write(options: argparse.Namespace) -> Path:
    """Write the configuration, once it has been read back as the server would.

    Raises:
        InferenceError: an option's value isn't one that the server takes.
        WorkloadError: it can't be written.
    """
    content = orjson.dumps(document(options), option=orjson.OPT_INDENT_2)
    settings.parse(options.config, content)
    write_atomic(options.config, content)
    return options.config


def document(options: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration.

    Raises:
        InferenceError: options that don't go together.
    """
    if not math.isfinite(options.cpus) or options.cpus <= 0:
        raise InferenceError(f"--cpus must be a number over 0; got {options.cpus}")
    # A proxy's work is small, and one process knows best how much is under way.
    own = 1 if options.upstream else max(1, math.floor(options.cpus))
    found: dict[str, Any] = {
        "format": settings.FORMAT,
        "name": options.name,
        "host": options.host,
        "port": options.port,
        "workers": own if options.workers is None else options.workers,
        "threads": _THREADS,
        "registry": str(options.registry),
        "model": options.model,
        "alias": options.alias,
        "keyring": str(options.keyring),
        "tls": {
            "certificate": str(options.certificate),
            "private_key": str(options.private_key),
            **({"client_ca": str(options.client_ca)} if options.client_ca else {}),
        },
        "auth": {
            "issuer": options.issuer,
            "audience": options.audience,
            "jwks": str(options.jwks),
            "clients": _clients(options.client),
        },
        "limits": {
            "max_body_bytes": options.max_body_bytes,
            "max_rows": options.max_rows,
            "drain_seconds": options.drain_seconds,
            "load_seconds": options.load_seconds,
        },
        "logs": str(options.logs),
        "state": str(options.state),
    }
    if options.upstream:
        found["upstream"] = {"url": options.upstream}
    if options.spill_to:
        if options.spill_version is None or options.spill_above_ms is None:
            raise InferenceError("--spill-to needs --spill-version and --spill-above-ms")
        found["spill"] = {
            "url": options.spill_to,
            "version": options.spill_version,
            "above_seconds": options.spill_above_ms / 1000,
            "timeout_seconds": options.spill_timeout_ms / 1000,
        }
    return found


def _clients(given: list[str]) -> dict[str, list[str]]:
    clients: dict[str, list[str]] = {}
    for text in given:
        name, equals, scopes = text.partition("=")
        if not name or not equals or not scopes:
            raise InferenceError(f"--client must be NAME=SCOPE[,SCOPE]; got {text!r}")
        clients[name] = scopes.split(",")
    return clients
