"""Subnets that other resources stand in: what a service asks of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from falaj.sandbox.clouds.azure import checks, naming, resources
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem, World

TYPE = "Microsoft.Network/virtualNetworks/subnets"


def find(world: World, id: str) -> Inputs | None:
    """The subnet's declaration, made by itself or by its network; None when there is none."""
    made = resources.by_id(world, id)
    if made is not None:
        return Inputs(made.inputs)
    item = resources.inline(world, id)
    return Inputs(item) if item else None


def blocks(subnet: Inputs) -> list[checks.Range]:
    """The subnet's address blocks."""
    texts = [*subnet.strings("addressPrefix"), *subnet.strings("addressPrefixes")]
    return [block for _, text in texts if (block := checks.address_range(text))]


def delegations(subnet: Inputs) -> set[str]:
    """The services that the subnet is delegated to, in lower case."""
    names = (
        subnet.optional_string(f"{path}.serviceName") for path, _ in subnet.items("delegations")
    )
    return {name.lower() for name in names if name}


def region(world: World, id: str) -> str | None:
    """The region of the subnet's network."""
    reference = naming.parse(id)
    parent = reference.parent if reference else None
    return resources.region_of(resources.by_id(world, parent)) if parent else None


def fits(
    resource: Resource,
    path: str,
    *,
    where: str | None,
    delegated_to: str | None = None,
    may_be_delegated: bool = False,
    least: int | None = None,
    name: str | None = None,
) -> Iterator[Problem]:
    """Problems of the subnet whose id stands at a path.

    `where` is the region that its network must be in, `delegated_to` the service that it must be
    delegated to, `least` the longest prefix that is large enough, `name` the only name allowed.
    """
    id = resource.optional_string(path)
    if id is None:
        return
    yield from checks.resource_id(path, id, TYPE)
    if name and id.rpartition("/")[2] != name:
        yield Problem(path, f"the subnet must be called {name}; given is {id.rpartition('/')[2]}")
    subnet = find(resource.world, id) if resource.world else None
    if subnet is None:
        return
    network = region(resource.world, id)
    if where and network and network != where:
        yield Problem(
            path,
            f"the subnet's network is in {network}, this resource in {where}; "
            "choose a subnet of the same region",
        )
    taken = delegations(subnet)
    if delegated_to and delegated_to.lower() not in taken:
        yield Problem(path, f"the subnet isn't delegated to {delegated_to}; add the delegation")
    elif not delegated_to and not may_be_delegated and taken:
        yield Problem(
            path,
            f"the subnet is delegated to {', '.join(sorted(taken))} and can't hold "
            "this resource; choose a subnet without a delegation",
        )
    sizes = [block.prefixlen for block in blocks(subnet) if block.version == 4]
    if least is not None and sizes and min(sizes) > least:
        yield Problem(path, f"the subnet is /{min(sizes)}; this resource needs /{least} or larger")


def address(world: World | None, id: str, *seed: str) -> str | None:
    """An address in the subnet that its range could give out: the same in each run."""
    subnet = find(world, id) if world else None
    ranges = [item for item in blocks(subnet) if item.version == 4] if subnet else []
    if not ranges:
        return None
    # The first four addresses and the last are Azure's own (virtual-networks-faq).
    free = max(ranges[0].num_addresses - 5, 1)
    return str(ranges[0][4 + int(naming.digest(8, *seed), 16) % free])


def is_inside(subnet: Inputs, text: str) -> bool:
    """Whether an address is one that the subnet can give out."""
    try:
        given = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(given.version == block.version and given in block for block in blocks(subnet))
