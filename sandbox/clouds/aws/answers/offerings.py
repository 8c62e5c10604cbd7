"""Which machine types are sold where, and what they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue import MachineType
from falaj.sandbox.clouds.aws.naming import region_of
from falaj.sandbox.clouds.aws.regions import catalogued, zone_name
from falaj.sandbox.clouds.inputs import Inputs, as_list, as_map
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import World


def _machines(inputs: Inputs) -> tuple[MachineType, ...]:
    known = catalogued(region_of(inputs))
    if known is None:
        raise LookupError(
            f"the catalogue doesn't say what {region_of(inputs)} sells; ask for me-central-1"
        )
    return known.machines()


def _filters(inputs: Inputs) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for _, item in inputs.each("filters[]"):
        entry = as_map(item)
        found[str(entry.get("name"))] = [str(value) for value in as_list(entry.get("values"))]
    return found


def _offered(inputs: Inputs) -> Iterator[tuple[str, str, str]]:
    """Each offer as its type, its place, and the kind of place."""
    kind = inputs.string("locationType") or "region"
    filters = _filters(inputs)
    wanted, places = filters.get("instance-type"), filters.get("location")
    for machine in _machines(inputs):
        if wanted is not None and machine.name not in wanted:
            continue
        where = {
            "region": (region_of(inputs),),
            "availability-zone": tuple(
                zone_name(region_of(inputs), zone) for zone in machine.zone_ids
            ),
            "availability-zone-id": machine.zone_ids,
        }.get(kind, ())
        for place in where:
            if places is None or place in places:
                yield machine.name, place, kind


def _offerings(inputs: Inputs, _world: World) -> dict[str, Any]:
    offers = list(_offered(inputs))
    return {
        "instanceTypes": [name for name, _, _ in offers],
        "locations": [place for _, place, _ in offers],
        "locationTypes": [kind for _, _, kind in offers],
    }


def _offering(inputs: Inputs, _world: World) -> dict[str, Any]:
    preferred = [str(name) for name in as_list(inputs.get("preferredInstanceTypes"))]
    offered = {name for name, _, _ in _offered(inputs)}
    for name in preferred or sorted(offered):
        if name in offered:
            return {"instanceType": name, "id": name}
    raise LookupError(f"none of {', '.join(preferred) or 'the types asked for'} is sold there")


def _types(inputs: Inputs, _world: World) -> dict[str, Any]:
    wanted = _filters(inputs).get("instance-type")
    return {
        "instanceTypes": [
            machine.name
            for machine in _machines(inputs)
            if wanted is None or machine.name in wanted
        ]
    }


def _type(inputs: Inputs, _world: World) -> dict[str, Any]:
    name = inputs.string("instanceType")
    for machine in _machines(inputs):
        if machine.name == name:
            return _described(machine)
    raise LookupError(f"{name!r} isn't sold in {region_of(inputs)}")


def _described(machine: MachineType) -> dict[str, Any]:
    gpus: list[dict[str, Any]] = []
    if machine.gpu is not None:
        gpus.append(
            {
                "count": int(machine.gpu_count),
                "manufacturer": "NVIDIA",
                "memorySize": 0,
                "name": machine.gpu.name,
            }
        )
    return {
        "id": machine.name,
        "currentGeneration": True,
        "defaultVcpus": machine.vcpu or 0,
        "efaMaximumInterfaces": machine.efa_interfaces,
        "efaSupported": machine.efa_interfaces > 0,
        "gpuses": gpus,
        "instanceStorageSupported": bool(machine.local_nvme_gb),
        "maximumNetworkCards": machine.network_cards or 1,
        "memorySize": int((machine.memory_gib or 0) * 1024),
        "networkPerformance": machine.network_performance or "",
        "supportedArchitectures": [machine.arch],
        "supportedUsagesClasses": list(machine.usage_classes),
        "totalInstanceStorage": machine.local_nvme_gb or 0,
    }


ANSWERS: Final[Answers] = {
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": _offerings,
    "aws:ec2/getInstanceTypeOffering:getInstanceTypeOffering": _offering,
    "aws:ec2/getInstanceTypes:getInstanceTypes": _types,
    "aws:ec2/getInstanceType:getInstanceType": _type,
}
