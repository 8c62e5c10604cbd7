"""Where properties send data to: the regions, buckets, accounts and hosts that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.region_names import region_in
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    indeterminate,
    is_unknown,
    leaves,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.hosts import host_of, is_listed, may_talk_to, region_of_host
from falaj.policies.reading.place import format_places, has_place, is_allowed, place_of
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_places import (
    GROUP,
    allowed,
    azure_place_of,
    is_trusted,
    refers_to,
    where_allowed,
)

# How named rules place what a property of AWS points to.

BUCKETS: Final = frozenset((
    "aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2", "aws:s3/directoryBucket:DirectoryBucket",
    "aws-native:s3:Bucket",
))  # fmt: skip
_BUCKET: Final = re.compile(
    r"(?:arn:aws[a-z-]*:s3:::|s3[an]?://)?([A-Za-z0-9][A-Za-z0-9._-]+?)"
    r"(?:\.s3[.-][a-z0-9.-]*amazonaws\.com(?:\.cn)?)?(?:/.*)?",
    re.DOTALL,
)
_ACCOUNT: Final = re.compile(r"(?<!\d)(\d{12})(?!\d)")


def _judge(place: str, path: str, what: str, context: Context) -> Iterator[Finding]:
    if not is_allowed(place, context):
        yield violation(path, f"{what} is in {place}; {format_places(context)}")


#: Packages whose values are never a place or an ARN by themselves.
_SAY_NOTHING: Final = frozenset(("random", "time", "tls"))


def _places(near: Sequence[Resource], context: Context) -> set[str]:
    """Where resources are that a value was made from; roles and random names say nothing.

    Outputs of other stacks and of commands may be anything.
    """
    found = {place_of(each, context.stack) for each in near if has_place(each)} - {"global"}
    opaque = any(
        each.custom and not has_place(each) and each.package not in _SAY_NOTHING for each in near
    )
    return found | ({"unknown"} if opaque else set())


def unseen(
    near: Sequence[Resource], path: str, what: str, context: Context, why: str
) -> Iterator[Finding]:
    """A value that can't be seen, judged by what it was made from."""
    places = _places(near, context)
    foreign = sorted(
        each for each in places if each != "unknown" and not is_allowed(each, context)
    )
    if foreign:
        yield violation(path, f"{what} is made from {foreign[0]}; {format_places(context)}")
    elif not places or "unknown" in places:
        yield indeterminate(path, f"where {what} is {why}; {format_places(context)}")


def region(resource: Resource, context: Context, path: str, what: str) -> Iterator[Finding]:
    """Judge every region that a property names; what is no region at all is no allowed one."""
    for at, value in select(resource.properties, path):
        if is_unknown(value):
            near = context.referred(resource, at)
            yield from unseen(near, at, what, context, "can't be known")
        elif given := text(value):
            yield from _judge(f"aws/{region_in(given) or given}", at, what, context)


def arn(
    resource: Resource, context: Context, path: str, what: str, *, names_are_local: bool = True
) -> Iterator[Finding]:
    """Judge every ARN at a path: by its region, by the bucket that it names, or by its origin.

    Args:
        resource: whose property.
        context: settings, and the stack in the second look.
        path: keys as `select` takes them.
        what: what the property points to, for the reason.
        names_are_local: a bare name is one of the resource's own region.
    """
    for at, value in select(resource.properties, path):
        if is_unknown(value):
            near = context.referred(resource, at)
            yield from unseen(near, at, what, context, "can't be known")
            continue
        given = text(value)
        if found := region_in(given):
            yield from _judge(f"aws/{found}", at, what, context)
        elif given.startswith("arn:") and ":s3:::" in given:
            yield from bucket_at(resource, context, at, value, what)
        elif given and not names_are_local and not given.startswith("arn:"):
            near = context.referred(resource, at)
            yield from unseen(near, at, what, context, "isn't said by its name")


def bucket_name(value: object) -> str:
    """The bucket that an ARN, an S3 address, a host or a name means; empty for others."""
    found = _BUCKET.fullmatch(text(value))
    return found[1] if found else ""


def _is_of_s3(resource: Resource) -> bool:
    return resource.kind in BUCKETS or resource.kind.startswith("aws:s3/bucket")


def _is_listed_bucket(name: str, context: Context) -> bool:
    """Whether the setting ``allowedHosts`` names a bucket, alone or by its host: a central one."""
    hosts = (f"{name}.s3.{each}.amazonaws.com" for each in context.settings.regions("aws"))
    return any(is_listed(each, context.settings) for each in (name, *hosts))


def bucket_at(
    resource: Resource, context: Context, at: str, value: Any, what: str, *, certain: bool = False
) -> Iterator[Finding]:
    """Judge a bucket by the stack: names and ARNs of S3 say no region.

    Args:
        resource: whose property.
        context: settings, and the stack in the second look.
        at: the property's path.
        value: what it is.
        what: what the bucket is for, for the reason.
        certain: a bucket that isn't in the stack is a violation rather than indeterminate.
    """
    if is_unknown(value):
        # Companions, as its policy is one, have the bucket's region and repeat its name.
        near = [
            each
            for each in context.referred(resource, at)
            if _is_of_s3(each) or not has_place(each)
        ]
        yield from unseen(near, at, what, context, "can't be known")
        return
    if ".mrap" in text(value):
        yield violation(at, f"{what} is reached through edges abroad; {format_places(context)}")
        return
    if found := region_in(value):
        yield from _judge(f"aws/{found}", at, what, context)
        return
    name = bucket_name(value)
    if not name:
        return
    if context.stack is None:
        yield indeterminate(at, f"where {what} is needs the whole stack; {format_places(context)}")
        return
    places = {
        place_of(each, context.stack)
        for known in (name, text(value))
        for each in context.stack.called(known)
        if each.kind in BUCKETS
    }
    if not places and _is_listed_bucket(name, context):
        return
    if not places:
        find = violation if certain else indeterminate
        yield find(
            at,
            f"{what} is neither a bucket of this stack nor one of allowedHosts, and the names of "
            "buckets say no region; "
            f"{format_places(context)}",
        )
    for place in sorted(places):
        if place == "unknown":
            yield indeterminate(at, f"where {what} is can't be known; {format_places(context)}")
        else:
            yield from _judge(place, at, what, context)


def bucket(
    resource: Resource, context: Context, path: str, what: str, *, certain: bool = False
) -> Iterator[Finding]:
    """Judge every bucket at a path, as `bucket_at` does."""
    for at, value in select(resource.properties, path):
        yield from bucket_at(resource, context, at, value, what, certain=certain)


@remembered(size=2)
def _own_accounts(stack: Stack) -> frozenset[str]:
    """The accounts that the stack's own resources are in, as far as the cloud answered."""
    found: set[str] = set()
    for each in stack.resources:
        arn_of = text(each.outputs.get("arn")) if each.package == "aws" else ""
        if re.match(r"arn:aws[a-z-]*:[a-z0-9-]*:[a-z0-9-]*:\d{12}:", arn_of):
            found.add(arn_of.split(":")[4])
        if each.type == "pulumi:providers:aws":
            found |= _accounts_of_provider(each.properties)
    return frozenset(found)


def _accounts_of_provider(settings: Mapping[str, Any]) -> set[str]:
    return {
        number
        for key in ("allowedAccountIds", "assumeRoles")
        for number in _ACCOUNT.findall(str(settings.get(key)))
    }


def own_accounts(resource: Resource, context: Context) -> frozenset[str]:
    """The accounts that are one's own, as far as its provider, the stack and the cloud say."""
    found = _own_accounts(context.stack) if context.stack else frozenset[str]()
    return found | _accounts_of_provider(resource.provider.properties if resource.provider else {})


@remembered(size=2)
def only_account(stack: Stack) -> str:
    """The account that a stack's ARNs name, where it is but one; else empty.

    Before anything is made the cloud has told no account; a program then names its own.
    """
    named = {
        found
        for each in stack.resources
        if each.package == "aws"
        for _, value in leaves(each.properties)
        if isinstance(value, str) and ":" in value
        for found in _IN_ARN.findall(value)
    }
    return named.pop() if len(named) == 1 else ""


_IN_ARN: Final = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}):")


def account(
    resource: Resource, context: Context, path: str, what: str, *, may_be_own: bool = False
) -> Iterator[Finding]:
    """Judge every account that a property names: by number, or within an ARN; ``*`` is anybody.

    What is made from a resource of the stack is one's own; so is one's organisation.

    Args:
        resource: whose property.
        context: settings, and the stack in the second look.
        path: keys as `select` takes them.
        what: how the account is let in, for the reason.
        may_be_own: programs often name their own account here, whose number only the cloud's
            answers tell; without these an account is indeterminate rather than foreign, or one's
            own where it is the only one that the whole stack names.
    """
    own = own_accounts(resource, context)
    find = indeterminate if may_be_own and not own else violation
    if may_be_own and not own and context.stack and (only := only_account(context.stack)):
        own = frozenset({only})
    for at, value in select(resource.properties, path):
        given = text(value)
        if is_unknown(value):
            if not any(each.package == "aws" for each in context.referred(resource, at)):
                yield indeterminate(at, f"{what} an account that can't be known")
        elif given == "*" or given.lower() == "all":
            yield violation(at, f"{what} everybody; only own and allowed accounts may be named")
        elif ":organizations:" not in given:
            for number in _ACCOUNT.findall(given):
                if number not in context.settings.allowed_accounts and number not in own:
                    yield find(
                        at,
                        f"{what} the account {number}, which the setting allowedAccounts lacks",
                    )


def host(resource: Resource, context: Context, path: str, what: str) -> Iterator[Finding]:
    """Judge every host at a path, of URLs and of bare hosts: allowed are private ones, those of
    an allowed region, and those that the setting ``allowedHosts`` names."""
    for at, value in select(resource.properties, path):
        if is_unknown(value):
            near = context.referred(resource, at)
            yield from unseen(near, at, what, context, "can't be known")
            continue
        # Brokers come as a list in one text.
        for found in dict.fromkeys(host_of(each) for each in text(value).split(",")):
            if found and not may_talk_to(found, context.settings):
                place = region_of_host(found)
                yield violation(
                    at,
                    f"{what} is {found}, {f'in {place}' if place else 'which no setting allows'}; "
                    f"{format_places(context)}",
                )


def is_set(resource: Resource, path: str) -> bool:
    """Whether a property is given: known, and neither empty nor null."""
    value = resource.get(path)
    return value is not ABSENT and not is_unknown(value) and value not in ("", [], {})


# Where properties send data to: the place of the workspace, account or network that they name.
#
# What isn't in the stack has a place that can't be seen, and is no more allowed than a region that
# nobody named: the finding is indeterminate, which fails where checks are strict. Subscriptions in
# the setting allowedAccounts are under the same rules, so what is in them is taken to be in the
# country; so is what another stack offers, which is judged with that stack.

AZURE_CONTROLS: Final = (
    "health-data:13", "cbuae-outsourcing:6.1", "uae-ia:T6.3.1", "pdpl:22", "gdpr:44",
    "iso27001:A.5.14",
)  # fmt: skip


def judge_target(
    resource: Resource, path: str, value: Any, context: Context, what: str
) -> Iterator[Finding]:
    """What is wrong with the place of something that a property sends data to.

    Args:
        resource: whose property.
        path: of the property.
        value: an id or a name; nothing is found for what is absent.
        context: the settings and the stack.
        what: how the target is called in the reason, as ``the workspace``.
    """
    if value is ABSENT or value is None or (isinstance(value, str) and not value.strip()):
        return
    if is_trusted(value, context):
        return
    if context.stack is None:
        yield indeterminate(path, f"the place of {what} is judged with the whole stack")
        return
    found = refers_to(resource, path, value, context)
    if not found and context.is_from_another_stack(resource, path):
        return
    if is_unknown(value) and not path.endswith("ResourceGroupId"):
        # Ids are made of their groups' names as well; what is in a group may be elsewhere.
        found = [each for each in found if each.kind != GROUP]
    places = {each.name: azure_place_of(each, context) for each in found}
    foreign = [(name, at) for name, at in places.items() if at and at not in allowed(context)]
    for name, at in foreign:
        yield violation(path, f"{what} {name!r} is in {at}; {where_allowed(context)}")
    if not foreign and (not places or None in places.values()):
        reason = (
            "isn't in this stack, so its place can't be seen"
            if not places
            else ("has a place that can't be seen")
        )
        yield indeterminate(
            path,
            f"{what} {reason}; {where_allowed(context)}, or name its subscription in "
            "allowedAccounts",
        )


@dataclass(frozen=True)
class Target:
    """A property that names where data goes."""

    path: str
    """Keys with dots, through all lists on the way."""
    what: str
    """How it is called in a reason, as ``the workspace``."""


def targets(
    id: str,
    title: str,
    table: Mapping[str, Sequence[Target]],
    remediation: str,
    controls: tuple[str, ...] = AZURE_CONTROLS,
) -> Rule:
    """One rule over a table of types (as ``module:Type``) and of what they send data to."""
    by_kind = {kind: found for name, found in table.items() for kind in azure(name)}

    @rule(id, title, Severity.CRITICAL, frozenset(by_kind), controls, remediation)
    def check(resource: Resource, context: Context) -> Iterator[Finding]:
        hidden: set[str] = set()
        for each in by_kind.get(resource.kind, ()):
            for path, value in select(resource.properties, each.path):
                # What hides several of them is told once.
                if not is_unknown(value) or path not in hidden:
                    yield from judge_target(resource, path, value, context, each.what)
                if is_unknown(value):
                    hidden.add(path)

    return check
