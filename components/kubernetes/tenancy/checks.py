"""Checks of a tenant's options: quotas, members, ways out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from falaj.components.kubernetes._nested import (
    amount,
    by_name,
    cidr,
    is_private,
    object_name,
    options,
)
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes.tenancy.duties import APART, DUTIES, subject
from falaj.components.kubernetes.tenancy.isolation import Egress
from falaj.components.kubernetes.tenancy.quotas import GPU, SHARED_GPU, Quota
from falaj.components.specification.refusals import Refusals

#: Object counts of etcd's own guidance don't bind here; a typo by a factor of 1,000 does.
_MOST: Final = 1_000_000
_DEVICE: Final = re.compile(r"^nvidia\.com/(gpu|gpu\.shared|mig-\d+g\.\d+gb)$")
#: Public ranges wider than this aren't one service's.
_WIDEST_PUBLIC: Final = {4: 12, 6: 32}
_CLIENT_ID: Final = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def checked_quota(
    at: str, given: Mapping[str, Any], purpose: object, shares: bool, refusals: Refusals
) -> Quota:
    """How much a namespace takes."""
    storage = {"falaj-block": 100, **({"falaj-files": 1024} if purpose == "training" else {})}
    memory = refusals.whole(f"{at}.memory_gib", given.get("memory_gib", 512), 1, _MOST)
    devices = _counts(f"{at}.devices", given.get("devices", {}), refusals)
    for name in devices:
        if not _DEVICE.match(name):
            refusals.add(
                f"{at}.devices[{name!r}]", name,
                f"{GPU}, {SHARED_GPU}, or a MIG profile such as nvidia.com/mig-1g.18gb",
            )  # fmt: skip
        elif name == SHARED_GPU and not shares:
            refusals.add(
                f"{at}.devices[{name!r}]", name, "whole GPUs or MIG profiles",
                "or set shares_gpus to true, where others may be on the same GPU",
            )  # fmt: skip
    return Quota(
        amount(f"{at}.cpu", given.get("cpu", 64), refusals),
        memory,
        devices,
        _counts(f"{at}.storage_gib", given.get("storage_gib", storage), refusals),
        refusals.whole(f"{at}.pods", given.get("pods", 250), 0, _MOST),
        refusals.whole(f"{at}.objects", given.get("objects", 200), 1, _MOST),
        refusals.whole(
            f"{at}.largest_pod_memory_gib",
            given.get("largest_pod_memory_gib", memory), 1, _MOST,
        ),
    )  # fmt: skip


def _counts(at: str, value: object, refusals: Refusals) -> dict[str, int]:
    return {
        name: refusals.whole(f"{at}[{name!r}]", most, 0, _MOST)
        for name, most in by_name(at, value, refusals).items()
    }


def checked_members(
    tenant: str, args: Mapping[str, Any], refusals: Refusals
) -> dict[str, tuple[dict[str, str], ...]]:
    """Subjects of bindings by duty; nobody is in two that have to be apart."""
    prefix = args.get("group_prefix", "")
    if not isinstance(prefix, str):
        refusals.add("group_prefix", prefix, "text")
        prefix = ""
    groups = _by_duty("groups", args.get("groups", {}), refusals)
    users = _by_duty("users", args.get("users", {}), refusals)
    found: dict[str, tuple[dict[str, str], ...]] = {}
    for duty in DUTIES:
        named = groups.get(duty, (f"{tenant}:{duty}",))
        found[duty] = (
            *(subject("Group", f"{prefix}{each}") for each in named),
            *(subject("User", each) for each in users.get(duty, ())),
        )
    for each in found[APART[0]]:
        if each in found[APART[1]]:
            argument = "groups" if each["kind"] == "Group" else "users"
            refusals.say(
                argument,
                f"{each['name']!r} is both among the {APART[0]} and the {APART[1]}; nobody both "
                "trains models and deploys them: give one of the duties to others",
            )
    return found


def _by_duty(at: str, value: object, refusals: Refusals) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for duty, names in by_name(at, value, refusals).items():
        if duty not in DUTIES:
            refusals.add(f"{at}.{duty}", duty, ", ".join(DUTIES))
            continue
        found[duty] = refusals.texts(f"{at}.{duty}", names)
        for position, each in enumerate(found[duty]):
            if each.startswith("system:"):
                refusals.add(
                    f"{at}.{duty}[{position}]", each, "names of the identity provider",
                    "system: is the cluster's own",
                )  # fmt: skip
    return found


def checked_egress(value: object, kind: type, refusals: Refusals) -> tuple[Egress, ...]:
    """Ways out by name."""
    found: list[Egress] = []
    for name, one in by_name("egress", value, refusals).items():
        at = f"egress[{name!r}]"
        before = refusals.count
        given = options(at, one, kind, refusals)
        object_name(at, name, refusals)
        reason = str(given.get("reason") or "")
        listed = given.get("cidrs")
        ranges = refusals.texts(f"{at}.cidrs", listed) if listed is not None else ()
        if listed is not None and not ranges:
            refusals.add(f"{at}.cidrs", listed, "at least one range")
        for position, each in enumerate(ranges):
            _range(f"{at}.cidrs[{position}]", each, reason, refusals)
        ports = checked_ports(f"{at}.ports", given.get("ports", [443]), refusals)
        protocol = given.get("protocol", "TCP")
        refusals.choice(f"{at}.protocol", protocol, ("TCP", "UDP"))
        purposes = refusals.texts(f"{at}.purposes", given.get("purposes", ["training", "serving"]))
        for position, each in enumerate(purposes):
            refusals.choice(f"{at}.purposes[{position}]", each, ("training", "serving"))
        if refusals.count == before:
            found.append(Egress(name, ranges, ports, str(protocol), purposes, reason))
    return tuple(found)


def _range(at: str, value: str, reason: str, refusals: Refusals) -> None:
    range_ = cidr(at, value, refusals)
    if range_ is None or is_private(range_):
        return
    if range_.is_link_local or range_.is_loopback or range_.is_multicast:
        refusals.add(at, value, "addresses of networks", "these are the node's own")
    elif range_.prefixlen < _WIDEST_PUBLIC[range_.version]:
        refusals.add(
            at, value, f"public ranges of /{_WIDEST_PUBLIC[range_.version]} or narrower",
            "name those of the one service that is needed",
        )  # fmt: skip
    elif not reason.strip():
        refusals.add(
            at, value, "ranges of private networks",
            "for public addresses in the country, set reason to why they are",
        )  # fmt: skip


def checked_ports(at: str, value: object, refusals: Refusals) -> tuple[int, ...]:
    """Port numbers, at least one."""
    if not isinstance(value, list | tuple) or not value:
        refusals.add(at, value, "a list of ports, at least one")
        return ()
    return tuple(
        refusals.whole(f"{at}[{position}]", each, 1, 65535) for position, each in enumerate(value)
    )


def checked_client_ids(
    placed: InCluster | None, value: object, refusals: Refusals
) -> dict[str, Any]:
    """Client ids of managed identities by purpose, on AKS."""
    found = by_name("identity_client_ids", value, refusals)
    if found and placed and placed.distribution != "aks":
        refusals.say(
            "identity_client_ids",
            f"is for aks, but distribution is {placed.distribution!r}; leave it out",
        )
    for purpose, each in found.items():
        refusals.choice(f"identity_client_ids.{purpose}", purpose, ("training", "serving"))
        # An output is known only when the identity is made; it is a client id then.
        if isinstance(each, str) and not _CLIENT_ID.match(each):
            refusals.add(
                f"identity_client_ids.{purpose}", each,
                "a client id such as 01234567-89ab-cdef-0123-456789abcdef",
            )  # fmt: skip
    return found


def checked_budget(at: str, value: object, refusals: Refusals) -> float | None:
    """A number above zero, or None where it isn't given."""
    return None if value is None else amount(at, value, refusals)
