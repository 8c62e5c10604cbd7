"""What machine types are and have: instruction set, network cards, and what their disks take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from falaj.sandbox.clouds.aws.regions import catalogued, region_of
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Problem
from falaj.wire.documents import is_mapping

X86: Final = "x86_64"
ARM: Final = "arm64"
_FAMILY: Final = re.compile(r"[a-z]+\d+(?P<attributes>[a-z]*)(-[a-z0-9]+)?\.[a-z0-9-]+")


def instruction_set(machine: str) -> str:
    """By the type's name; empty for a name of no known form.

    "g: AWS Graviton processors": docs.aws.amazon.com/ec2/latest/instancetypes/
    instance-type-names.html. ``a1`` came before that rule, ``gb`` are NVIDIA's Grace machines.
    """
    found = _FAMILY.fullmatch(machine)
    if found is None or machine.startswith("mac"):
        return ""
    arm = machine.startswith("a1.") or "g" in found["attributes"] or "-gb" in machine
    return ARM if arm else X86


def of_image(kind: str) -> str:
    """The instruction set of an image type of EKS; empty for one's own image."""
    if kind == "CUSTOM":
        return ""
    return ARM if "_ARM_64" in kind else X86


def network_cards(inputs: Inputs) -> Iterator[Problem]:
    """A template's interfaces fit the machine: EFA where it has it, no more cards than it has.

    docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html (supported types). Types that the
    catalogue doesn't hold have whatever is asked for.
    """
    place = catalogued(region_of(inputs))
    name = inputs.string("instanceType")
    machine = (
        next((each for each in place.machines() if each.name == name), None) if place else None
    )
    if machine is None:
        return
    for path, interface in inputs.each("networkInterfaces[]"):
        if not is_mapping(interface):
            continue
        kind, card = interface.get("interfaceType"), interface.get("networkCardIndex")
        if kind in ("efa", "efa-only") and not machine.efa_interfaces:
            yield Problem(
                f"{path}.interfaceType", f"{kind!r} isn't offered by {name}; leave it out"
            )
        if (
            machine.network_cards
            and isinstance(card, int | float)
            and card >= (machine.network_cards)
        ):
            yield Problem(
                f"{path}.networkCardIndex",
                f"{card:g} isn't allowed: {name} has {machine.network_cards} network card(s), "
                "counted from 0",
            )


@dataclass(frozen=True)
class VolumeType:
    """What a type of volume takes ("Amazon EBS volume types", Amazon EBS user guide)."""

    least_gib: int
    most_gib: int
    iops: tuple[int, int] = (0, 0)
    """Least and most; none where the type has no such setting."""
    iops_per_gib: int = 0
    throughput: tuple[int, int] = (0, 0)
    """MiB/s, least and most; none where the type has no such setting."""
    included_iops: int = 0
    """Without asking, whatever its size."""


#: gp3: docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html (limits raised in September
#: 2025); io1 and io2: provisioned-iops.html there.
VOLUMES: Final[Mapping[str, VolumeType]] = {
    "gp3": VolumeType(
        1, 65536, iops=(3000, 80000), iops_per_gib=500, throughput=(125, 2000), included_iops=3000
    ),
    "gp2": VolumeType(1, 16384),
    "io1": VolumeType(4, 16384, iops=(100, 64000), iops_per_gib=50),
    "io2": VolumeType(4, 65536, iops=(100, 256000), iops_per_gib=1000),
    "st1": VolumeType(125, 16384),
    "sc1": VolumeType(125, 16384),
    "standard": VolumeType(1, 1024),
}
_MIBS_PER_IOPS: Final = 0.25
"""Of gp3: throughput at most for each operation a second (same page)."""


def volume(path: str, asked: Mapping[str, object]) -> Iterator[Problem]:
    """What is wrong with size, operations and throughput of a volume."""
    name = asked.get("volumeType")
    kind = VOLUMES.get(name) if isinstance(name, str) else None
    if kind is None:
        return
    size, iops = _known(asked, "volumeSize"), _known(asked, "iops")
    throughput = _known(asked, "throughput")
    if size is not None and not kind.least_gib <= size <= kind.most_gib:
        yield Problem(
            f"{path}.volumeSize",
            f"{size:g} GiB isn't allowed for {name}; allowed: {kind.least_gib} to {kind.most_gib}",
        )
    if "iops" not in asked and kind.iops_per_gib and not kind.included_iops:
        yield Problem(f"{path}.iops", f"is missing; {name} needs it")
    if iops is not None:
        if not kind.iops_per_gib:
            yield Problem(f"{path}.iops", f"can't be chosen for {name}; use gp3, io1 or io2")
        elif not kind.iops[0] <= iops <= kind.iops[1]:
            yield Problem(
                f"{path}.iops",
                f"{iops:g} isn't allowed for {name}; allowed: {kind.iops[0]} to {kind.iops[1]}",
            )
        elif size is not None and iops > max(size * kind.iops_per_gib, kind.included_iops):
            yield Problem(
                f"{path}.iops",
                f"{iops:g} is too much for {size:g} GiB; {name} has at most {kind.iops_per_gib} "
                "a GiB",
            )
    if "throughput" in asked and not kind.throughput[1]:
        yield Problem(f"{path}.throughput", f"applies only to gp3, not to {name}")
    elif throughput is not None:
        if not kind.throughput[0] <= throughput <= kind.throughput[1]:
            yield Problem(
                f"{path}.throughput",
                f"{throughput:g} MiB/s isn't allowed for {name}; allowed: {kind.throughput[0]} to "
                f"{kind.throughput[1]}",
            )
        elif "iops" not in asked or iops is not None:
            own = kind.included_iops if iops is None else iops
            if throughput > own * _MIBS_PER_IOPS:
                yield Problem(
                    f"{path}.throughput",
                    f"{throughput:g} MiB/s is too much for {own:g} operations a second; at most "
                    f"{_MIBS_PER_IOPS} MiB/s for each: raise iops",
                )


def _known(asked: Mapping[str, object], key: str) -> float | None:
    value = asked.get(key)
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value
