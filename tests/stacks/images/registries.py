"""A registry on loopback with real small images, for tests: crane's own, on a folder."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from falaj.engine.oci import ensure
from falaj.stacks.command import phases
from falaj.stacks.images.items import Item, ItemKind

EMPTY_DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Registry:
    """One that runs."""

    address: str
    folder: Path

    def image(self, repository: str, content: str, *, tag: str = "v1") -> str:
        """Push an image of one file; returns its digest."""
        reference = f"{self.address}/{repository}:{tag}"
        with tarfile.open(self.folder.parent / f"{hash(content)}.tar", "w") as archive:
            data = content.encode()
            about = tarfile.TarInfo("content")
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
        crane("append", "--new_layer", str(archive.name), "--new_tag", reference)
        return self.digest(reference)

    def index(self, repository: str, parts: list[str], *, tag: str = "v1") -> str:
        """Push an index of images of this registry; returns its digest."""
        reference = f"{self.address}/{repository}:{tag}"
        listed = [part for each in parts for part in ("-m", f"{self.address}/{each}")]
        crane("index", "append", *listed, "--tag", reference)
        return self.digest(reference)

    def chart(self, repository: str, archive: bytes, *, tag: str) -> str:
        """Push a chart as helm does; returns the digest of its manifest."""
        config = b'{"name":"demo","version":"1.0.0","apiVersion":"v2"}'
        for blob in (config, archive):
            self._put_blob(repository, blob)
        manifest = json.dumps({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor(config, "application/vnd.cncf.helm.config.v1+json"),
            "layers": [
                _descriptor(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
            ],
        }).encode()  # fmt: skip
        self._request(
            "PUT", f"/v2/{repository}/manifests/{tag}", manifest,
            "application/vnd.oci.image.manifest.v1+json",
        )  # fmt: skip
        return self.digest(f"{self.address}/{repository}:{tag}")

    def digest(self, reference: str) -> str:
        return crane("digest", reference)

    def blob(self, digest: str) -> Path:
        """The file of a blob."""
        found = [each for each in self.folder.rglob(digest.partition(":")[2]) if each.is_file()]
        assert len(found) == 1, found
        return found[0]

    def layer_of(self, reference: str) -> str:
        """The digest of an image's last layer."""
        return str(json.loads(crane("manifest", reference))["layers"][-1]["digest"])

    def _put_blob(self, repository: str, blob: bytes) -> None:
        location = self._request("POST", f"/v2/{repository}/blobs/uploads/", b"").headers[
            "Location"
        ]
        self._request("PUT", f"{location}?digest=sha256:{hashlib.sha256(blob).hexdigest()}", blob)

    def _request(
        self, method: str, path: str, body: bytes, kind: str = "application/octet-stream"
    ) -> urllib.request.addinfourl:
        request = urllib.request.Request(
            f"http://{self.address}{path}", body, {"Content-Type": kind}, method=method
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer


def _descriptor(blob: bytes, kind: str) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    return {"mediaType": kind, "digest": digest, "size": len(blob)}


def crane(*arguments: str) -> str:
    """Run crane, which has to succeed."""
    done = subprocess.run(
        [str(ensure("crane")), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def running(folder: Path) -> Generator[Registry]:
    """A registry that keeps its content in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with phases.running(folder) as address:
        yield Registry(address, folder)


def item(registry: Registry, name: str, digest: str | None, *, kind: ItemKind = "images") -> Item:
    """An item whose source is a repository of that registry."""
    return Item(
        kind,
        name,
        f"{registry.address}/{name}",
        "v1",
        f"mirrored/{name}",
        digest,
        "MIT",
        ("test",),
    )
