"""Where things are: networks and subnets with what is in them, what is around, one machine."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from falaj.policies.model import Resource, get, is_unknown, items, text
from falaj.policies.reading.addresses import EVERY_PORT, Ports, port
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.at_rest import encryption_of
from falaj.stacks.costs.billing import charges
from falaj.stacks.costs.machines import READERS
from falaj.stacks.costs.report import span_of
from falaj.stacks.drawing.builder import Builder, Traffic
from falaj.stacks.drawing.kinds import (
    AWS_SUBNETS,
    AZURE_SUBNETS,
    SUBNETS,
    TEMPLATES,
    VNETS,
    VPCS,
    aws,
    kind_of_node,
)
from falaj.stacks.drawing.model import NodeKind

#: What stands around the networks, by its kind.
AREAS: Final[Mapping[NodeKind, str]] = {
    "store": "Stores", "database": "Databases", "file system": "File systems",
    "volume": "Stores", "registry": "Registries", "key": "Keys and secrets",
    "vault": "Keys and secrets", "secret": "Keys and secrets", "authority": "Keys and secrets",
    "records": "Records and watch", "watch": "Records and watch", "names": "Names",
    "identity": "Identities", "pool": "Machines", "machine": "Machines", "tier": "Services",
    "balancer": "Services", "endpoint": "Services", "gateway": "Services", "cluster": "Clusters",
    "other": "Other",
}  # fmt: skip
#: What is inside of another resource, and the property that names that one.
_PARENTS: Final[Mapping[str, tuple[tuple[str, frozenset[str]], ...]]] = {
    **dict.fromkeys(
        azure("storage:BlobContainer", "storage:FileShare"),
        (("accountName", azure("storage:StorageAccount")),),
    ),
    **dict.fromkeys(
        azure("keyvault:Key", "keyvault:Secret"), (("vaultName", azure("keyvault:Vault")),)
    ),
    **dict.fromkeys(azure("sql:Database"), (("serverName", azure("sql:Server")),)),
    **dict.fromkeys(
        azure("app:ContainerApp", "app:Job"),
        (
            ("environmentId", azure("app:ManagedEnvironment")),
            ("managedEnvironmentId", azure("app:ManagedEnvironment")),
        ),
    ),
    **dict.fromkeys(aws("rds/clusterInstance"), (("clusterIdentifier", aws("rds/cluster")),)),
    **dict.fromkeys(aws("ecs/service"), (("cluster", aws("ecs/cluster")),)),
}
#: What says a network's id and isn't in it.
_PLACELESS: Final = frozenset(("names", "records", "watch", "key", "vault", "secret"))
_MOUNTS: Final = aws("efs/mountTarget")
_NETWORK_SIGNS: Final = {"aws": "vpc-", "azure-native": "/virtualnetworks/"}
_SUBNET_SIGNS: Final = {"aws": "subnet-", "azure-native": "/subnets/"}


def networks(builder: Builder) -> None:
    """Networks, their zones and their subnets."""
    stack, references = builder.stack, builder.references
    for each in stack.of_kind(*sorted(VPCS)):
        builder.stand_for(each, "network", *_ranges(each, "cidrBlock", "ipv6CidrBlock"))
    for each in stack.of_kind(*sorted(VNETS)):
        builder.stand_for(each, "network", *_ranges(each, "addressSpace.addressPrefixes"))
    for each in stack.of_kind(*sorted(AWS_SUBNETS)):
        found, others = references.at(each, "vpcId", VPCS)
        network = found[0].urn if found else _elsewhere_network(builder, others)
        zone = text(each.get("availabilityZoneId")) or text(each.get("availabilityZone"))
        container = network
        if zone:
            container = f"zone:{network}:{zone}"
            builder.node(container, "zone", zone, container=network)
        ranges = _ranges(each, "cidrBlock", "ipv6CidrBlock")
        builder.stand_for(each, "subnet", *ranges, container=container)
    for each in stack.of_kind(*sorted(AZURE_SUBNETS)):
        found, others = references.at(each, "virtualNetworkName", VNETS)
        network = found[0].urn if found else _elsewhere_network(builder, others)
        ranges = _ranges(each, "addressPrefix", "addressPrefixes")
        delegated = [text(get(one, "serviceName")) for one in items(each.get("delegations"))]
        users = [f"for {one}" for one in delegated if one]
        builder.stand_for(each, "subnet", *ranges, *users, container=network)


def _ranges(resource: Resource, *paths: str) -> list[str]:
    found = [each for path in paths for each in items(resource.get(path))]
    return ["range not known yet" if is_unknown(each) else text(each) for each in found]


def _elsewhere_network(builder: Builder, ids: list[str]) -> str:
    label = ids[0].rpartition("/")[2] if ids else "a network"
    id = f"elsewhere:{ids[0] if ids else 'network'}"
    return builder.node(id, "network", label, "of another stack", is_elsewhere=True)


def add_resources(builder: Builder) -> None:
    """Everything that is drawn, each where it is."""
    stack = builder.stack
    pending: list[tuple[Resource, NodeKind]] = []
    for each in stack.resources:
        kind = kind_of_node(each, stack)
        if kind is not None and each.urn not in builder.nodes:
            pending.append((each, kind))
    drawn = {each.urn for each, _ in pending}
    for each, kind in pending:
        parent = _parent(builder, each, drawn)
        container = parent or _located(builder, each, kind) or _area(builder, kind)
        builder.stand_for(each, kind, *details(builder, each, kind), container=container)
        state = encryption_of(each, stack).at_rest
        if state != "not stored here":
            builder.change(each.urn, encryption=state)


def _parent(builder: Builder, resource: Resource, drawn: set[str]) -> str:
    for path, kinds in _PARENTS.get(resource.kind, ()):
        found, _ = builder.references.at(resource, path, kinds)
        if found and found[0].urn in drawn and found[0].urn != resource.urn:
            return found[0].urn
    return ""


def _area(builder: Builder, kind: NodeKind) -> str:
    title = AREAS.get(kind, "Other")
    return builder.node(f"area:{title}", "area", title)


def _located(builder: Builder, resource: Resource, kind: NodeKind) -> str:
    """The innermost container of all subnets that a resource is in; empty where it is in none."""
    references = builder.references
    sign = _SUBNET_SIGNS.get(resource.package, "")
    if not sign or kind in _PLACELESS:
        return ""
    mounts = [
        each
        for each in builder.stack.of_kind(*sorted(_MOUNTS))
        if any(one.urn == resource.urn for one in _system_of(builder, each))
    ]
    ids: list[str] = []
    for each in (resource, *mounts):
        found, others = references.mentioned(each, SUBNETS, sign)
        ids += [one.urn for one in found]
        ids += [_elsewhere_subnet(builder, each, one) for one in others]
    if ids:
        return _common(builder, list(dict.fromkeys(ids)))
    inside, far = references.mentioned(resource, VPCS | VNETS, _NETWORK_SIGNS[resource.package])
    if inside:
        return inside[0].urn
    return _elsewhere_network(builder, far) if far and resource.package == "aws" else ""


def _system_of(builder: Builder, mount: Resource) -> list[Resource]:
    return builder.references.at(mount, "fileSystemId", aws("efs/fileSystem"))[0]


def _elsewhere_subnet(builder: Builder, resource: Resource, value: str) -> str:
    """A subnet that another stack has: by what the program calls it, within that stack."""
    stack = builder.references.stack_of(resource, value)
    owner = f"network of stack {stack}" if stack else "another stack's network"
    network = builder.node(
        f"elsewhere:{stack or 'network'}", "network", owner, "not of this stack", is_elsewhere=True
    )
    # Azure's ids end in the name; for AWS's the program's own word for it says more.
    name = "" if "/" in value else builder.references.given_name(value)
    label = name.replace("subnet ", "", 1) or _short(value)
    return builder.node(
        f"elsewhere:{value.lower()}", "subnet", label, "" if label == _short(value) else value,
        container=network, is_elsewhere=True,
    )  # fmt: skip


def _short(value: str) -> str:
    return value.rpartition("/")[2]


def _common(builder: Builder, ids: list[str]) -> str:
    chains = [_chain(builder, each) for each in ids]
    shared = [each for each in chains[0] if all(each in chain for chain in chains)]
    return shared[0] if shared else chains[0][-1]


def _chain(builder: Builder, id: str) -> list[str]:
    found: list[str] = []
    while id and id not in found:
        found.append(id)
        id = builder.nodes[id].container
    return found


def details(builder: Builder, resource: Resource, kind: NodeKind) -> list[str]:
    """What is worth saying of a thing: its machines, its size, its service."""
    found: list[str] = []
    if kind == "endpoint":
        service = text(resource.get("serviceName")).rpartition("com.amazonaws.")[2]
        found.append(service.partition(".")[2] if service.count(".") else service)
        for each in items(resource.get("privateLinkServiceConnections")):
            found += [text(one) for one in items(get(each, "groupIds"))]
        if text(resource.get("vpcEndpointType")).lower() == "gateway":
            found.append("by routes")
    found += sizes(builder, resource)
    if kind == "balancer":
        sort = text(resource.get("loadBalancerType")) or text(resource.get("sku.name"))
        found.append(sort)
    return [each for each in dict.fromkeys(found) if each]


def sizes(builder: Builder, resource: Resource) -> list[str]:
    """Machines of a pool and capacities, from the smallest to the largest."""
    read = READERS.get(resource.kind)
    made = [*(read(resource, builder.stack) if read else ()), *(charges(resource) or ())]
    own = [each for each in made if not each.kind or each.kind == resource.kind]
    parts: list[str] = []
    for each in own:
        if each.is_machines:
            machines = " or ".join(each.machines) or "machines"
            bought = "" if each.capacity in {"", "on-demand"} else f", {each.capacity}"
            parts.append(f"{span_of(each.amount)} {machines}{bought}")
        elif each.unit.thing in {"GiB", "TiB", "vCPU"} and each.amount.is_known:
            parts.append(f"{span_of(each.amount)} {each.unit.thing}")
    return parts


def parts(builder: Builder) -> dict[str, list[str]]:
    """Resources that are parts of drawn ones, by URN, such as launch templates of pools."""
    found: dict[str, list[str]] = {}
    for id, node in builder.nodes.items():
        if not node.urn or node.kind not in {"pool", "machine"}:
            continue
        resource = builder.stack.by_urn[node.urn]
        used = builder.references.mentioned(resource, TEMPLATES, "lt-")[0]
        for each in used:
            found.setdefault(each.urn, []).append(id)
    return found


# The local platform: one machine.

_PREFIX: Final = "falaj-local:index:"
_WORKSPACE: Final = f"{_PREFIX}Workspace"
_KEYS: Final = f"{_PREFIX}KeyRing"
_SERVICE: Final = f"{_PREFIX}InferenceService"
_KINDS: Final[Mapping[str, NodeKind]] = {
    _KEYS: "key",
    _SERVICE: "tier",
    f"{_PREFIX}CertificateAuthority": "authority",
    f"{_PREFIX}Certificate": "secret",
    f"{_PREFIX}Dataset": "store",
    f"{_PREFIX}TrainingRun": "store",
    f"{_PREFIX}ModelPackage": "store",
    f"{_PREFIX}BatchInference": "store",
}
_DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_PREFIX}CertificateAuthority": ("commonName",),
    f"{_PREFIX}Certificate": ("usage", "commonName"),
    f"{_PREFIX}Dataset": ("source",),
    f"{_PREFIX}ModelPackage": ("model", "dataClass"),
    f"{_PREFIX}BatchInference": ("model",),
    _SERVICE: ("model",),
}
#: Properties that a thing's data comes in by.
_READ: Final = ("dataset", "run", "model", "certificate")
_ROOM: Final = "This machine"


def add_local_resources(builder: Builder) -> None:
    """Everything of the local platform that is drawn, with its keys and callers."""
    stack = builder.stack
    for each in stack.of_kind(_WORKSPACE):
        builder.stand_for(each, "area", text(each.get("path")), label=_ROOM)
    drawn = stack.of_kind(*_KINDS)
    for each in drawn:
        details = [text(each.get(key)) for key in _DETAILS.get(each.kind, ())]
        workspaces = builder.references.origins(each, "site", frozenset((_WORKSPACE,)))
        room = workspaces[0].urn if workspaces else builder.node(f"area:{_ROOM}", "area", _ROOM)
        builder.stand_for(each, _KINDS[each.kind], *details, container=room)
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
