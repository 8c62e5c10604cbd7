"""How resources depend on each other: references, roles, names, quotas, blocked deletions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws.documents import statements
from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, MARK
from falaj.sandbox.clouds.aws.regions import region_of
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_map, as_texts
from falaj.sandbox.clouds.kinds import Crosscheck, Reference
from falaj.sandbox.clouds.model import Made, Problem, World

_OWN_ID: Final = re.compile(rf"(?:[a-z]+-)?{MARK}[0-9a-f]{{4,13}}(?:-[0-9a-f-]+)?")

_DIGITS: Final = re.compile(r"[0-9a-f]{8,40}")
"""What stands behind the dash of an id: 8 digits in old ones, 17 in others, more in some."""

_IMPLIED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    t.SECURITY_GROUP: (
        (t.VPC, "defaultSecurityGroupId"),
        (t.CLUSTER, "vpcConfig.clusterSecurityGroupId"),
    ),
    t.ROUTE_TABLE: ((t.VPC, "mainRouteTableId"), (t.VPC, "defaultRouteTableId")),
    t.NETWORK_ACL: ((t.VPC, "defaultNetworkAclId"),),
    t.DHCP_OPTIONS: ((t.VPC, "dhcpOptionsId"),),
    t.SUBNET: (),
}
"""What comes into being together with another resource, and where its id stands."""


def broken_references(kind: AwsKind, inputs: Inputs, world: World) -> Iterator[Problem]:
    """Inputs that name what doesn't exist, or exists in another region."""
    for reference in kind.references:
        for path, value in inputs.each(reference.path):
            if isinstance(value, str) and value and belongs_here(value, reference):
                yield from _broken(path, value, reference, inputs, world)


def ill_formed_references(kind: AwsKind, kinds: AwsKinds, inputs: Inputs) -> Iterator[Problem]:
    """Inputs that can't name what they are meant to: an ARN for an id, a subnet for a VPC."""
    for reference in kind.references:
        prefixes = _id_prefixes(reference, kinds)
        for path, value in inputs.each(reference.path):
            if not isinstance(value, str):
                continue
            if reference.by == ("arn",) and not value.startswith("arn:"):
                yield Problem(path, f"{value!r} is no ARN; give the 'arn' of {_names(reference)}")
            elif prefixes and not (
                value.startswith(prefixes) and _DIGITS.fullmatch(value.split("-", 1)[1])
            ):
                yield Problem(
                    path,
                    f"{value!r} is no id of {_names(reference)}; such ids begin with "
                    f"{' or '.join(prefixes)} and go on with hexadecimal digits",
                )


def taken(kind: AwsKind, inputs: Inputs, world: World, id: str | None) -> Iterator[Problem]:
    """Names that another resource of the type has already."""
    wanted = {path: inputs.get(path) for path in kind.unique}
    if all(value is None for value in wanted.values()):
        return
    for made in _all(inputs.token, world):
        if made.id == id or (not kind.everywhere and made.region != region_of(inputs)):
            continue
        if all(_value(made, path) == value for path, value in wanted.items()):
            values = ", ".join(f"{path} {value!r}" for path, value in wanted.items() if value)
            scope = "the account" if kind.everywhere else made.region or "the account"
            yield Problem(
                next(path for path, value in wanted.items() if value is not None),
                f"{values} is taken in {scope} by {made.urn}; choose another",
            )
            return


def standing_in_the_way(made: Made, kinds: AwsKinds, world: World) -> Iterator[Problem]:
    """The resources that refer to one that is to be deleted and keep it from going."""
    wanted = t.canonical(made.token)
    for token, kind in kinds.items():
        holding = [
            one
            for one in kind.references
            if one.holds and wanted in one.to and wanted not in one.lets_go
        ]
        for other in _all(token, world) if holding else ():
            if other.id == made.id and other.token == made.token:
                continue
            for reference in holding:
                yield from _held(made, other, reference)


def _held(made: Made, other: Made, reference: Reference) -> Iterator[Problem]:
    for path, value in Inputs(other.inputs).each(reference.path):
        if isinstance(value, str) and _is(made, value, reference):
            yield Problem(
                "",
                f"{made.id} is still used by {other.id} ({path} of {other.urn}); "
                "delete that first",
            )


def _all(token: str, world: World) -> Iterator[Made]:
    for spelling in t.spellings(token):
        yield from world.all(spelling)


def belongs_here(value: str, reference: Reference) -> bool:
    """Whether a reference's target would have to be in the sandbox, if it existed.

    Ids and ARNs of other accounts are none of the sandbox's; a bare name is looked up here, as
    there is no other account in which it could be meant.
    """
    if value.startswith("arn:"):
        return f":{ACCOUNT}:" in value or value.startswith("arn:aws:s3:::")
    if reference.by == ("id",) or _OWN_ID.fullmatch(value):
        return _OWN_ID.fullmatch(value) is not None
    if "keyId" in reference.by:
        return not value.startswith("alias/aws/") and value.startswith("alias/")
    return True


def _broken(
    path: str, value: str, reference: Reference, inputs: Inputs, world: World
) -> Iterator[Problem]:
    for token in reference.to:
        for made in _candidates(token, value, reference, world):
            if reference.regional and made.region and region_of(inputs) not in ("", made.region):
                yield Problem(
                    path,
                    f"{value!r} is in {made.region}, this resource in {region_of(inputs)}; "
                    "both have to be in one region",
                )
            return
        for other, place in _IMPLIED.get(token, ()):
            for made in world.all(other):
                if any(found == value for _, found in Inputs(made.outputs).each(place)):
                    return
    yield Problem(
        path,
        f"{value!r} does not exist: the sandbox has no {_names(reference)} of that "
        f"{' or '.join(reference.by)}; create it first, in this stack or another",
    )


def _candidates(token: str, value: str, reference: Reference, world: World) -> Iterator[Made]:
    direct = world.by_id(token, value) if "id" in reference.by else None
    if direct is not None:
        yield direct
        return
    for made in _all(token, world):
        if _is(made, value, reference):
            yield made
            return


def _is(made: Made, value: str, reference: Reference) -> bool:
    # CloudWatch's consumers write a log group's ARN with and without ':*' at the end.
    plain = value.removesuffix(":*")
    return any(
        plain == (made.id if attribute == "id" else _value(made, attribute))
        for attribute in reference.by
    )


def _id_prefixes(reference: Reference, kinds: AwsKinds) -> tuple[str, ...]:
    """How the ids of the types begin; nothing where that isn't the only way to refer to them."""
    if reference.by != ("id",):
        return ()
    found: list[str] = []
    for token in reference.to:
        template = kinds.get(token, AwsKind()).id
        if token == t.DEFAULT_SECURITY_GROUP:
            continue
        if not isinstance(template, str) or not re.match(r"[a-z]+-\{hex17\}$", template):
            if token in (t.DEFAULT_ROUTE_TABLE,):
                continue
            return ()
        found.append(template.split("{", 1)[0])
    return tuple(found)


def _names(reference: Reference) -> str:
    return " or ".join(dict.fromkeys(token.rsplit(":", 1)[-1] for token in reference.to))


def _value(made: Made, path: str) -> Any:
    return next((value for _, value in Inputs(made.outputs).each(path)), None)


# References that many types have in common.


def vpc(path: str = "vpcId") -> Reference:
    """A VPC by its id; it can't go before what is in it."""
    return Reference(path, (t.VPC,))


def subnet(path: str = "subnetIds[]") -> Reference:
    """A subnet by its id; it can't go before what has an address in it."""
    return Reference(path, (t.SUBNET,))


def security_group(path: str = "securityGroupIds[]") -> Reference:
    """A security group by its id; it can't go while it is in use."""
    return Reference(path, (t.SECURITY_GROUP, t.DEFAULT_SECURITY_GROUP))


def route_table(path: str = "routeTableId") -> Reference:
    """A route table by its id."""
    return Reference(path, (t.ROUTE_TABLE, t.DEFAULT_ROUTE_TABLE))


def key(path: str = "kmsKeyId") -> Reference:
    """A key by its ARN, its id or an alias; deletion of a key asks nobody."""
    return Reference(path, (t.KEY, t.KEY_ALIAS), by=("arn", "keyId", "name"), holds=False)


def role(path: str = "roleArn", *, by: str = "arn", holds: bool = False) -> Reference:
    """An IAM role; a role goes even while services use it, but not with policies attached."""
    return Reference(path, (t.ROLE,), by=(by,), holds=holds, regional=False)


def bucket(path: str = "bucket") -> Reference:
    """A bucket by its name."""
    return Reference(path, (t.BUCKET,), by=("bucket",), holds=False)


def topic(path: str) -> Reference:
    """An SNS topic by its ARN."""
    return Reference(path, (t.TOPIC,), by=("arn",), holds=False)


def log_group(path: str) -> Reference:
    """A log group by its ARN."""
    return Reference(path, (t.LOG_GROUP,), by=("arn",), holds=False)


def cluster(path: str = "clusterName", *, holds: bool = False) -> Reference:
    """An EKS cluster by its name."""
    return Reference(path, (t.CLUSTER,), by=("name",), holds=holds)


def trusts(
    path: str, service: str, what: str, actions: Sequence[str] = ("sts:AssumeRole",)
) -> Crosscheck:
    """The role's trust policy allows the service to assume it, and what else it has to do."""

    def check(resource: Resource) -> Iterator[Problem]:
        arn = resource.string(path)
        for made in resource.world.find(t.ROLE, arn=arn) if arn else ():
            allowed = _allowed(made.outputs.get("assumeRolePolicy"), service)
            lacking = [
                action
                for action in actions
                if not any(fnmatchcase(action.lower(), each) for each in allowed)
            ]
            if lacking:
                yield Problem(
                    path,
                    f"the role {made.id} can't be the {what}: its trust policy doesn't allow "
                    f"{service} {' and '.join(lacking)}; add a statement that does",
                )

    return check


def _allowed(document: object, service: str) -> set[str]:
    """The actions, in lower case and perhaps with wildcards, that a service may do."""
    found: set[str] = set()
    for statement in statements(document):
        if statement.get("Effect") == "Allow" and service in as_texts(
            as_map(statement.get("Principal")).get("Service")
        ):
            found |= {action.lower() for action in as_texts(statement.get("Action"))}
    return found


def resolves(path: str, vpc_id: str, world: World) -> Iterator[Problem]:
    """A VPC has both of its DNS settings, which private names in it need.

    docs.aws.amazon.com/vpc/latest/userguide/vpc-dns.html
    """
    made = world.by_id(t.VPC, vpc_id)
    for setting in ("enableDnsSupport", "enableDnsHostnames") if made else ():
        if made is not None and made.outputs.get(setting) is not True:
            yield Problem(path, f"needs {setting} on the VPC {made.id}; set it to true there")


# Quotas: how many of a type a region, or something in it, takes by default, as AWS documents.

_ASK: Final = "or ask AWS for more and raise the figure in the sandbox's quotas.json"


@dataclass(frozen=True)
class Quota:
    """At most `limit` resources of a type in each region, account, or other resource."""

    name: str
    token: str
    limit: int
    per: str
    """``region``, ``account``, or the property whose value they share."""
    only: dict[str, str]
    """Values that a resource must have to count."""
    source: str
    hint: str
    """What else can be done where it is met."""


@cache
def quotas() -> tuple[Quota, ...]:
    """The table of `data/quotas.json`."""
    rows = t.load_table("quotas")["quotas"]
    return tuple(
        Quota(
            row["name"],
            row["token"],
            row["limit"],
            row["per"],
            row.get("only", {}),
            row["source"],
            row.get("hint", _ASK),
        )
        for row in rows
    )


def exceeded(inputs: Inputs, world: World) -> Iterator[Problem]:
    """The quotas that one more resource would exceed."""
    for quota in quotas():
        if quota.token != inputs.token:
            continue
        if any(inputs.get(path) != value for path, value in quota.only.items()):
            continue
        shared = inputs.get(quota.per) if quota.per not in ("region", "account") else None
        if quota.per not in ("region", "account") and not isinstance(shared, str):
            continue
        count = sum(1 for made in world.all(inputs.token) if _counts(made, quota, inputs, shared))
        if count >= quota.limit:
            where = {"region": region_of(inputs), "account": "the account"}.get(
                quota.per, str(shared)
            )
            yield Problem(
                quota.per if isinstance(shared, str) else "",
                f"{where} has {count} already, and the quota {quota.name!r} is {quota.limit}; "
                f"delete one, share one, {quota.hint}",
            )


def _counts(made: Made, quota: Quota, inputs: Inputs, shared: object) -> bool:
    if quota.per == "region" and made.region != region_of(inputs):
        return False
    values = made.outputs
    if isinstance(shared, str) and shared not in [
        value for _, value in Inputs(values).each(quota.per)
    ]:
        return False
    return all(
        value in [found for _, found in Inputs(values).each(path)]
        for path, value in quota.only.items()
    )
