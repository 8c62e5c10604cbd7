"""Load balancers, target groups, listeners; and scaling of services by demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import arn_of, region_of
from falaj.sandbox.clouds.aws.hashes import hexdigits, letters
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.regions import dns_suffix
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import at_most, between, forbids, matches, sized

_SHORT: Final = {"application": "app", "network": "net", "gateway": "gwy"}
_APPLICATION: Final = ("HTTP", "HTTPS")
_NETWORK: Final = ("TCP", "TLS", "UDP", "TCP_UDP", "QUIC", "TCP_QUIC")


def _short(inputs: Inputs) -> str:
    return _SHORT.get(inputs.string("loadBalancerType"), "app")


def _balancer(resource: Resource) -> Mapping[str, Any]:
    name = resource.string("name")
    scheme = "internal-" if resource.get("internal") is True else ""
    subnet_id = resource.string("subnets[]") or resource.string("subnetMappings[].subnetId")
    subnet = resource.world.by_id(t.SUBNET, subnet_id)
    region = region_of(resource)
    number = int(hexdigits(8, resource.id), 16)
    host = f"{scheme}{name}-{number}.{region}.elb.{dns_suffix(region)}"
    return {
        "arnSuffix": resource.id.split(":loadbalancer/", 1)[-1],
        "dnsName": host,
        "vpcId": subnet.outputs.get("vpcId", "") if subnet is not None else "",
        "zoneId": "Z" + letters(13, "elb", region_of(resource), _short(resource)),
        "ipAddressType": resource.get("ipAddressType") or "ipv4",
    }


def _zones(resource: Resource) -> Iterator[Problem]:
    """Subnets of one VPC, one a zone; an application balancer needs two zones."""
    ids = [*resource.each("subnets[]"), *resource.each("subnetMappings[].subnetId")]
    subnets = [(path, resource.world.by_id(t.SUBNET, str(subnet_id))) for path, subnet_id in ids]
    seen: dict[str, str] = {}
    for path, subnet in subnets:
        if subnet is None:
            return
        zone = str(subnet.outputs.get("availabilityZoneId"))
        if zone in seen:
            yield Problem(path, f"{subnet.id} lies in {zone} as does {seen[zone]}; one a zone")
        seen[zone] = subnet.id
    if len(seen) == 1 and resource.get("loadBalancerType") in (None, "application"):
        yield Problem(
            "subnets", f"lie in {next(iter(seen))} only; an application load balancer needs two "
            "zones at least",
        )  # fmt: skip
    vpcs = {str(subnet.outputs.get("vpcId")) for _, subnet in subnets if subnet is not None}
    if len(vpcs) > 1:
        yield Problem("subnets", f"are of several VPCs: {', '.join(sorted(vpcs))}")


def _needs_subnets(inputs: Inputs) -> Iterator[Problem]:
    if not inputs.is_given("subnets") and not inputs.is_given("subnetMappings"):
        yield Problem("subnets", "is missing; give subnets or subnetMappings")
    if inputs.get("loadBalancerType") == "gateway" and inputs.is_given("securityGroups"):
        yield Problem("securityGroups", "don't apply to a gateway load balancer; remove them")


def _target_group(inputs: Inputs) -> Iterator[Problem]:
    """Everything but a function needs a port, a protocol and a VPC."""
    kind = inputs.get("targetType") if inputs.is_given("targetType") else "instance"
    if kind in ("instance", "ip", "alb"):
        for path in ("port", "protocol", "vpcId"):
            if not inputs.is_given(path):
                yield Problem(path, f"is missing; targets of type {kind!r} need it")
    elif kind == "lambda":
        for path in ("port", "protocol", "vpcId"):
            if inputs.is_given(path):
                yield Problem(path, "doesn't apply to targets of type 'lambda'; remove it")
    if (
        kind == "alb"
        and inputs.is_given("protocol")
        and inputs.get("protocol") not in (None, "TCP")
    ):
        yield Problem("protocol", f"{inputs.get('protocol')!r} isn't allowed for 'alb'; use TCP")
    timeout, interval = inputs.get("healthCheck.timeout"), inputs.get("healthCheck.interval")
    known = isinstance(timeout, int | float) and isinstance(interval, int | float)
    if known and timeout >= interval and inputs.get("protocol") in _APPLICATION:
        yield Problem(
            "healthCheck.timeout",
            f"{timeout:g} s has to be less than the interval, {interval:g} s",
        )


def _listener(inputs: Inputs) -> Iterator[Problem]:
    """Encrypted listeners have a certificate; others have neither that nor a policy."""
    protocol = inputs.get("protocol")
    if protocol in ("HTTPS", "TLS") and not inputs.is_given("certificateArn"):
        yield Problem("certificateArn", f"is missing; a listener for {protocol} needs it")
    if protocol in ("HTTP", "TCP", "UDP", "TCP_UDP"):
        for path in ("certificateArn", "sslPolicy"):
            if inputs.is_given(path):
                yield Problem(path, f"doesn't apply to {protocol}; remove it, or use HTTPS or TLS")
    for path, action in inputs.each("defaultActions[]"):
        yield from _action(path, action)


def _action(path: str, action: object) -> Iterator[Problem]:
    if not isinstance(action, Mapping):
        return
    needed = {"redirect": ("redirect",), "fixed-response": ("fixedResponse",),
              "forward": ("targetGroupArn", "forward")}  # fmt: skip
    blocks = needed.get(str(action.get("type")), ())
    if blocks and not any(block in action for block in blocks):
        yield Problem(
            f"{path}.{blocks[0]}", f"is missing; an action {action.get('type')!r} needs it"
        )


def _protocol_fits(resource: Resource) -> Iterator[Problem]:
    """Application balancers speak HTTP, network balancers TCP, UDP and TLS."""
    for made in resource.world.find(t.LOAD_BALANCER, arn=resource.get("loadBalancerArn")):
        kind, protocol = (
            made.outputs.get("loadBalancerType") or "application",
            resource.get("protocol"),
        )
        allowed = {"application": _APPLICATION, "network": _NETWORK}.get(str(kind))
        if allowed and isinstance(protocol, str) and protocol not in allowed:
            yield Problem(
                "protocol", f"{protocol!r} isn't allowed on a load balancer of type {kind!r}; "
                f"allowed: {', '.join(allowed)}",
            )  # fmt: skip


def _target_in_use(resource: Resource) -> Iterator[Problem]:
    """A listener's targets are in the balancer's VPC."""
    for balancer in resource.world.find(t.LOAD_BALANCER, arn=resource.get("loadBalancerArn")):
        for path, arn in resource.each("defaultActions[].targetGroupArn"):
            for group in resource.world.find(t.TARGET_GROUP, arn=arn):
                mine, theirs = balancer.outputs.get("vpcId"), group.outputs.get("vpcId")
                if mine and theirs and mine != theirs:
                    yield Problem(
                        path, f"the target group is in {theirs}, the load balancer in {mine}"
                    )


def _balancer_name(path: str) -> tuple[Any, ...]:
    # "CreateLoadBalancer", Elastic Load Balancing API reference.
    return (
        matches(path, r"[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?",
                "up to 32 letters, digits and '-', not beginning or ending with '-'"),
        forbids(path, r"^internal-", "names may not begin with 'internal-'"),
    )  # fmt: skip


_GROUP: Final = (t.TARGET_GROUP,)

KINDS: Final[AwsKinds] = {
    t.LOAD_BALANCER: AwsKind(
        id=lambda inputs: arn_of(inputs, "elasticloadbalancing",
            f"loadbalancer/{_short(inputs)}/{inputs.string('name')}/"
            f"{hexdigits(16, 'lb', region_of(inputs), inputs.string('name'))}",
        ),
        arn="*",
        name=AutoName(longest=32),
        replaces=("customerOwnedIpv4Pool", "internal", "loadBalancerType", "name", "namePrefix"),
        rules=(
            *_balancer_name("name"),
            sized("namePrefix", 1, 6, "characters"),
            between("idleTimeout", 1, 4000, "seconds"),
            between("clientKeepAlive", 60, 604800, "seconds"),
            _needs_subnets,
        ),
        references=(
            links.subnet("subnets[]"),
            links.subnet("subnetMappings[].subnetId"),
            links.security_group("securityGroups[]"),
            links.bucket("accessLogs.bucket"),
        ),
        crosschecks=(_zones,),
        unique=("name",),
        computed=_balancer,
        defaults={"loadBalancerType": "application", "internal": False, "idleTimeout": 60,
                  "enableDeletionProtection": False, "enableHttp2": True},
    ),
    t.TARGET_GROUP: AwsKind(
        id=lambda inputs: arn_of(inputs, "elasticloadbalancing",
            f"targetgroup/{inputs.string('name')}/"
            f"{hexdigits(16, 'tg', region_of(inputs), inputs.string('name'))}",
        ),
        arn="*",
        name=AutoName(longest=32),
        replaces=("ipAddressType", "name", "namePrefix", "port", "protocol", "protocolVersion",
                  "targetType", "vpcId"),
        rules=(
            *_balancer_name("name"),
            sized("namePrefix", 1, 6, "characters"),
            between("port", 1, 65535),
            between("deregistrationDelay", 0, 3600, "seconds"),
            between("healthCheck.interval", 5, 300, "seconds"),
            between("healthCheck.timeout", 2, 120, "seconds"),
            between("healthCheck.healthyThreshold", 2, 10),
            between("healthCheck.unhealthyThreshold", 2, 10),
            _target_group,
        ),
        references=(links.vpc(),),
        unique=("name",),
        computed=lambda resource: {
            "arnSuffix": "targetgroup/" + resource.id.split("targetgroup/")[-1]
        },
        defaults={"targetType": "instance", "slowStart": 0, "loadBalancerArns": []},
    ),
    t.LISTENER: AwsKind(
        id=lambda inputs: _listener_arn(inputs, "listener"),
        arn="*",
        replaces=("loadBalancerArn",),
        rules=(
            between("port", 1, 65535),
            # Names end with the month or the day they came out, and perhaps a mark behind it.
            matches("sslPolicy", r"ELBSecurityPolicy-(\w+-)*20\d\d-\d\d(-\w+)*",
                    "a predefined policy such as ELBSecurityPolicy-TLS13-1-3-2021-06"),
            _listener,
        ),
        references=(
            Reference("loadBalancerArn", (t.LOAD_BALANCER,), by=("arn",), holds=False),
            Reference("certificateArn", (t.CERTIFICATE,), by=("arn",)),
            Reference("defaultActions[].targetGroupArn", _GROUP, by=("arn",)),
            Reference("defaultActions[].forward.targetGroups[].arn", _GROUP, by=("arn",)),
        ),
        crosschecks=(_protocol_fits, _target_in_use),
        unique=("loadBalancerArn", "port"),
    ),
    "aws:lb/listenerRule:ListenerRule": AwsKind(
        id=lambda inputs: (
            inputs.string("listenerArn").replace(":listener/", ":listener-rule/")
            + "/"
            + hexdigits(16, "rule", inputs.string("listenerArn"), str(inputs.get("priority")))
        ),
        arn="*",
        replaces=("listenerArn",),
        rules=(between("priority", 1, 50000), sized("conditions", 1, 5)),
        references=(
            Reference("listenerArn", (t.LISTENER,), by=("arn",), holds=False),
            Reference("actions[].targetGroupArn", _GROUP, by=("arn",)),
        ),
        unique=("listenerArn", "priority"),
    ),
    "aws:lb/targetGroupAttachment:TargetGroupAttachment": AwsKind(
        id="{targetGroupArn}-{digits26}",
        replaces=("availabilityZone", "port", "targetGroupArn", "targetId"),
        rules=(between("port", 1, 65535),),
        references=(Reference("targetGroupArn", _GROUP, by=("arn",), holds=False),),
    ),
    "aws:lb/listenerCertificate:ListenerCertificate": AwsKind(
        id="{listenerArn}_{certificateArn}",
        replaces=("certificateArn", "listenerArn"),
        references=(
            Reference("listenerArn", (t.LISTENER,), by=("arn",), holds=False),
            Reference("certificateArn", (t.CERTIFICATE,), by=("arn",)),
        ),
    ),
    "aws:appautoscaling/target:Target": AwsKind(
        id="{resourceId}",
        replaces=("resourceId", "scalableDimension", "serviceNamespace"),
        rules=(
            between("minCapacity", 0, 1000000), between("maxCapacity", 0, 1000000),
            at_most("minCapacity", "maxCapacity"),
        ),
        references=(links.role("roleArn"),),
        unique=("resourceId", "scalableDimension"),
        computed=lambda resource: {
            "arn": arn_of(
                resource, "application-autoscaling",
                f"scalable-target/{hexdigits(32, resource.id)}",
            )
        },
    ),
    "aws:appautoscaling/policy:Policy": AwsKind(
        id="{name}",
        name=AutoName(longest=255),
        replaces=("name", "resourceId", "scalableDimension", "serviceNamespace"),
        unique=("name", "resourceId"),
    ),
}  # fmt: skip


def _listener_arn(inputs: Inputs, kind: str) -> str:
    balancer = inputs.string("loadBalancerArn")
    own = hexdigits(16, kind, balancer, str(inputs.get("port")))
    return balancer.replace(":loadbalancer/", f":{kind}/") + f"/{own}" if balancer else ""
