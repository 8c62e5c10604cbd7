"""What a machine has to have, read from a component's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.components import catalogue
from falaj.components.specification.arguments import with_defaults
from falaj.components.specification.limits import Between, OneOf
from falaj.components.specification.refusals import Refusals

INT8 = OneOf(("amx", "vnni", "i8mm", "any"))
ARCHITECTURES = OneOf(("x86_64", "arm64"))
#: Where a component that lets one choose gets neither ``arch`` nor an ``int8`` that implies it.
DEFAULT_ARCHITECTURE = "x86_64"
VCPU = Between(1, 448)
MEMORY_GIB = Between(1, 24_576)


def cpu_demand(
    given: Mapping[str, Any],
    args: Mapping[str, Any],
    refusals: Refusals,
) -> dict[str, Any] | None:
    """What `catalogue.Demand` takes, from ``vcpu``, ``memory_gib``, ``int8`` and ``arch``.

    None where they can't go together, or one was refused. Where a machine is named it is held to
    what the user asks of it, not to the defaults.

    Args:
        given: the component's arguments.
        args: the same, checked.
        refusals: collects what is wrong.
    """
    names = ("vcpu", "memory_gib", "int8", "arch")
    named = args["machine"] is not None
    found = {k: args[k] for k in names if (given if named else args).get(k) is not None}
    int8 = found.setdefault("int8", "any")
    if not named:
        # i8mm is Arm's: asking for it is asking for that architecture.
        usual = DEFAULT_ARCHITECTURE if "arch" in args else None
        found.setdefault("arch", "arm64" if int8 == "i8mm" else usual)
    wanted = found.setdefault("arch", None)
    for kind, needed in (("i8mm", "arm64"), ("amx", "x86_64"), ("vnni", "x86_64")):
        if int8 == kind and ARCHITECTURES.allows(wanted) and wanted != needed:
            refusals.add("int8", kind, f"instructions of {wanted}", f"{kind} is {needed}'s")
            return None
    return None if refusals.has(*names) else found


def machine_demand(kind: type, given: Mapping[str, Any]) -> catalogue.Demand:
    """The machine that a component asks for by what it has, its defaults included.

    Args:
        kind: of its arguments, those of a pool or of the inference tier.
        given: the arguments, of which none was refused.
    """
    args = with_defaults(kind, given)
    if "gpu" in args:
        asked = {key: args[key] for key in ("gpu", "count", "fabric")}
    else:
        # What can't go together is refused by the component, whose message says it best.
        asked = cpu_demand(given, args, Refusals(kind.__name__)) or {}
    return catalogue.Demand(**asked, zones=args["zones"])
