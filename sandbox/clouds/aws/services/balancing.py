"""Load balancers and targets, scaling of services by demand, certificates, and DNS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, arn_of, digits, hexdigits, letters
from falaj.sandbox.clouds.aws.regions import dns_suffix, region_of
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    Reference,
    at_most,
    between,
    forbids,
    matches,
    not_together,
    sized,
)
from falaj.sandbox.clouds.model import Problem
from falaj.wire.documents import is_mapping

_SHORT: Final = {"application": "app", "network": "net", "gateway": "gwy"}
_APPLICATION: Final = ("HTTP", "HTTPS")
_NETWORK: Final = ("TCP", "TLS", "UDP", "TCP_UDP", "QUIC", "TCP_QUIC")


def _short(inputs: Inputs) -> str:
    return _SHORT.get(inputs.string("loadBalancerType"), "app")


def _host(balancer: Resource) -> str:
    """Its name: only application balancers say in it that they are internal.

    Sources: docs.aws.amazon.com/elasticloadbalancing/latest/network/network-load-balancers.html,
    "DNS name" (the ARN's last part, then elb and the region), and …/application/
    application-load-balancers.html.
    """
    name, region = balancer.string("name"), region_of(balancer)
    if _short(balancer) == "net":
        return f"{name}-{balancer.id.rpartition('/')[2]}.elb.{region}.{dns_suffix(region)}"
    scheme = "internal-" if balancer.get("internal") is True else ""
    number = int(hexdigits(8, balancer.id), 16)
    return f"{scheme}{name}-{number}.{region}.elb.{dns_suffix(region)}"


def _balancer(resource: Resource) -> Mapping[str, Any]:
    subnet_id = resource.string("subnets[]") or resource.string("subnetMappings[].subnetId")
    subnet = resource.world.by_id(t.SUBNET, subnet_id)
    return {
        "arnSuffix": resource.id.split(":loadbalancer/", 1)[-1],
        "dnsName": _host(resource),
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
    if not is_mapping(action):
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


def _targets_fit(resource: Resource) -> Iterator[Problem]:
    """Targets speak what the balancer does ("CreateListener", UnsupportedProtocol)."""
    own = resource.get("protocol")
    wanted = _APPLICATION if own in _APPLICATION else _NETWORK
    if not isinstance(own, str) or own not in (*_APPLICATION, *_NETWORK):
        return
    for path, arn in resource.each("defaultActions[].targetGroupArn"):
        for group in resource.world.find(t.TARGET_GROUP, arn=arn):
            theirs = group.outputs.get("protocol")
            if isinstance(theirs, str) and theirs not in wanted:
                yield Problem(
                    path,
                    f"the target group speaks {theirs}, and a listener for {own} forwards to "
                    f"{', '.join(wanted)} only; choose another group, or another protocol",
                )


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


def _listener_arn(inputs: Inputs, kind: str) -> str:
    balancer = inputs.string("loadBalancerArn")
    own = hexdigits(16, kind, balancer, str(inputs.get("port")))
    return balancer.replace(":loadbalancer/", f":{kind}/") + f"/{own}" if balancer else ""


_DOMAIN: Final = (
    r"(\*\.)?(((?!-)[A-Za-z0-9-]{0,62}[A-Za-z0-9])\.)+((?!-)[A-Za-z0-9-]{1,62}[A-Za-z0-9])"
)
_PEM: Final = (
    "-----BEGIN CERTIFICATE-----\n"
    "U0FOREJPWDogbm8gY2VydGlmaWNhdGUsIG5vdGhpbmcgcmVhbCBpcyBiZWhpbmQgdGhpcw==\n"
    "-----END CERTIFICATE-----\n"
)
"""In the form of a certificate, with a text in it that says that it is none."""


def _source(inputs: Inputs) -> Iterator[Problem]:
    """A certificate is imported, validated by DNS or e-mail, or of a private authority."""
    imported = inputs.is_given("privateKey") or inputs.is_given("certificateBody")
    if imported:
        for path in ("privateKey", "certificateBody"):
            if not inputs.is_given(path):
                yield Problem(path, "is missing; an imported certificate needs both parts")
        return
    if not inputs.is_given("domainName"):
        yield Problem("domainName", "is missing; give it, or import a certificate")
    if not inputs.is_given("certificateAuthorityArn") and not inputs.is_given("validationMethod"):
        yield Problem(
            "validationMethod", "is missing; give DNS or EMAIL, or a certificateAuthorityArn"
        )


#: From when until when what was issued holds.
_ISSUED: Final = {"notBefore": "2026-01-01T00:00:00Z", "notAfter": "2036-01-01T00:00:00Z"}


def _issued(certificate: Resource) -> Mapping[str, Any]:
    """A root's own certificate is signed by nobody else, and has no chain (GetCertificate)."""
    is_root = "/RootCACertificate/" in certificate.string("templateArn")
    return {"certificate": _PEM, "certificateChain": "" if is_root else _PEM}


def _certificate(resource: Resource) -> Mapping[str, Any]:
    private = bool(resource.string("certificateAuthorityArn"))
    domain = resource.string("domainName")
    host = domain.removeprefix("*.")
    options: list[dict[str, str]] = []
    if resource.get("validationMethod") == "DNS":
        options = [{
            "domainName": domain,
            "resourceRecordName": f"_sandbox.{host}.",
            "resourceRecordType": "CNAME",
            "resourceRecordValue": "_sandbox.acm-validations.aws.",
        }]  # fmt: skip
    return {
        "domainValidationOptions": options,
        "status": "ISSUED" if private or not options else "PENDING_VALIDATION",
        "type": "PRIVATE" if private else "AMAZON_ISSUED",
        "keyAlgorithm": resource.get("keyAlgorithm") or "RSA_2048",
        "renewalEligibility": "INELIGIBLE",
        "validationEmails": [],
        **_ISSUED,
    }


_AUTHORITY: Final = Reference("certificateAuthorityArn", (t.AUTHORITY,), by=("arn",), holds=False)


_QUERY_LOG: Final = "aws:route53/resolverQueryLogConfig:ResolverQueryLogConfig"


def _zone(resource: Resource) -> Mapping[str, Any]:
    ends = ("com", "net", "org", "co.uk")
    # Private zones have the same four, which nobody can ask:
    # docs.aws.amazon.com/Route53/latest/DeveloperGuide/hosted-zone-private-considerations.html
    servers = (
        [f"ns-{512 * n}.awsdns-00.{end}" for n, end in enumerate(ends)]
        if resource.is_given("vpcs")
        else [f"ns-{digits(3, resource.id, str(n))}.awsdns-{n:02d}.{end}"
              for n, end in enumerate(ends)]
    )  # fmt: skip
    return {"zoneId": resource.id, "nameServers": servers, "primaryNameServer": servers[0]}


def _record(resource: Resource) -> Mapping[str, Any]:
    zone = resource.world.by_id(t.ZONE, resource.string("zoneId"))
    domain = str(zone.outputs.get("name", "")).rstrip(".") if zone is not None else ""
    name = resource.string("name").rstrip(".")
    full = name if not domain or name == domain or name.endswith(f".{domain}") else (
        f"{name}.{domain}" if name else domain
    )  # fmt: skip
    return {"fqdn": full}


def _apex(resource: Resource) -> Iterator[Problem]:
    """The name of a zone itself has no CNAME (RFC 1034, 3.6.2)."""
    zone = resource.world.by_id(t.ZONE, resource.string("zoneId"))
    if zone is None or resource.get("type") != "CNAME":
        return
    if _record(resource)["fqdn"] == str(zone.outputs.get("name", "")).rstrip("."):
        yield Problem("type", "CNAME isn't allowed at the apex of a zone; use A with aliases")


def _names_in_vpc(resource: Resource) -> Iterator[Problem]:
    """A private zone needs both of the VPC's DNS settings (Route 53 developer guide)."""
    for path, vpc_id in resource.each("vpcs[].vpcId"):
        yield from relations.resolves(path, str(vpc_id), resource.world)


def _scaled(resource: Resource) -> Iterator[Problem]:
    """What is scaled exists ("RegisterScalableTarget", ObjectNotFound)."""
    found = re.fullmatch(r"service/([^/]+)/([^/]+)", resource.string("resourceId"))
    if resource.get("serviceNamespace") != "ecs" or found is None:
        return
    for made in resource.world.find(t.ECS_SERVICE, name=found[2]):
        if str(made.outputs.get("cluster", "")).rpartition("/")[2] == found[1]:
            return
    yield Problem(
        "resourceId",
        f"{found[0]!r} does not exist: there is no Service {found[2]!r} in a cluster {found[1]!r};"
        " create it first, in this stack or another",
    )


def _content(inputs: Inputs) -> Iterator[Problem]:
    """A record has values with a lifetime, or is an alias."""
    alias = inputs.is_given("aliases")
    if alias:
        for path in ("records", "ttl"):
            if inputs.is_given(path):
                yield Problem(path, "can't go with aliases; remove it")
    elif not inputs.is_given("records"):
        yield Problem("records", "is missing; give records and ttl, or aliases")
    elif not inputs.is_given("ttl"):
        yield Problem("ttl", "is missing; records need it")


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
            relations.subnet("subnets[]"),
            relations.subnet("subnetMappings[].subnetId"),
            relations.security_group("securityGroups[]"),
            relations.bucket("accessLogs.bucket"),
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
        references=(relations.vpc(),),
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
            forbids("sslPolicy", r"TLS13-1-[^0-3]",
                    "TLS ends at 1.3; the strictest is ELBSecurityPolicy-TLS13-1-3-2021-06"),
            _listener,
        ),
        references=(
            Reference("loadBalancerArn", (t.LOAD_BALANCER,), by=("arn",), holds=False),
            Reference("certificateArn", (t.CERTIFICATE,), by=("arn",)),
            Reference("defaultActions[].targetGroupArn", _GROUP, by=("arn",)),
            Reference("defaultActions[].forward.targetGroups[].arn", _GROUP, by=("arn",)),
        ),
        crosschecks=(_protocol_fits, _targets_fit, _target_in_use),
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
        references=(relations.role("roleArn"),),
        crosschecks=(_scaled,),
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
    t.CERTIFICATE: AwsKind(
        id="arn:{partition}:acm:{region}:{account}:certificate/{uuid}",
        arn="*",
        replaces=("certificateAuthorityArn", "domainName", "keyAlgorithm", "options.export",
                  "subjectAlternativeNames", "validationMethod"),
        rules=(
            _source,
            matches("domainName", _DOMAIN, "a domain name such as models.example.ae"),
            sized("domainName", 1, 253, "characters"),
            sized("subjectAlternativeNames", 0, 100),
            not_together("certificateAuthorityArn", "validationMethod"),
        ),
        references=(_AUTHORITY,),
        computed=_certificate,
    ),
    "aws:acm/certificateValidation:CertificateValidation": AwsKind(
        id="{certificateArn}",
        replaces=("certificateArn", "validationRecordFqdns"),
        references=(Reference("certificateArn", (t.CERTIFICATE,), by=("arn",), holds=False),),
    ),
    t.AUTHORITY: AwsKind(
        id="arn:{partition}:acm-pca:{region}:{account}:certificate-authority/{uuid}",
        arn="*",
        replaces=("certificateAuthorityConfiguration", "keyStorageSecurityStandard", "type",
                  "usageMode"),
        rules=(
            between("permanentDeletionTimeInDays", 7, 30, "days"),
            between("revocationConfiguration.crlConfiguration.expirationInDays", 1, 5000, "days"),
        ),
        references=(relations.bucket("revocationConfiguration.crlConfiguration.s3BucketName"),),
        computed=lambda _: {
            "certificate": "", "certificateChain": "",
            "certificateSigningRequest": _PEM.replace("CERTIFICATE", "CERTIFICATE REQUEST"),
            "serial": "1", **_ISSUED,
        },
        defaults={"type": "SUBORDINATE", "enabled": True, "usageMode": "GENERAL_PURPOSE"},
    ),
    t.AUTHORITY_ISSUED: AwsKind(
        id="{certificateAuthorityArn}/certificate/{hex32}",
        arn="*",
        replaces=("apiPassthrough", "certificateAuthorityArn", "certificateSigningRequest",
                  "signingAlgorithm", "templateArn", "validity"),
        rules=(
            matches("templateArn", r"arn:aws[a-z-]*:acm-pca:::template/[\w+-]+/V\d",
                    "a template's ARN"),
        ),
        references=(_AUTHORITY,),
        computed=_issued,
    ),
    "aws:acmpca/certificateAuthorityCertificate:CertificateAuthorityCertificate": AwsKind(
        id="{certificateAuthorityArn}",
        replaces=("certificate", "certificateAuthorityArn", "certificateChain"),
        references=(_AUTHORITY,),
    ),
    t.ZONE: AwsKind(
        id="Z{letters20}",
        arn="route53:::hostedzone/{id}",
        replaces=("delegationSetId", "name"),
        rules=(
            matches("name", r"([A-Za-z0-9_*-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?", "a domain name"),
            sized("name", 1, 1024, "characters"),
            not_together("delegationSetId", "vpcs"),
        ),
        references=(relations.vpc("vpcs[].vpcId"),),
        crosschecks=(_names_in_vpc,),
        computed=_zone,
        defaults={"comment": "Managed by Pulumi", "forceDestroy": False},
    ),
    "aws:route53/zoneAssociation:ZoneAssociation": AwsKind(
        id="{zoneId}:{vpcId}",
        replaces=("vpcId", "vpcRegion", "zoneId"),
        references=(relations.vpc(), Reference("zoneId", (t.ZONE,), holds=False, regional=False)),
        computed=lambda _: {"owningAccount": ACCOUNT},
    ),
    "aws:route53/record:Record": AwsKind(
        id="{zoneId}_{name}_{type}",
        replaces=("name", "setIdentifier", "zoneId"),
        rules=(_content, between("ttl", 0, 2147483647, "seconds")),
        references=(Reference("zoneId", (t.ZONE,), by=("zoneId",), regional=False),),
        crosschecks=(_apex,),
        computed=_record,
    ),
    _QUERY_LOG: AwsKind(
        id="rqlc-{hex17}",
        arn="route53resolver:{region}:{account}:resolver-query-log-config/{id}",
        replaces=("destinationArn", "name"),
        rules=(
            matches("name", r"(?!^[0-9]+$)[a-zA-Z0-9\-_' ]{1,64}",
                    "up to 64 letters, digits, spaces and -_'"),
            matches("destinationArn", r"arn:.+", "the ARN of a log group, bucket or stream"),
        ),
        references=(
            Reference("destinationArn", (t.LOG_GROUP, t.BUCKET), by=("arn",), holds=False),
        ),
        computed=lambda _: {"ownerId": ACCOUNT, "shareStatus": "NOT_SHARED"},
    ),
    "aws:route53/resolverQueryLogConfigAssociation:ResolverQueryLogConfigAssociation": AwsKind(
        id="rqlca-{hex17}",
        replaces=("resolverQueryLogConfigId", "resourceId"),
        references=(
            Reference("resolverQueryLogConfigId", (_QUERY_LOG,)),
            relations.vpc("resourceId"),
        ),
        unique=("resolverQueryLogConfigId", "resourceId"),
    ),
    "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList": AwsKind(
        id="rslvr-fdl-{hex15}",
        arn="route53resolver:{region}:{account}:firewall-domain-list/{id}",
        replaces=("name",),
    ),
    "aws:route53/resolverFirewallRuleGroup:ResolverFirewallRuleGroup": AwsKind(
        id="rslvr-frg-{hex15}",
        arn="route53resolver:{region}:{account}:firewall-rule-group/{id}",
        replaces=("name",),
        computed=lambda _: {"ownerId": ACCOUNT, "shareStatus": "NOT_SHARED"},
    ),
    ("aws:route53/resolverFirewallRuleGroupAssociation:"
     "ResolverFirewallRuleGroupAssociation"): AwsKind(
        id="rslvr-frgassoc-{hex15}",
        arn="route53resolver:{region}:{account}:firewall-rule-group-association/{id}",
        replaces=("firewallRuleGroupId", "vpcId"),
        references=(relations.vpc(),),
    ),
    "aws:route53/resolverEndpoint:ResolverEndpoint": AwsKind(
        id="rslvr-in-{hex17}",
        arn="route53resolver:{region}:{account}:resolver-endpoint/{id}",
        replaces=("direction", "resolverEndpointType", "securityGroupIds"),
        rules=(sized("ipAddresses", 2, 10),),
        references=(relations.security_group(), relations.subnet("ipAddresses[].subnetId")),
    ),
}  # fmt: skip
