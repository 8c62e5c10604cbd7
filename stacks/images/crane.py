"""Asks registries and copies between them, by the command crane; explains what it answers.

Credentials are those of the container tools: ``~/.docker/config.json`` (or ``$DOCKER_CONFIG``)
and its credential helpers.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from falaj.engine.guard import guarded
from falaj.engine.oci.tools import ensure
from falaj.stacks.errors import StackError

QUESTION_SECONDS: Final = 120
#: Images of training are some gigabytes; over a slow line that is hours.
COPY_SECONDS: Final = 6 * 3600
_NOT_THERE: Final = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN", "404 Not Found", "NOT_FOUND")
_REFUSED: Final = ("UNAUTHORIZED", "DENIED", "401 ", "403 ", "unauthorized", "no basic auth")
_UNREACHED: Final = (
    "connection refused", "no such host", "i/o timeout", "network is unreachable",
    "TLS handshake", "connection reset", "deadline exceeded", "server misbehaving",
)  # fmt: skip


class RegistryError(StackError):
    """A registry that could not be asked or did not do what was asked, with what to do."""


class NotThereError(RegistryError):
    """The registry has no such image."""


class Crane:
    """The command, with its errors put in words."""

    def __init__(self, path: Path | None = None) -> None:
        """``path`` is the command. Default: the machine's own, else built once.

        Raises:
            EngineError: there is none and it can't be built.
        """
        self._path = path or ensure("crane")

    def digest(self, reference: str) -> str | None:
        """The digest that a reference stands for; None where the registry has no such image.

        The registry is asked for the head of the manifest alone: nothing is pulled.

        Raises:
            RegistryError: the registry can't be asked.
        """
        try:
            return self._run(reference, "digest", reference)
        except NotThereError:
            return None

    def manifest(self, reference: str) -> str:
        """The manifest of an image, JSON as the registry keeps it.

        Raises:
            RegistryError: the registry can't be asked, or has no such image.
        """
        return self._run(reference, "manifest", reference)

    def copy(self, source: str, target: str) -> None:
        """Copy an image with all its platforms, unchanged; layers that are there stay.

        Raises:
            RegistryError: one of both registries refused, or can't be reached.
        """
        self._run(target, "copy", source, target, seconds=COPY_SECONDS, other=source)

    def pull(self, reference: str, folder: Path) -> None:
        """Write an image with all its platforms to a folder, as an OCI layout.

        Raises:
            RegistryError: the registry can't be asked, or has no such image.
        """
        self._run(
            reference, "pull", "--format=oci", "--annotate-ref", reference, str(folder),
            seconds=COPY_SECONDS,
        )  # fmt: skip

    def push(self, folder: Path, reference: str) -> None:
        """Send the one image of an OCI layout to a registry.

        Raises:
            RegistryError: the registry refused, or can't be reached.
        """
        self._run(reference, "push", str(folder), reference, seconds=COPY_SECONDS)

    def _run(
        self, reference: str, *arguments: str, seconds: int = QUESTION_SECONDS, other: str = ""
    ) -> str:
        try:
            done = subprocess.run(
                guarded([str(self._path), *arguments]),
                capture_output=True, text=True, timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RegistryError(
                f"{host_of(reference)} did not answer about {reference} within {seconds} s; "
                "run again: what was copied stays"
            ) from None
        if done.returncode == 0:
            return done.stdout.strip()
        raise explain(done.stderr, reference, other)


def host_of(reference: str) -> str:
    """The registry of a reference: what is before the first slash."""
    return reference.partition("/")[0]


def explain(said: str, reference: str, other: str = "") -> RegistryError:
    """What crane said, as an error for people.

    Args:
        said: its standard error.
        reference: what it was asked about.
        other: a second reference, of which the trouble may as well be.
    """
    lines = [line for line in said.strip().splitlines() if line.strip()]
    last = (lines[-1] if lines else "no message").removeprefix("Error: ")
    about = other if other and host_of(other) != host_of(reference) and host_of(other) in last \
        else reference  # fmt: skip
    host = host_of(about)
    if any(word in said for word in _REFUSED):
        return RegistryError(
            f"{host} refused access to {about}; log in there with `crane auth login {host}` (or "
            f"docker, podman), or set up its credential helper in ~/.docker/config.json\n  {last}"
        )
    if "NAME_UNKNOWN" in said and host.endswith((".amazonaws.com", ".on.aws")):
        return NotThereError(
            f"{host} has no repository for {about}, and doesn't make any by itself: add it to "
            "the `repositories` of the stack's registry (`falaj images list --repositories`)\n"
            f"  {last}"
        )
    if any(word in said for word in _NOT_THERE):
        return NotThereError(f"{host} has no {about}\n  {last}")
    if "x509" in said:
        return RegistryError(
            f"{host} shows a certificate that this machine doesn't trust; add its authority to "
            f"the system's certificates, or name it in SSL_CERT_FILE\n  {last}"
        )
    if any(word in said for word in _UNREACHED):
        return RegistryError(
            f"{host} can't be reached; look at the name, the proxy and the firewall, then run "
            f"again: what was copied stays\n  {last}"
        )
    return RegistryError(f"{about}: {last}")
