"""Asks registries and copies between them, by the command crane; explains what it answers.

Credentials are those of the container tools: ``~/.docker/config.json`` (or ``$DOCKER_CONFIG``)
and its credential helpers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Final, Protocol

from falaj.engine.guard import guarded
from falaj.engine.oci import ensure
from falaj.engine.uplinks import is_here, is_loopback
from falaj.policies.model import Settings, read_settings
from falaj.policies.reading.images import is_allowed, parse
from falaj.stacks.command import testplane
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings
from falaj.workloads import errors

if TYPE_CHECKING:
    from falaj.stacks.images.items import Item

QUESTION_SECONDS: Final = 120
#: Images of training are some gigabytes; over a slow line that is hours.
COPY_SECONDS: Final = 6 * 3600
_NOT_THERE: Final = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN", "404 Not Found", "NOT_FOUND")
_REFUSED: Final = ("UNAUTHORIZED", "DENIED", "401 ", "403 ", "unauthorized", "no basic auth")
#: What is wrong and what to do, by what crane says then.
_TROUBLE: Final[Mapping[tuple[str, ...], str]] = {
    ("no space left on device", "disk quota exceeded", "file too large"): (
        "{about}: no space left, here (TMPDIR says where parts are kept meanwhile) or in the "
        "registry; free some, then run again: what was copied stays"
    ),
    ("x509",): (
        "{host} shows a certificate that this machine doesn't trust; add its authority to the "
        "system's certificates, or name it in SSL_CERT_FILE"
    ),
    (
        "connection refused", "no such host", "i/o timeout", "network is unreachable",
        "TLS handshake", "connection reset", "deadline exceeded", "server misbehaving",
    ): (
        "{host} can't be reached; look at the name, the proxy and the firewall, then run again: "
        "what was copied stays"
    ),
}  # fmt: skip


class RegistryError(StackError, errors.RegistryError):
    """A registry that could not be asked or did not do what was asked, with what to do."""


class NotThereError(RegistryError, errors.NotThereError):
    """The registry has no such image."""


class Crane:
    """The command, with its errors put in words."""

    def __init__(self, path: Path | None = None, *, authority: Path | None = None) -> None:
        """Make one that can be asked.

        Args:
            path: the command. Default: the machine's own, else built once.
            authority: whose certificates are trusted beside this system's. Default: that of the
                control plane which stacks go to here, where its registry is asked.

        Raises:
            EngineError: there is none and it can't be built.
        """
        self._path = path or ensure("crane")
        self._authority = authority

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

    def manifest_bytes(self, reference: str, most: int) -> bytes:
        """As `manifest`, byte for byte, so that its digest can be made again.

        Raises:
            RegistryError: the registry can't be asked, or has no such image, or one of more than
                ``most`` bytes.
        """
        return self._output(reference, "manifest", reference, most=most)

    def tags(self, repository: str) -> list[str]:
        """The tags of a repository; none where the registry has no such repository.

        Raises:
            RegistryError: the registry can't be asked.
        """
        try:
            return self._run(repository, "ls", repository).split()
        except NotThereError:
            return []

    def repositories(self, host: str) -> list[str]:
        """The repositories of a registry, as far as it says so.

        Raises:
            RegistryError: it can't be asked, or keeps its catalogue to itself.
        """
        return self._run(host, "catalog", host).split()

    def blob(self, reference: str, size: int) -> bytes:
        """A layer of ``size`` bytes by its digest, ``repository@sha256:…``; no more is read.

        Raises:
            RegistryError: the registry can't be asked, or has another.
        """
        found = self._output(reference, "blob", reference, most=size)
        if len(found) != size:
            raise RegistryError(f"{reference} has {len(found)} bytes, {size} were named")
        return found

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
                guarded([str(self._path), *arguments]), env=self._environment(reference, other),
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

    def _environment(self, *references: str) -> dict[str, str] | None:
        """Variables of the command; None for this process's own."""
        hosts = [host_of(each) for each in references if each]
        found = self._authority or next(filter(None, map(testplane.authority_of, hosts)), None)
        return None if found is None else trusting(found)

    def _output(self, reference: str, *arguments: str, most: int) -> bytes:
        """What a command prints, as bytes; one that prints more than ``most`` is ended."""
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                guarded([str(self._path), *arguments]),
                env=self._environment(reference),
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as process,  # fmt: skip
        ):
            # A registry that is reached and then says nothing must not be waited for for ever.
            late = Timer(QUESTION_SECONDS, process.kill)
            late.start()
            try:
                found = process.stdout.read(most + 1) if process.stdout else b""
                if len(found) > most:
                    process.kill()
                    raise RegistryError(f"{reference} has more than {most} bytes, as allowed")
                status = process.wait()
            finally:
                late.cancel()
            errors.seek(0)
            if status != 0:
                raise explain(errors.read().decode(errors="replace"), reference)
        return found


def trusting(authority: Path) -> dict[str, str]:
    """Variables of a program in Go that trusts an authority beside this system's.

    The system's own are in a file, which stays as it is:
    https://pkg.go.dev/crypto/x509#SystemCertPool

    Args:
        authority: the certificate; those in its folder are trusted with it.
    """
    folders = (str(authority.parent), os.environ.get("SSL_CERT_DIR", ""))
    return {**os.environ, "SSL_CERT_DIR": os.pathsep.join(filter(None, folders))}


def host_of(reference: str) -> str:
    """The registry of a reference: what is before the first slash."""
    return reference.partition("/")[0]


def explain(printed: str, reference: str, other: str = "") -> RegistryError:
    """What crane printed, as an error for people.

    Args:
        printed: its standard error.
        reference: what it was asked about.
        other: a second reference, of which the trouble may as well be.
    """
    lines = [line for line in printed.strip().splitlines() if line.strip()]
    last = (lines[-1] if lines else "no message").removeprefix("Error: ")
    about = other if other and host_of(other) != host_of(reference) and host_of(other) in last \
        else reference  # fmt: skip
    host = host_of(about)
    if any(word in printed for word in _REFUSED):
        return RegistryError(
            f"{host} refused access to {about}; log in there with `crane auth login {host}` (or "
            f"docker, podman), or set up its credential helper in ~/.docker/config.json\n  {last}"
        )
    if "NAME_UNKNOWN" in printed and host.endswith((".amazonaws.com", ".on.aws")):
        return NotThereError(
            f"{host} has no repository for {about}, and doesn't make any by itself: add it to "
            "the `repositories` of the stack's registry (`falaj images list --repositories`)\n"
            f"  {last}"
        )
    if any(word in printed for word in _NOT_THERE):
        return NotThereError(f"{host} has no {about}\n  {last}")
    for words, advice in _TROUBLE.items():
        if any(word in printed for word in words):
            return RegistryError(f"{advice.format(host=host, about=about)}\n  {last}")
    return RegistryError(f"{about}: {last}")


# Whether a registry may hold what runs in the country: by the same rule as `falaj check`.

#: https://github.com/distribution/reference, host with port and path, in lower case.
_REGISTRY: Final = re.compile(
    r"^(\[[0-9a-f:]+\]|[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)"
    r"(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"
)


def packs_settings(project: Project, stack: str | None) -> tuple[Settings, str]:
    """What the policy packs allow for a stack, or by default; and whose settings they are.

    Raises:
        StackError: there is no such stack, or its file was refused.
    """
    if stack is None:
        return Settings(), "the default policies"
    file = StackFile(stack, project)
    settings = file.settings()
    given = settings.policies.given() if isinstance(settings, CloudSettings) else {}
    return read_settings(given, str(file.shown_path)), str(file.shown_path)


def require_in_country(registry: str, settings: Settings, source: str) -> str:
    """The registry's address, if images may be kept there.

    This machine's own addresses are fine, and those of its control planes: nothing leaves it.

    Args:
        registry: host with port and path, without ``https://``.
        settings: what the policy packs allow.
        source: where that was read, for the error.

    Raises:
        StackError: it isn't an address, or the policies don't allow it.
    """
    address = registry.rstrip("/")
    if not _REGISTRY.match(address):
        raise StackError(
            f"registry: given {registry!r}; allowed: a host in lower case with port and path, as "
            "registry.example.ae/falaj, without https://"
        )
    if is_here(_name_of(address)) or is_allowed(parse(f"{address}/any"), settings):
        return address
    allowed = [f"ECR in {region}" for region in settings.regions("aws")]
    allowed += settings.allowed_registries
    raise StackError(
        f"registry: given {address}, which {source} don't allow: images are kept in the country\n"
        f"  allowed: {', '.join(allowed)}\n"
        "  if it stands in the country: add it to falaj:policies, allowedRegistries of a stack, "
        "and name that with --stack"
    )


def _name_of(address: str) -> str:
    """The host of a registry's address, without its port."""
    return re.sub(r":\d+$", "", address.partition("/")[0]).strip("[]")


# Charts that no registry serves: fetched as archives by helm, sent on to a registry by it.
#
# Their digest is the archive's own, which is the one layer of the chart in the registry:
# https://helm.sh/docs/topics/registries/#oci-feature-deprecation-and-behavior-changes-with-v380

SECONDS: Final = 600


class Manifests(Protocol):
    """Who answers for manifests: `Crane`."""

    def manifest(self, reference: str) -> str:
        """The manifest of a reference, JSON."""
        ...


class Helm:
    """The command helm, the machine's own or built once."""

    def __init__(self, path: Path | None = None) -> None:
        """``path`` is the command. Default: the machine's own, else built at the first use."""
        self._path = path

    def fetch(self, chart: Item, folder: Path) -> Path:
        """Fetch a chart's archive into ``folder``.

        Raises:
            EngineError: there is no helm and it can't be built.
            RegistryError: the repository can't be reached or has no such version.
        """
        name = chart.mirror.rpartition("/")[2]
        self._run(
            chart.source, "pull", name, "--repo", chart.source, "--version", chart.tag,
            "--destination", str(folder),
        )  # fmt: skip
        found = sorted(folder.glob("*.tgz"))
        if len(found) != 1:
            raise RegistryError(f"{chart.source} gave {len(found)} archives of {name}, not one")
        return found[0]

    def push(self, archive: Path, registry: str, mirror: str) -> None:
        """Send a chart's archive to ``registry``, into the folder of ``mirror``.

        Raises:
            EngineError: there is no helm and it can't be built.
            RegistryError: the registry refused it or can't be reached.
        """
        folder = f"{registry}/{mirror.rpartition('/')[0]}"
        plain = ["--plain-http"] if is_loopback(_name_of(registry)) else []
        self._run(f"{registry}/{mirror}", "push", str(archive), f"oci://{folder}", *plain)

    def _run(self, about: str, *arguments: str) -> None:
        path = self._path = self._path or ensure("helm")
        try:
            done = subprocess.run(
                guarded([str(path), *arguments]),
                capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RegistryError(f"{about} did not answer within {SECONDS} s") from None
        if done.returncode != 0:
            raise explain(done.stderr, about.removeprefix("https://"))


def archive_digest(archive: Path) -> str:
    """``sha256:…`` of an archive."""
    return "sha256:" + hashlib.sha256(archive.read_bytes()).hexdigest()


def layer_digest(registry: Manifests, reference: str) -> str | None:
    """The digest of the archive that a chart in a registry consists of; None where none is there.

    Raises:
        RegistryError: the registry can't be asked, or what is there is no chart.
    """
    try:
        manifest = json.loads(registry.manifest(reference))
        layers = manifest["layers"]
        return next(
            str(each["digest"]) for each in layers if "helm.chart.content" in each["mediaType"]
        )
    except NotThereError:
        return None
    except (json.JSONDecodeError, KeyError, TypeError, StopIteration):
        raise RegistryError(f"{reference} is there, but is no chart") from None
