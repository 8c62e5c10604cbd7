"""What a machine without GPUs has to have, read from a component's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.components.specification.limits import Between
from falaj.components.specification.refusals import Refusals

INT8 = ("amx", "vnni", "i8mm", "any")
ARCHITECTURES = ("x86_64", "arm64")
VCPU = Between(1, 448)
MEMORY_GIB = Between(1, 24_576)


def cpu_demand(
    args: Mapping[str, Any],
    refusals: Refusals,
    *,
    vcpu: int,
    int8: str,
    arch: str | None,
    memory_gib: int | None = None,
) -> dict[str, Any] | None:
    """What `catalogue.Demand` takes, from ``vcpu``, ``memory_gib``, ``int8`` and ``arch``.

    The last arguments are the defaults. None where something was refused. Where a machine is named
    it is held to what the user asks of it, not to the defaults.
    """
    before = refusals.count
    named = args.get("machine") is not None
    found: dict[str, Any] = {}
    if args.get("vcpu") is not None or not named:
        found["vcpu"] = refusals.within("vcpu", args.get("vcpu", vcpu), VCPU)
    wanted_memory: object = args.get("memory_gib", None if named else memory_gib)
    if wanted_memory is not None:
        found["memory_gib"] = refusals.within("memory_gib", wanted_memory, MEMORY_GIB)
    wanted_int8: object = args.get("int8", "any" if named else int8)
    refusals.choice("int8", wanted_int8, INT8)
    found["int8"] = wanted_int8
    wanted_arch: object = args.get("arch")
    if wanted_arch is None and not named:
        # i8mm is Arm's: asking for it is asking for that architecture.
        wanted_arch = "arm64" if wanted_int8 == "i8mm" else arch
    elif wanted_arch is not None:
        refusals.choice("arch", wanted_arch, ARCHITECTURES)
    for kind, needed in (("i8mm", "arm64"), ("amx", "x86_64"), ("vnni", "x86_64")):
        if wanted_int8 == kind and wanted_arch in ARCHITECTURES and wanted_arch != needed:
            refusals.add("int8", kind, f"instructions of {wanted_arch}", f"{kind} is {needed}'s")
    found["arch"] = wanted_arch
    return found if refusals.count == before else None
