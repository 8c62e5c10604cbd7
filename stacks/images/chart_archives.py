"""Charts that no registry serves: fetched as archives by helm, sent on to a registry by it.

Their digest is the archive's own, which is the one layer of the chart in the registry:
https://helm.sh/docs/topics/registries/#oci-feature-deprecation-and-behavior-changes-with-v380
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Final, Protocol

from falaj.engine.guard import guarded
from falaj.engine.oci.tools import ensure
from falaj.stacks.images.crane import NotThereError, RegistryError, explain
from falaj.stacks.images.items import Item
from falaj.stacks.images.target import is_loopback

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
        plain = ["--plain-http"] if is_loopback(registry) else []
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
