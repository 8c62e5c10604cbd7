"""Arguments of `CpuInferenceTier`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

import pulumi

from falaj.components import catalogue
from falaj.components.specification.cpu_demand import cpu_demand
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, OneOf, TextRule
from falaj.components.specification.machine_choice import (
    checked_subnets,
    chosen_machine,
    machine_notes,
    machine_zones,
)
from falaj.components.specification.node_pools import checked_name
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed
from falaj.components.specification.private_ranges import private_ranges
from falaj.components.specification.refusals import Refusals
from falaj.components.specification.retention import log_days
from falaj.components.specification.serverless_size import serverless_size
from falaj.components.specification.tier_needs import check_needs
from falaj.components.specification.zones import chosen_zones


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
    model_bucket_id: pulumi.Input[str]
    """``ObjectStore.bucket_ids["models"]``."""
    registry_id: pulumi.Input[str]
    """``Registry.registry_id``."""
    repository_id: NotRequired[pulumi.Input[str]]
    """``Registry.repository_ids["inference"]``. Needed on AWS."""
    log_destination_id: NotRequired[pulumi.Input[str]]
    """``AuditTrail.log_destination_id``. Needed on Azure."""
    image: pulumi.Input[str]
    """Inference image in the registry, by digest (``host/inference@sha256:…``)."""
    keyring_secret_id: NotRequired[pulumi.Input[str]]
    """Secret with what the server needs of the model's key ring: a tar archive in base64 of
    ``keyring.json``, ``kek-*.key``, ``signing.pub.pem`` and ``tokens.jwks.json``. Default on AWS:
    a secret is made under ``data_key_id``, empty until a deployer fills it; needed on
    Azure: resource id of a Key Vault secret (``…/vaults/NAME/secrets/NAME``)."""
    model_package: str
    """Key of the signed model package in the bucket; the last two parts are the model and its
    version: ``packages/churn/3``."""
    certificate_id: NotRequired[pulumi.Input[str]]
    """Certificate of the listener: ACM ARN, or resource id of the Key Vault secret of a
    certificate with the content type ``application/x-pem-file``. Default on AWS: a private
    certificate authority of the tier's own; needed on Azure."""
    host_name: NotRequired[str]
    """Private name of the service. Default: ``inference.<tenant>.internal``."""
    mode: NotRequired[str]
    """``instances`` or ``serverless``. Default: ``instances``."""
    vcpu: NotRequired[int]
    """Virtual CPUs of each machine. Default: 2."""
    memory_gib: NotRequired[int]
    """Least memory of each machine. Default: 4."""
    int8: NotRequired[str]
    """``amx``, ``vnni``, ``i8mm`` or ``any``. Default: ``vnni``. Instances only."""
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    machine_image: NotRequired[str]
    """Machine image: AMI id or SSM parameter; Azure image id. Default: the newest of the cloud's
    own Linux for the machine's architecture. Name one to pin it."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone that sells the machine and is not reported as impaired."""
    min_instances: NotRequired[int]
    """Floor. Default: 1."""
    max_instances: NotRequired[int]
    """Ceiling. Default: 3."""
    cpu_target_percent: NotRequired[int]
    """Use of CPUs at which another is added. Default: 60."""
    port: NotRequired[int]
    """Port of the listener. Default: 443; 8443 for ``serverless`` on Azure, which keeps 80 and 443
    to itself."""
    allowed_cidrs: NotRequired[list[str]]
    """Private ranges that may call. Default: the network's own."""
    log_days: NotRequired[int]
    """Days that the server's log is kept. Default: 365. AWS only: on Azure it is in the workspace,
    see ``AuditTrail.retention_days``."""
    boundary_id: NotRequired[pulumi.Input[str]]
    """``Identity.boundary_id``. Default: none. AWS only."""


MODES = ("instances", "serverless")
INSTANCES = Between(1, 100)
CPU_TARGET_PERCENT = Between(10, 90)
PORT = Between(1, 65_535)
PACKAGE = TextRule(
    r"^(?:[A-Za-z0-9._-]+/)*[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[1-9][0-9]{0,8}$",
    "…/MODEL/VERSION with a number as the version",
    "packages/churn/3",
)
HOST = TextRule(
    r"^(?=.{3,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$",
    "a full name in lower case",
    "inference.noor.internal",
)
_DIGEST = re.compile(r"^[^@\s]+/[^@\s]+@sha256:[0-9a-f]{64}$")
#: What Container Apps keep for HTTP: learn.microsoft.com/azure/container-apps/ingress-how-to
_TAKEN_PORTS = (80, 443)


@dataclass(frozen=True)
class CpuInferenceTierSpec:
    """The plain arguments of `CpuInferenceTier`, checked."""

    placed: Placed
    name: str
    mode: str
    machine: catalogue.MachineType | None
    """None for ``serverless``."""
    machine_image: str | None
    vcpu: int
    memory_gib: int
    """Asked for; of a serverless container, what it gets."""
    zones: tuple[str, ...]
    zones_named: bool
    """Whether the user named the zones; else those that the network covers are used."""
    model_package: str
    model: str
    version: int
    host_name: str
    min_instances: int
    max_instances: int
    cpu_target_percent: int
    port: int
    allowed_cidrs: tuple[str, ...]
    """Empty: the network's own range."""
    log_days: int
    notes: tuple[str, ...]
    """What to know before it is made; the component logs them as warnings."""

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
    refusals = Refusals(f"CpuInferenceTier {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, CpuInferenceTierArgs)
    checked_name(name, refusals)
    placed = check_placed(cloud, given, refusals)
    mode: object = given.get("mode", "instances")
    refusals.choice("mode", mode, MODES)
    check_needs(cloud, mode, given, refusals)
    image: object = given.get("image")
    if isinstance(image, str) and not is_by_digest(image):
        refusals.add(
            "image", image, "an image of the registry by digest: host/name@sha256:…",
            "a tag can be moved to another image",
        )  # fmt: skip
    package = refusals.text(given, "model_package")
    if package:
        refusals.form("model_package", package, PACKAGE)
    tenant = placed.tenant if placed else "tenant"
    host: object = given.get("host_name", f"inference.{tenant}.internal")
    refusals.form("host_name", host, HOST)
    low = refusals.within("min_instances", given.get("min_instances", 1), INSTANCES)
    high = refusals.within("max_instances", given.get("max_instances", max(3, low)), INSTANCES)
    if low > high:
        rule = Between(INSTANCES.low, high)
        refusals.add("min_instances", low, f"at most max_instances, which is {high}", limit=rule)
    target = refusals.within(
        "cpu_target_percent", given.get("cpu_target_percent", 60), CPU_TARGET_PERCENT
    )
    taken = _TAKEN_PORTS if cloud == "azure" and mode == "serverless" else ()
    port = refusals.within("port", given.get("port", 8443 if taken else 443), PORT)
    if port in taken:
        refusals.add(
            "port", port, "any port but 80 and 443, for 'serverless' on Azure", "use 8443",
            limit=OneOf((8443,)),
        )  # fmt: skip
    if port in (22, 3389):
        refusals.add("port", port, "any port but those of remote shells", "443 is usual")
    cidrs = private_ranges(given, "allowed_cidrs", refusals)
    days = log_days(cloud, "log_days", given.get("log_days", 365), refusals)
    machine, zones, size = None, (), (2, 4)
    if placed and mode == "instances":
        machine, zones, size = _instances(placed, given, refusals)
    elif placed and mode == "serverless":
        zones = chosen_zones(placed, given, refusals)
        size = serverless_size(cloud, given, refusals)
    checked_subnets(given, "serving_subnet_ids", zones, refusals)
    refusals.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    notes = machine_notes(machine, placed, zones) if machine else []
    return CpuInferenceTierSpec(
        placed,
        name,
        str(mode),
        machine,
        given.get("machine_image"),
        *size,
        zones,
        given.get("zones") is not None,
        package,
        *model_and_version(package),
        str(host),
        low,
        high,
        target,
        port,
        cidrs,
        days,
        tuple(notes),
    )


def model_and_version(package: str) -> tuple[str, int]:
    """The last two parts of a package's key, which is of the form `PACKAGE`."""
    model, version = package.split("/")[-2:]
    return model, int(version)


def is_by_digest(image: str) -> bool:
    """Whether an image is named by the digest of its content, and not by a tag."""
    return _DIGEST.match(image) is not None


def _instances(
    placed: Placed, args: Mapping[str, Any], refusals: Refusals
) -> tuple[catalogue.MachineType | None, tuple[str, ...], tuple[int, int]]:
    image: object = args.get("machine_image")
    if image is not None and (not isinstance(image, str) or not image.strip()):
        refusals.add("machine_image", image, "the id of an image, or no such argument")
    demand = cpu_demand(args, refusals, vcpu=2, int8="vnni", arch=None, memory_gib=4)
    if demand is None:
        return None, (), (2, 4)
    machine = chosen_machine(placed, args, refusals, blame="vcpu", **demand)
    if machine is None:
        return None, (), (2, 4)
    zones = machine_zones(placed, args, machine, refusals)
    size = int(demand.get("vcpu") or 2), int(demand.get("memory_gib") or 4)
    return machine, zones, size
