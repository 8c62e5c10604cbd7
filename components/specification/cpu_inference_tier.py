"""Arguments of `CpuInferenceTier`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi

from falaj.components import catalogue
from falaj.components.specification.address_plan import private_ranges
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import (
    DIGEST,
    PORT,
    Between,
    OneOf,
    TextRule,
)
from falaj.components.specification.machine_choice import (
    INT8,
    MEMORY_GIB,
    VCPU,
    checked_subnets,
    chosen_machine,
    cpu_demand,
    machine_notes,
    machine_zones,
)
from falaj.components.specification.model_names import PUBLISHED_MODEL, VERSION
from falaj.components.specification.node_pools import checked_name
from falaj.components.specification.placed import (
    LOG_DAYS,
    NO_BOUNDARY,
    NO_LOG_DAYS,
    Placed,
    PlacedArgs,
    check_placed,
    chosen_zones,
    log_days,
)

_INSTANCES_ONLY = ("int8", "machine", "machine_image", "session_manager")
_AWS_NEEDS = ("repository_id", "package_repository_id")
#: https://aws.amazon.com/private-ca/pricing/, read 2026-11-25; general-purpose mode.
_AUTHORITY_USD_PER_MONTH = 400
_AUTHORITY_NOTE = (
    f"private_authority: AWS bills an authority with {_AUTHORITY_USD_PER_MONTH} USD a month, "
    "whether it issues or not; one's own certificate (certificate_id) costs nothing there"
)
_AZURE_NEEDS = ("log_destination_id", "keyring_secret_id", "certificate_id")
_AWS_ARNS = {"keyring_secret_id": "secretsmanager", "certificate_id": "acm"}
_AWS_ONLY = {
    "boundary_id": NO_BOUNDARY,
    "log_days": NO_LOG_DAYS,
    "private_authority": "AWS Private CA is AWS's; leave it out on Azure",
    "session_manager": "Session Manager is AWS's; leave it out on Azure",
}
_VAULT_SECRET = re.compile(
    r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.KeyVault/vaults/[^/]+"
    r"/secrets/[^/]+$",
    re.IGNORECASE,
)


def check_needs(cloud: str, mode: object, args: Mapping[str, Any], errors: ArgumentErrors) -> None:
    """Refuse the lack of what a cloud or mode needs, and what it has no use for."""
    if cloud == "aws":
        errors.needed(args, _AWS_NEEDS, "on AWS")
        for argument, service in _AWS_ARNS.items():
            value: object = args.get(argument)
            start = f"arn:aws:{service}:{args.get('region')}:"
            if isinstance(value, str) and not value.startswith(start):
                errors.add(argument, value, f"an ARN of the region: {start}…")
        _check_certificate(args, errors)
    else:
        errors.needed(args, _AZURE_NEEDS, "on Azure")
        for argument, why in _AWS_ONLY.items():
            if args.get(argument) not in (None, False):
                errors.say(argument, why)
        for argument in ("keyring_secret_id", "certificate_id"):
            value: object = args.get(argument)
            if isinstance(value, str) and not _VAULT_SECRET.match(value):
                errors.add(
                    argument, value, "the resource id of a Key Vault secret: /subscriptions/…"
                    "/providers/Microsoft.KeyVault/vaults/NAME/secrets/NAME",
                )  # fmt: skip
    if mode == "serverless":
        for argument in _INSTANCES_ONLY:
            if args.get(argument) not in (None, False):
                errors.say(
                    argument,
                    f"given {args[argument]!r}, but mode is 'serverless', where the cloud picks "
                    "the machine; leave it out, or set mode to 'instances'",
                )


def _check_certificate(args: Mapping[str, Any], errors: ArgumentErrors) -> None:
    """One's own certificate, or an authority that issues one: it costs more than the machines."""
    own, authority = args.get("certificate_id"), args.get("private_authority")
    if own is None and not authority:
        errors.say(
            "certificate_id",
            "missing; allowed on AWS: the ARN of a certificate of the host name, which `aws acm "
            "import-certificate` prints; or set private_authority to true, for an authority of "
            f"AWS's that is billed with {_AUTHORITY_USD_PER_MONTH} USD a month",
        )
    elif own is not None and authority:
        errors.say(
            "private_authority",
            "given true beside certificate_id, so that it would issue what nobody shows; leave "
            "one of them out",
        )


#: Memory in GiB that goes with so many vCPUs: docs.aws.amazon.com/AmazonECS/latest/developerguide/
#: task-cpu-memory-error.html; learn.microsoft.com/azure/container-apps/containers (exactly twice).
_SERVERLESS = {
    "aws": {
        1: range(2, 9),
        2: range(4, 17),
        4: range(8, 31),
        8: range(16, 61, 4),
        16: range(32, 121, 8),
    },
    "azure": {1: range(2, 3), 2: range(4, 5), 3: range(6, 7), 4: range(8, 9)},
}


def serverless_size(
    cloud: str, args: Mapping[str, Any], vcpu: int, errors: ArgumentErrors
) -> tuple[int, int]:
    """vCPU and GiB of memory: those of ``memory_gib``, by default the least with that ``vcpu``."""
    sizes = _SERVERLESS[cloud]
    if vcpu not in sizes:
        rule = OneOf(tuple(sizes))
        errors.add(
            "vcpu", vcpu, f"{rule.description}, for mode 'serverless'",
            "larger ones need mode 'instances'", limit=rule,
        )  # fmt: skip
        return vcpu, 2 * vcpu
    memories = sizes[vcpu]
    memory: object = args.get("memory_gib") or memories[0]
    if memory not in memories:
        rule = OneOf(tuple(memories))
        words = f"{rule.description} GiB with {vcpu} vCPU, for mode 'serverless'"
        errors.add("memory_gib", memory, words, limit=rule)
        return vcpu, memories[0]
    return vcpu, int(memory) if isinstance(memory, int | float) else memories[0]


MODES = OneOf(("instances", "serverless"))
INSTANCES = Between(1, 100)
CPU_TARGET_PERCENT = Between(10, 90)
#: Ports that Azure's networks let callers in on: their rules are the network's, which knows no
#: tier. On AWS each tier has rules of its own.
AZURE_PORTS = (443, 8443)
HOST = TextRule(
    r"^(?=.{3,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$",
    "a full name in lower case",
    "inference.noor.internal",
)
_DIGEST = re.compile(r"^[^@\s]+/[^@\s]+@sha256:[0-9a-f]{64}$")
#: What Container Apps keep for HTTP: learn.microsoft.com/azure/container-apps/ingress-how-to
_TAKEN_PORTS = (80, 443)


@described
class CpuInferenceTierArgs(PlacedArgs):
    """Arguments of `CpuInferenceTier`."""

    network_id: pulumi.Input[str]
    """``Network.network_id``."""
    serving_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.serving_subnet_ids``."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["serving"]``."""
    disk_encryption_id: pulumi.Input[str]
    """``KeyRing.disk_encryption_id``."""
    data_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["data"]``."""
    log_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["logs"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Not needed: the tier has an identity of its own."""
    registry_id: pulumi.Input[str]
    """``Registry.registry_id``."""
    repository_id: NotRequired[pulumi.Input[str]]
    """``Registry.repository_ids["inference"]``. Needed on AWS."""
    package_repository: pulumi.Input[str]
    """Repository of the model's packages in the registry: ``Registry.repository_urls``
    of ``models/MODEL``."""
    package_repository_id: NotRequired[pulumi.Input[str]]
    """``Registry.repository_ids`` of the same. Needed on AWS; on Azure the tier may pull from
    the whole registry."""
    log_destination_id: NotRequired[pulumi.Input[str]]
    """``AuditTrail.log_destination_id``. Needed on Azure."""
    image: pulumi.Input[str]
    """Inference image in the registry, by digest (``host/inference@sha256:…``)."""
    keyring_secret_id: NotRequired[pulumi.Input[str]]
    """Secret with what the server needs of the model's key ring: a tar archive in base64 of
    ``keyring.json``, ``kek-*.key``, ``signing.pub.pem`` and ``tokens.jwks.json``. Default on AWS:
    a secret is made under ``data_key_id``, empty until a deployer fills it; needed on
    Azure: resource id of a Key Vault secret (``…/vaults/NAME/secrets/NAME``)."""
    model: Annotated[str, PUBLISHED_MODEL]
    """Name of the model in its packages."""
    version: Annotated[int, VERSION]
    """Number of the version that is served."""
    package_digest: Annotated[str, DIGEST]
    """``sha256:…`` of the version's package in its repository, as ``falaj publish`` prints it."""
    keys_digest: Annotated[str, DIGEST]
    """``sha256:…`` of the package's wrapped keys in the same repository, which ``falaj publish``
    prints beside the package's; another one after a rotation."""
    certificate_id: NotRequired[pulumi.Input[str]]
    """Certificate of the listener: ACM ARN, or resource id of the Key Vault secret of a
    certificate with the content type ``application/x-pem-file``. It names ``host_name``, and is
    renewed by whoever issued it. Needed, unless ``private_authority`` is true."""
    private_authority: NotRequired[Annotated[bool, Default(False)]]
    """Whether a certificate authority of the tier's own issues the listener's certificate, which
    is then renewed by itself: AWS Private CA, which is billed by the month and costs more than
    small machines. AWS only."""
    host_name: NotRequired[Annotated[str, HOST]]
    """Private name of the service. Default: ``inference.<tenant>.internal``."""
    mode: NotRequired[Annotated[str, MODES, Default("instances")]]
    """Whether it runs on machines or in containers of the cloud's own."""
    vcpu: NotRequired[Annotated[int, VCPU, Default(2)]]
    """Virtual CPUs of each machine."""
    memory_gib: NotRequired[Annotated[int, MEMORY_GIB, Default(4)]]
    """Least memory of each machine in GiB; of a serverless container by default the least that
    goes with its CPUs."""
    int8: NotRequired[Annotated[str, INT8, Default("vnni")]]
    """Instructions for whole numbers of 8 bits that each machine must have. Instances only."""
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    machine_image: NotRequired[str]
    """Machine image: AMI id or SSM parameter; Azure image id. Default: the newest of the cloud's
    own Linux for the machine's architecture. Name one to pin it. On AWS a parameter is asked at
    each deployment, and a newer image replaces the machines."""
    session_manager: NotRequired[Annotated[bool, Default(False)]]
    """Whether people whom IAM lets have a shell on the machines by AWS Systems Manager, encrypted
    with a key of its own and logged. It needs ``Network.session_manager``, too. AWS instances
    only."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone that sells the machine and is not reported as impaired."""
    min_instances: NotRequired[Annotated[int, INSTANCES, Default(1)]]
    """Floor."""
    max_instances: NotRequired[Annotated[int, INSTANCES, Default(3)]]
    """Ceiling."""
    cpu_target_percent: NotRequired[Annotated[int, CPU_TARGET_PERCENT, Default(60)]]
    """Use of CPUs at which another is added."""
    port: NotRequired[Annotated[int, PORT]]
    """Port of the listener; on Azure 443 or 8443. Default: 443; 8443 for ``serverless`` on Azure,
    which keeps 80 and 443 to itself."""
    allowed_cidrs: NotRequired[list[str]]
    """Private ranges that may call. Default: the network's own."""
    log_days: NotRequired[Annotated[int, LOG_DAYS, Default(365)]]
    """Days that the server's log is kept. AWS only: on Azure it is in the workspace,
    see ``AuditTrail.retention_days``."""
    boundary_id: NotRequired[pulumi.Input[str]]
    """``Identity.boundary_id``. Default: none. AWS only."""


@dataclass(frozen=True, kw_only=True)
class CpuInferenceTierSpec:
    """The plain arguments of `CpuInferenceTier`, checked."""

    args: Mapping[str, Any]
    """Its arguments by name, defaults included."""
    placed: Placed
    name: str
    machine: catalogue.MachineType | None
    """None for ``serverless``."""
    vcpu: int
    memory_gib: int
    """Asked for; of a serverless container, what it gets."""
    zones: tuple[str, ...]
    host_name: str
    min_instances: int
    max_instances: int
    port: int
    allowed_cidrs: tuple[str, ...]
    """Empty: the network's own range."""
    notes: tuple[str, ...]
    """What to know before it is made; the component logs them as warnings."""

    @property
    def zones_named(self) -> bool:
        """Whether the user named the zones; else those that the network covers are used."""
        return self.args["zones"] is not None

    @property
    def cost_at_minimum(self) -> str:
        """What its machines cost at the floor; unknown for serverless containers."""
        return self._cost(self.min_instances)

    @property
    def cost_at_maximum(self) -> str:
        """What its machines cost at the ceiling; unknown for serverless containers."""
        return self._cost(self.max_instances)

    @property
    def summary(self) -> str:
        """Machine, zones and cost on one line."""
        what = self.machine or f"serverless, {self.vcpu} vCPU and {self.memory_gib} GiB"
        return (
            f"{what} in {', '.join(self.zones)}; {self.min_instances} to {self.max_instances}; "
            f"at the minimum: {self.cost_at_minimum}; at the maximum: {self.cost_at_maximum}"
        )

    def _cost(self, instances: int) -> str:
        if self.machine is None:
            return "cost unknown"
        return str(catalogue.cost.pool(self.machine, instances))


def check(cloud: str, name: str, args: CpuInferenceTierArgs) -> CpuInferenceTierSpec:
    """Check what is plain in a tier's arguments, and find the machine and its zones.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"CpuInferenceTier {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, CpuInferenceTierArgs, cloud)
    checked_name(name, errors)
    placed = check_placed(cloud, given, errors)
    mode: str = checked["mode"]
    check_needs(cloud, mode, given, errors)
    image: object = given.get("image")
    if isinstance(image, str) and not is_by_digest(image):
        errors.add(
            "image", image, "an image of the registry by digest: host/name@sha256:…",
            "a tag can be moved to another image",
        )  # fmt: skip
    tenant = placed.tenant if placed else "tenant"
    low: int = checked["min_instances"]
    high: int = checked["max_instances"]
    if given.get("max_instances") is None:
        high = max(high, low)
    if low > high:
        rule = Between(INSTANCES.low, high)
        errors.add("min_instances", low, f"at most max_instances, which is {high}", limit=rule)
    taken = _TAKEN_PORTS if cloud == "azure" and mode == "serverless" else ()
    port: int = checked["port"] or (8443 if taken else 443)
    if cloud == "azure" and port not in AZURE_PORTS:
        errors.add("port", port, " or ".join(map(str, AZURE_PORTS)) + " on Azure", "use 8443")
    elif port in taken:
        errors.add(
            "port", port, "any port but 80 and 443, for 'serverless' on Azure", "use 8443",
            limit=OneOf((8443,)),
        )  # fmt: skip
    if port in (22, 3389):
        errors.add("port", port, "any port but those of remote shells", "443 is usual")
    cidrs = private_ranges(given, "allowed_cidrs", errors)
    log_days(cloud, "log_days", checked["log_days"], errors)
    machine, zones, size = None, (), (checked["vcpu"], checked["memory_gib"])
    if placed and mode == "instances":
        machine, zones = _instances(placed, given, checked, errors)
    elif placed and mode == "serverless":
        zones = chosen_zones(placed, given, errors)
        size = serverless_size(cloud, given, checked["vcpu"], errors)
    checked_subnets(given, "serving_subnet_ids", zones, errors)
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return CpuInferenceTierSpec(
        args=checked,
        placed=placed,
        name=name,
        machine=machine,
        vcpu=size[0],
        memory_gib=size[1],
        zones=zones,
        host_name=host_name(checked["host_name"], tenant),
        min_instances=low,
        max_instances=high,
        port=port,
        allowed_cidrs=cidrs,
        notes=(
            *(machine_notes(machine, placed, zones) if machine else ()),
            *((_AUTHORITY_NOTE,) if checked["private_authority"] else ()),
        ),
    )


def host_name(given: str | None, tenant: str) -> str:
    """The private name of a tenant's service: the one that was given, or the default."""
    return given or f"inference.{tenant}.internal"


def is_by_digest(image: str) -> bool:
    """Whether an image is named by the digest of its content, and not by a tag."""
    return _DIGEST.match(image) is not None


def _instances(
    placed: Placed, given: Mapping[str, Any], args: Mapping[str, Any], errors: ArgumentErrors
) -> tuple[catalogue.MachineType | None, tuple[str, ...]]:
    demand = cpu_demand(given, args, errors)
    if demand is None:
        return None, ()
    machine = chosen_machine(placed, given, errors, blame="vcpu", **demand)
    if machine is None:
        return None, ()
    return machine, machine_zones(placed, given, machine, errors)
