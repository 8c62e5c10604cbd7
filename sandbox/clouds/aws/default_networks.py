"""The VPC that every account has in every region, with a subnet in each zone.

"Default VPCs", docs.aws.amazon.com/vpc/latest/userguide/default-vpc.html: 172.31.0.0/16, a /20 in
each zone that gives public addresses, an internet gateway. Nobody made them: they are seen by who
asks for them or names them, and no command lists them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws.naming import marked
from falaj.sandbox.clouds.aws.regions import zone_ids
from falaj.sandbox.clouds.model import Made, Properties, World

_BLOCK: Final = ipaddress.ip_network("172.31.0.0/16")
_SUBNET_PREFIX: Final = 20

Answered: TypeAlias = Callable[[str, str, Properties], Properties]
"""What AWS answers for a resource of a type, id and inputs."""


def default_vpc(region: str) -> str:
    """The id of the region's default VPC."""
    return "vpc-" + marked(17, region, "default VPC")


def default_subnet(region: str, zone: str) -> str:
    """The id of the default subnet in a zone, given by its id."""
    return "subnet-" + marked(17, region, zone, "default subnet")


class WithDefaultNetworks:
    """All that exists, and the default networks of one region.

    Args:
        world: what was made.
        region: whose default networks are seen; none where it is empty.
        answered: how AWS answers for a resource.
    """

    def __init__(self, world: World, region: str, answered: Answered) -> None:
        self._world = world
        self._region = region
        self._answered = answered

    def by_id(self, token: str, id: str) -> Made | None:
        """The resource of that type and id; None when there is none."""
        found = self._world.by_id(token, id)
        return found or next((made for made in self._given(token) if made.id == id), None)

    def all(self, token: str | None = None) -> list[Made]:
        """Every resource, or every one of a type; the default ones last."""
        return [*self._world.all(token), *self._given(token)]

    def find(self, token: str, **equal: Any) -> Iterable[Made]:
        """The resources of a type whose outputs equal all that is given."""
        yield from self._world.find(token, **equal)
        for made in self._given(token):
            if all(made.outputs.get(name) == value for name, value in equal.items()):
                yield made

    def _given(self, token: str | None) -> list[Made]:
        vpc = default_vpc(self._region)
        if not self._region or token not in (None, t.VPC, t.SUBNET, t.INTERNET_GATEWAY):
            return []
        found: list[Made] = []
        if token in (None, t.VPC):
            inputs = {"cidrBlock": str(_BLOCK), "enableDnsHostnames": True}
            found.append(self._made(t.VPC, vpc, inputs, default=True))
        blocks = _BLOCK.subnets(new_prefix=_SUBNET_PREFIX)
        if token in (None, t.SUBNET):
            for zone, block in zip(zone_ids(self._region), blocks, strict=False):
                inputs = {
                    "vpcId": vpc,
                    "cidrBlock": str(block),
                    "availabilityZoneId": zone,
                    "mapPublicIpOnLaunch": True,
                }
                id = default_subnet(self._region, zone)
                found.append(self._made(t.SUBNET, id, inputs, defaultForAz=True))
        if token in (None, t.INTERNET_GATEWAY):
            id = "igw-" + marked(17, self._region, "default internet gateway")
            found.append(self._made(t.INTERNET_GATEWAY, id, {"vpcId": vpc}))
        return found

    def _made(self, token: str, id: str, inputs: Properties, **beside: bool) -> Made:
        outputs = {**self._answered(token, id, inputs), **beside}
        return Made(id, token, id, inputs, outputs, self._region, "")
