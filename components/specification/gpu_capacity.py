"""How GPU machines are bought, linked and placed: choices that don't imply one another.

EFA doesn't force a placement group, and a reservation doesn't either: a group that was made behind
the user's back is why reserved machines fail to start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from falaj.components import catalogue
from falaj.components.specification.limits import ByCloud, Hint, OneOf
from falaj.components.specification.placed import Placed
from falaj.components.specification.refusals import Refusals

CAPACITIES = ByCloud.of(
    {
        "aws": ("on-demand", "spot", "reservation", "capacity-block"),
        "azure": ("on-demand", "spot", "reservation"),
    },
    {
        "capacity-block": Hint(
            "capacity blocks exist on AWS only; on Azure use 'reservation' with a capacity "
            "reservation group"
        )
    },
)
FABRICS = ByCloud.of(
    {"aws": ("none", "efa"), "azure": ("none", "infiniband")},
    {
        "infiniband": Hint("infiniband exists on Azure only; use efa", "efa"),
        "efa": Hint("efa exists on AWS only; use infiniband", "infiniband"),
    },
)
PLACEMENT_GROUPS = OneOf(("none", "cluster", "existing"))
RESERVED = ("reservation", "capacity-block")
_RESERVATION_ID = {
    "aws": re.compile(r"^cr-(?:[0-9a-f]{8}|[0-9a-f]{17})$"),
    "azure": re.compile(
        r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/"
        r"capacityReservationGroups/[^/]+$",
        re.IGNORECASE,
    ),
}
_RESERVATION_FORM = {
    "aws": "a reservation's id, such as cr-0123456789abcdef0",
    "azure": "/subscriptions/…/resourceGroups/…/providers/Microsoft.Compute/"
    "capacityReservationGroups/NAME",
}


def check_reservation(cloud: str, args: Mapping[str, Any], refusals: Refusals) -> None:
    """Hold ``reservation_id`` to ``capacity``: only what is reserved has one."""
    capacity: str = args["capacity"]
    given: str | None = args["reservation_id"]
    if capacity not in RESERVED:
        if given is not None:
            refusals.say(
                "reservation_id",
                f"given {given!r}, but capacity is {capacity!r}, which uses no reservation; set "
                f"capacity to {' or '.join(_reserved(cloud))}, or leave reservation_id out",
            )
    elif given is None:
        refusals.say(
            "reservation_id",
            f"missing; capacity {capacity!r} needs {_RESERVATION_FORM[cloud]}; name it, or set "
            "capacity to 'on-demand'",
        )
    elif not _RESERVATION_ID[cloud].match(given):
        refusals.add("reservation_id", given, _RESERVATION_FORM[cloud])


def _reserved(cloud: str) -> list[str]:
    return [str(each) for each in CAPACITIES.on(cloud).values if each in RESERVED]


def check_placement(args: Mapping[str, Any], refusals: Refusals) -> None:
    """Hold ``placement_group``, ``placement_group_name`` and ``capacity`` to each other."""
    group: str = args["placement_group"]
    name: str | None = args["placement_group_name"]
    capacity: str = args["capacity"]
    if group == "existing":
        if not name:
            refusals.say(
                "placement_group_name",
                f"given {name!r}; placement_group 'existing' needs the group's name (AWS) or id "
                "(Azure); name it, or set placement_group to 'cluster' to have one made",
            )
    elif name is not None:
        refusals.say(
            "placement_group_name",
            f"given {name!r}, but placement_group is {group!r}; set it to 'existing', or leave "
            "placement_group_name out",
        )
    if group == "cluster" and capacity == "reservation":
        # docs.aws.amazon.com/AWSEC2/latest/UserGuide/cr-cpg.html: capacity is reserved in a group
        # from the start or never; on Azure the reservation has its own place, too.
        refusals.add(
            "placement_group", "cluster", "none or existing, with capacity 'reservation'",
            "a reservation that exists can't be moved into a new group: name the group it was "
            "made in, or use none",
        )  # fmt: skip
    if group in ("cluster", "existing") and capacity == "capacity-block":
        # docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-using.html
        refusals.add(
            "placement_group", group, "none, with capacity 'capacity-block'",
            "the machines of a capacity block are close to each other already, and a group of "
            "your own can keep some of them from starting",
        )  # fmt: skip


def capacity_notes(capacity: str, placed: Placed, machine: catalogue.MachineType) -> list[str]:
    """What to know about the way the machines are bought."""
    if capacity != "capacity-block":
        return []
    # No page read lists the region among those that sell Capacity Blocks.
    return [
        f"whether {placed.region} sells capacity blocks of {machine} is unknown; ask with "
        "`aws ec2 describe-capacity-block-offerings` first"
    ]
