"""What is in an image, as CycloneDX JSON: its base and every wheel with its hashes.

https://cyclonedx.org/specification/overview/
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from stacks.errors import StackError
from stacks.images.items import Item

_PIN: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^ ;\\]+)(?P<rest>.*)$"
)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Requirement:
    """One pinned wheel."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of its files, of which the build takes one."""
    marker: str
    """When it is installed, as PEP 508 writes it; empty: always."""


def requirements(path: Path) -> list[Requirement]:
    """The wheels that a requirement file pins.

    Raises:
        StackError: a line isn't pinned, or has no hash.
    """
    text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    found: list[Requirement] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split(" #")[0].strip()
        if not bare or bare.startswith("#"):
            continue
        match = _PIN.match(bare)
        hashes = _HASH.findall(bare)
        if match is None or not hashes:
            raise StackError(
                f"{path.name}, requirement {number}: given {bare[:60]!r}; allowed: name==version "
                "with --hash=sha256:…, as `make lock` writes it"
            )
        marker = match["rest"].split("--hash")[0].strip().removeprefix(";").strip()
        found.append(Requirement(match["name"], match["version"], tuple(hashes), marker))
    return found


def sbom(image: Item, base: Item, wheels: list[Requirement], *, epoch: int) -> str:
    """A list of contents, the same bytes for the same contents.

    Args:
        image: what is built.
        base: the image it runs on.
        wheels: what is installed.
        epoch: time of the build, seconds since 1970.

    Raises:
        StackError: the library that writes it isn't installed.
    """
    # The library's decorators hide its constructors from type checkers.
    try:
        model: Any = import_module("cyclonedx.model")
        boms: Any = import_module("cyclonedx.model.bom")
        components: Any = import_module("cyclonedx.model.component")
        output: Any = import_module("cyclonedx.output.json")
        purls: Any = import_module("packageurl")
    except ImportError:
        raise StackError(
            "lists of contents are written by cyclonedx-python-lib, which isn't installed; run: "
            "python3 engine/environment.py --extra kubernetes"
        ) from None
    container = components.ComponentType.CONTAINER
    root = components.Component(
        name=image.mirror, version=image.tag, type=container, bom_ref=image.name
    )
    known = (base.digest or "").partition(":")[2]
    parts = [
        components.Component(
            name=base.source, version=base.tag, type=container, bom_ref=base.name,
            hashes=[model.HashType(alg=model.HashAlgorithm.SHA_256, content=known)]
            if known else None,
        )
    ]  # fmt: skip
    for each in wheels:
        about = [("falaj:wheel-sha256", value) for value in each.hashes]
        about += [("falaj:marker", each.marker)] if each.marker else []
        name = each.name.lower().replace("_", "-")
        parts.append(
            components.Component(
                name=each.name, version=each.version, type=components.ComponentType.LIBRARY,
                purl=purls.PackageURL("pypi", None, name, each.version),
                bom_ref=f"{each.name}=={each.version}",
                properties=[model.Property(name=key, value=value) for key, value in about],
            )
        )  # fmt: skip
    # Named after its contents, not by chance.
    listed = "\n".join(sorted(f"{each.name} {each.version} {each.hashes}" for each in wheels))
    bom = boms.Bom(
        components=parts,
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{image.name}\n{base.digest}\n{listed}"),
        metadata=boms.BomMetaData(component=root, timestamp=datetime.fromtimestamp(epoch, UTC)),
    )
    bom.register_dependency(root, parts)
    return str(output.JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"
