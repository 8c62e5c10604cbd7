"""One machine: what the local platform keeps there, what serves, and who may call it."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from falaj.policies.model import Resource, is_unknown, text
from falaj.policies.reading.addresses import EVERY_PORT, Ports, port
from falaj.stacks.drawing.builder import Builder
from falaj.stacks.drawing.model import Kind
from falaj.stacks.drawing.traffic import Traffic

_PREFIX: Final = "falaj-local:index:"
_WORKSPACE: Final = f"{_PREFIX}Workspace"
_KEYS: Final = f"{_PREFIX}KeyRing"
_SERVICE: Final = f"{_PREFIX}InferenceService"
_KINDS: Final[Mapping[str, Kind]] = {
    _KEYS: "key",
    _SERVICE: "tier",
    f"{_PREFIX}CertificateAuthority": "authority",
    f"{_PREFIX}Certificate": "secret",
    f"{_PREFIX}Dataset": "store",
    f"{_PREFIX}TrainingRun": "store",
    f"{_PREFIX}ModelPackage": "store",
}
_DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_PREFIX}CertificateAuthority": ("commonName",),
    f"{_PREFIX}Certificate": ("usage", "commonName"),
    f"{_PREFIX}Dataset": ("source",),
    f"{_PREFIX}ModelPackage": ("model", "dataClass"),
    _SERVICE: ("model",),
}
#: Properties that a thing's data comes in by.
_READ: Final = ("dataset", "run", "model", "certificate")
_ROOM: Final = "This machine"


def things(builder: Builder) -> None:
    """Everything of the local platform that is drawn, with its keys and callers."""
    stack = builder.stack
    for each in stack.of_kind(_WORKSPACE):
        builder.stand_for(each, "area", text(each.get("path")), label=_ROOM)
    drawn = stack.of_kind(*_KINDS)
    for each in drawn:
        said = [text(each.get(key)) for key in _DETAILS.get(each.kind, ())]
        homes = builder.references.origins(each, "site", frozenset((_WORKSPACE,)))
        room = homes[0].urn if homes else builder.node(f"area:{_ROOM}", "area", _ROOM)
        builder.stand_for(each, _KINDS[each.kind], *said, container=room)
    for each in drawn:
        _relate(builder, each)


def _relate(builder: Builder, resource: Resource) -> None:
    origins = builder.references.origins
    for ring in origins(resource, "keyring", frozenset((_KEYS,))):
        if _KINDS[resource.kind] == "store":
            builder.edge("encrypts", ring.urn, resource.urn, "", resource.urn)
            builder.change(resource.urn, encryption="customer key")
    for key in _READ:
        for each in origins(resource, key, frozenset(_KINDS)):
            builder.edge("reads", resource.urn, each.urn, "reads", resource.urn)
    if resource.kind == _SERVICE:
        found = port(resource.get("port"))
        ports = (EVERY_PORT,) if found is None else (Ports(found, found),)
        traffic = Traffic.of("tcp", ports, seen=found is not None)
        builder.flow(_callers(builder, resource), resource.urn, traffic, resource.urn)


def _callers(builder: Builder, service: Resource) -> str:
    """Who reaches a service by the address that it listens on."""
    given = service.get("host")
    if is_unknown(given):
        return builder.unseen("callers")
    host = text(given) or "localhost"
    try:
        address = ip_address(host)
    except ValueError:
        is_own, is_any = host == "localhost", False
    else:
        is_own, is_any = address.is_loopback, address.is_unspecified
    if is_own:
        return builder.node("callers:own", "range", "callers on this machine", host)
    what = "any address of this machine" if is_any else host
    return builder.node(f"callers:{host}", "range", f"whoever reaches {what}", host)
