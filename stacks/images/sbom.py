"""What is in an image, as CycloneDX JSON: its base and every wheel with its hashes.

https://cyclonedx.org/specification/overview/
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from falaj.stacks.errors import StackError
from falaj.stacks.images.items import Item
from falaj.stacks.images.wheels import Wheel


def sbom(image: Item, base: str, wheels: Sequence[Wheel], *, epoch: int) -> str:
    """A list of contents, the same bytes for the same contents.

    Args:
        image: what is built.
        base: reference of the image it runs on.
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
    under, _, digest = base.partition("@")
    known = digest.partition(":")[2]
    parts = [
        components.Component(
            name=under, type=container, bom_ref=base,
            hashes=[model.HashType(alg=model.HashAlgorithm.SHA_256, content=known)]
            if known else None,
        )
    ]  # fmt: skip
    for each in wheels:
        name = each.name.lower().replace("_", "-")
        parts.append(
            components.Component(
                name=each.name, version=each.version, type=components.ComponentType.LIBRARY,
                purl=purls.PackageURL("pypi", None, name, each.version),
                bom_ref=f"{each.name}=={each.version}",
                properties=[
                    model.Property(name="falaj:wheel-sha256", value=value)
                    for value in each.hashes
                ],
            )
        )  # fmt: skip
    # Named after its contents, not by chance.
    listed = "\n".join(sorted(f"{each.name} {each.version} {each.hashes}" for each in wheels))
    bom = boms.Bom(
        components=parts,
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{image.name}\n{base}\n{listed}"),
        metadata=boms.BomMetaData(component=root, timestamp=datetime.fromtimestamp(epoch, UTC)),
    )
    bom.register_dependency(root, parts)
    return str(output.JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"
