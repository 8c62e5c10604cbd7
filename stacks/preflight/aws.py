"""Asks AWS: zones, offerings, quotas, reservations, permissions and, if wished, region health.

Everything is read only. Services are asked at their endpoints in the region; IAM has its only
endpoint abroad, as every deployment's own calls to it do, and so has AWS Health, which is
therefore asked only when the person says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from falaj.components import catalogue
from falaj.components.catalogue.clusters import EKS_ADDONS
from falaj.stacks.preflight import Finding, Need, NotAskedError, Vcpus

#: Service quotas in vCPUs, by the first letters of a machine's family and on-demand or spot:
#: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
_QUOTAS: Mapping[str, tuple[str, str]] = {
    "p": ("L-417A185B", "L-7212CCBC"),
    "g": ("L-DB2E81BA", "L-3819A6DF"),
    "standard": ("L-1216C47A", "L-34B43A08"),
}
#: Actions without which no stack can be made; asked one by one, so that the answer names them.
_ACTIONS = (
    "ec2:CreateVpc", "ec2:CreateLaunchTemplate", "kms:CreateKey", "s3:CreateBucket",
    "iam:CreateRole", "iam:PassRole", "ecr:CreateRepository", "logs:CreateLogGroup",
    "cloudtrail:CreateTrail", "eks:CreateCluster", "eks:CreateNodegroup",
    "autoscaling:CreateAutoScalingGroup", "elasticloadbalancing:CreateLoadBalancer",
)  # fmt: skip

ClientOf = Callable[[str], Any]
"""Makes a client of boto3 for a service."""


def connect(region: str) -> ClientOf:
    """Clients for the region with the credentials that boto3 finds.

    Raises:
        NotAskedError: there are none.
    """
    import boto3  # noqa: PLC0415 - an extra, and half a second that no other command needs

    session = boto3.Session(region_name=region)
    if session.get_credentials() is None:
        raise NotAskedError(
            "AWS could not be asked: there are no credentials\n"
            "  set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and run it again"
        )
    return session.client


def ask(
    client: ClientOf,
    place: catalogue.Place,
    needs: Sequence[Need],
    *,
    kubernetes_version: str | None = None,
    health: bool,
) -> Iterator[Finding]:
    """What AWS says about the place and what the stack needs there.

    Args:
        client: as `connect` makes it.
        place: where the stack goes.
        needs: its machines.
        kubernetes_version: of the cluster that the stack makes; None where it makes none.
        health: whether AWS Health is asked, at its endpoint in another country.

    Raises:
        NotAskedError: the credentials were refused, or AWS can't be reached.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

    try:
        caller = client("sts").get_caller_identity()
    except (BotoCoreError, ClientError) as error:
        raise NotAskedError(f"AWS could not be asked: {error}") from None
    yield Finding("ok", "account", f"{caller['Account']} as {caller['Arn']}")
    questions: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("zones", lambda: _zones(client("ec2"), place)),
        ("offerings", lambda: _offerings(client("ec2"), needs)),
        ("quota", lambda: _quotas(client("service-quotas"), needs)),
        ("reservation", lambda: _reservations(client("ec2"), needs)),
        ("permissions", lambda: _permissions(client("iam"), caller["Arn"])),
    ]
    if kubernetes_version is not None:
        version = kubernetes_version
        questions.append(("add-ons", lambda: _addons(client("eks"), place, version)))
    if health:
        questions.append(("health", lambda: _health(client("health"), place)))
    for subject, question in questions:
        try:
            yield from question()
        except (BotoCoreError, ClientError) as error:
            yield Finding("unknown", subject, f"AWS did not answer: {error}")
    if not health:
        yield Finding(
            "unknown",
            "health",
            "AWS Health was not asked: it answers from another country only; --health asks it",
        )


def _zones(ec2: Any, place: catalogue.Place) -> Iterator[Finding]:
    answer = ec2.describe_availability_zones(AllAvailabilityZones=True)["AvailabilityZones"]
    states = {zone["ZoneId"]: zone for zone in answer}
    for zone in place.zones:
        found = states.get(zone.id)
        if found is None:
            yield Finding("problem", f"zone {zone.id}", "this account doesn't see it")
        elif found["State"] != "available" or found.get("OptInStatus") == "not-opted-in":
            messages = ", ".join(message["Message"] for message in found.get("Messages", []))
            yield Finding(
                "problem",
                f"zone {zone.id}",
                f"state {found['State']}, {found.get('OptInStatus')} {messages}".rstrip()
                + "; use another zone, or enable the region in the account",
            )
        else:
            yield Finding("ok", f"zone {zone.id}", f"available as {found['ZoneName']}")


def _offerings(ec2: Any, needs: Sequence[Need]) -> Iterator[Finding]:
    if not needs:
        return
    names = sorted({need.machine.name for need in needs})
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": names}]
    )
    sold: dict[str, set[str]] = {}
    for page in pages:
        for offering in page["InstanceTypeOfferings"]:
            sold.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    for need in needs:
        zones = sold.get(need.machine.name, set())
        wanted = set(need.zones or need.machine.zone_ids)
        listed = ", ".join(sorted(zones)) or "no zone"
        subject = f"pool {need.name}"
        if not zones & wanted:
            yield Finding(
                "problem", subject,
                f"{need.machine.name} is sold in {listed}; wanted: {', '.join(sorted(wanted))}",
            )  # fmt: skip
        else:
            yield Finding("ok", subject, f"{need.machine.name} is sold in {listed}")


def _quotas(quotas: Any, needs: Sequence[Need]) -> Iterator[Finding]:
    asked: dict[str, Vcpus] = {}
    for need in needs:
        if need.machine.vcpu is None:
            yield Finding("unknown", f"pool {need.name}", f"vCPUs of {need.machine.name} unknown")
            continue
        letter = need.machine.name[0]
        code = _QUOTAS.get(letter, _QUOTAS["standard"])[1 if need.spot else 0]
        asked.setdefault(code, Vcpus()).add(need, need.machine.vcpu)
    for code, vcpus in sorted(asked.items()):
        quota = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
        limit = float(quota["Value"])
        text = f"{quota['QuotaName']}: {limit:g} vCPUs, {vcpus}"
        if vcpus.most > limit:
            yield Finding("problem", "quota", f"{text}; ask for more, or lower maxNodes ({code})")
        else:
            yield Finding("ok", "quota", f"{text} (what runs already is not subtracted)")


def _reservations(ec2: Any, needs: Sequence[Need]) -> Iterator[Finding]:
    for need in needs:
        if need.reservation_id is None:
            continue
        subject = f"pool {need.name}"
        answer = ec2.describe_capacity_reservations(CapacityReservationIds=[need.reservation_id])
        for found in answer["CapacityReservations"]:
            text = (
                f"{need.reservation_id} is {found['State']}: "
                f"{found['AvailableInstanceCount']} of {found['TotalInstanceCount']} "
                f"{found['InstanceType']} free in {found.get('AvailabilityZoneId', '?')}"
            )
            fits = (
                found["State"] == "active"
                and found["InstanceType"] == need.machine.name
                and found["AvailableInstanceCount"] >= need.most
            )
            hint = "" if fits else f"; the pool may need {need.most} {need.machine.name}"
            yield Finding("ok" if fits else "problem", subject, text + hint)


def _addons(eks: Any, place: catalogue.Place, version: str) -> Iterator[Finding]:
    """Whether EKS has a version of each add-on that the cluster gets: some come months later.

    https://docs.aws.amazon.com/eks/latest/APIReference/API_DescribeAddonVersions.html
    """
    missing: list[str] = []
    for name in EKS_ADDONS:
        answer = eks.describe_addon_versions(addonName=name, kubernetesVersion=version)
        if not any(
            compatible.get("defaultVersion")
            for found in answer["addons"]
            for each in found["addonVersions"]
            for compatible in each["compatibilities"]
        ):
            missing.append(name)
    if missing:
        yield Finding(
            "problem", "add-ons",
            f"EKS has no default version for Kubernetes {version} in {place.region} of "
            f"{', '.join(missing)}; take another kubernetesVersion of falaj:cluster, or wait",
        )  # fmt: skip
    else:
        yield Finding("ok", "add-ons", f"EKS has all {len(EKS_ADDONS)} for Kubernetes {version}")


def _permissions(iam: Any, arn: str) -> Iterator[Finding]:
    answer = iam.simulate_principal_policy(
        PolicySourceArn=_principal(arn), ActionNames=list(_ACTIONS)
    )
    missing = [
        result["EvalActionName"]
        for result in answer["EvaluationResults"]
        if result["EvalDecision"] != "allowed"
    ]
    if missing:
        yield Finding("problem", "permissions", f"missing: {', '.join(missing)}")
    else:
        yield Finding("ok", "permissions", f"{len(_ACTIONS)} actions of a deployment are allowed")


def _principal(arn: str) -> str:
    """The role behind an assumed role's session, which is what policies belong to."""
    head, _, session = arn.partition(":assumed-role/")
    if not session:
        return arn
    role = session.partition("/")[0]
    return f"{head.replace(':sts:', ':iam:')}:role/{role}"


def _health(health: Any, place: catalogue.Place) -> Iterator[Finding]:
    answer = health.describe_events(
        filter={"regions": [place.region], "eventStatusCodes": ["open", "upcoming"]}
    )
    events = answer["events"]
    for event in events:
        yield Finding(
            "problem", "health", f"{event['service']}: {event['eventTypeCode']} since "
            f"{event['startTime']:%Y-%m-%d}, {event['statusCode']}",
        )  # fmt: skip
    if not events:
        yield Finding("ok", "health", f"AWS Health has no open event in {place.region}")
