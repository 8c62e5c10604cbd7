"""What stacks of AWS ask for, judged by AWS's own description of its calls.

The sandbox is ours: what it takes for right, it takes for right here. These descriptions are not.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from botocore.model import ListShape, Shape, StructureShape

from falaj.sandbox.inprocess import Declared
from falaj.wire import has_unknown
from tests.stacks.in_mocks import ROOT, declare
from tests.stacks.vendors.aws_calls import CALLS, requests
from tests.stacks.vendors.configurations import CONFIGURATIONS
from tests.stacks.vendors.judge import problems, taken

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

STACKS = list(CONFIGURATIONS)


@cache
def _declared(stack: str) -> tuple[Declared, ...]:
    """The resources of AWS that a stack declares."""
    return tuple(
        each
        for each in declare(CONFIGURATIONS[stack], stack).resources
        if each.type.startswith("aws:")
    )


def _requests(
    declared: Declared, inputs: Mapping[str, Any] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """The calls that are made of a resource, or would be made of it with other inputs."""
    given = declared.inputs if inputs is None else inputs
    return requests(declared.type, given, {**declared.outputs, "id": declared.id})


def _judged(declared: Declared, inputs: Mapping[str, Any] | None = None) -> list[str]:
    return [
        f"{declared.type} {declared.name}: {problem}"
        for name, members in _requests(declared, inputs)
        for problem in problems(name, members)
    ]


@pytest.mark.parametrize("stack", STACKS)
def test_calls_are_as_aws_describes_them(stack: str) -> None:
    found = [problem for each in _declared(stack) for problem in _judged(each)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("stack", STACKS)
def test_every_value_is_known_to_the_judge(stack: str) -> None:
    """The sandbox makes all that others refer to: nothing goes unjudged."""
    assert not [each.name for each in _declared(stack) if has_unknown(each.inputs)]


def test_every_type_has_its_calls() -> None:
    """Of what the stacks declare, no type is left out, and none stands there that they don't."""
    assert {each.type for stack in STACKS for each in _declared(stack)} == CALLS.keys()


def test_all_that_the_components_make_is_declared() -> None:
    made = {
        name
        for path in (ROOT / "components/aws").rglob("*.py")
        for name in re.findall(r"\baws\.(\w+\.[A-Z]\w+)\(", path.read_text(encoding="utf-8"))
        if not name.endswith("Args")
    }
    assert made == {re.sub(r"aws:(\w+)/\w+:", r"\1.", token) for token in CALLS}


_REMOVED = object()


@pytest.mark.parametrize(
    ("token", "path", "value", "said"),
    [
        (
            "aws:guardduty/detector:Detector", ("findingPublishingFrequency",), "HOURLY",
            "guardduty.CreateDetector: .FindingPublishingFrequency is 'HOURLY', which is none of "
            "FIFTEEN_MINUTES, ONE_HOUR, SIX_HOURS",
        ),
        (
            "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
            ("rules", 0, "status"), "On",
            "s3.PutBucketLifecycleConfiguration: .LifecycleConfiguration.Rules[0].Status is 'On', "
            "which is none of Disabled, Enabled",
        ),
        (
            "aws:eks/cluster:Cluster", ("roleArn",), _REMOVED,
            'eks.CreateCluster: Missing required parameter in input: "roleArn"',
        ),
        (
            "aws:fsx/lustreFileSystem:LustreFileSystem",
            ("metadataConfiguration",), {"iops": 1500},
            "fsx.CreateFileSystem: Missing required parameter in "
            'LustreConfiguration.MetadataConfiguration: "Mode"',
        ),
        (
            "aws:ec2/launchTemplate:LaunchTemplate", ("metadataOptions", "httpVersion"), "2",
            "ec2.CreateLaunchTemplate: Unknown parameter in LaunchTemplateData.MetadataOptions: "
            '"httpVersion"',
        ),
        (
            "aws:ec2/launchTemplate:LaunchTemplate",
            ("blockDeviceMappings", 0, "ebs", "volumeSize"), "much",
            "ec2.CreateLaunchTemplate: Invalid type for parameter "
            "LaunchTemplateData.BlockDeviceMappings[0].Ebs.VolumeSize",
        ),
        (
            "aws:iam/role:Role", ("name",), "r" * 65,
            "iam.CreateRole: .RoleName has 65 characters, of which 64 are the most",
        ),
        (
            "aws:kms/key:Key", ("tags", "k" * 129), "v",
            ".TagKey has 129 characters, of which 128 are the most",
        ),
        (
            "aws:budgets/budget:Budget", ("notifications", 0, "subscriberEmailAddresses"),
            ["a@example.ae"] * 12,
            "budgets.CreateBudget: .NotificationsWithSubscribers[0].Subscribers has 12 members, "
            "of which 11 are the most",
        ),
        (
            "aws:fsx/lustreFileSystem:LustreFileSystem", ("automaticBackupRetentionDays",), 91,
            ".LustreConfiguration.AutomaticBackupRetentionDays has 91, of which 90 are the most",
        ),
        (
            "aws:eks/nodeGroup:NodeGroup", ("updateConfig", "maxUnavailable"), 0,
            "eks.CreateNodegroup: Invalid value for parameter updateConfig.maxUnavailable, "
            "value: 0, valid min value: 1",
        ),
        (
            "aws:cloudwatch/logGroup:LogGroup", ("name",), "/falaj/a b",
            'logs.CreateLogGroup: .logGroupName is "/falaj/a b", which ',
        ),
        (
            "aws:efs/mountTarget:MountTarget", ("subnetId",), "network-0123456789",
            "efs.CreateMountTarget: .SubnetId is \"network-0123456789\", which ^subnet-",
        ),
    ],
)  # fmt: skip
def test_what_aws_does_not_take_is_found(
    token: str, path: tuple[str | int, ...], value: Any, said: str
) -> None:
    declared = next(each for stack in STACKS for each in _declared(stack) if each.type == token)
    inputs: Any = copy.deepcopy(dict(declared.inputs))
    place = inputs
    for each in path[:-1]:
        place = place[each]
    if value is _REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    assert any(said in each for each in _judged(declared, inputs)), _judged(declared, inputs)


def _places(shape: Shape, value: Any) -> Iterator[tuple[StructureShape, dict[str, Any], str]]:
    """Every member that stands somewhere in a call, with what it stands in."""
    if isinstance(shape, StructureShape):
        for name in list(value):
            yield shape, value, name
            yield from _places(shape.members[name], value[name])
    elif isinstance(shape, ListShape):
        for each in value:
            yield from _places(shape.member, each)


def test_every_choice_and_every_need_in_a_call_is_judged() -> None:
    """Of one resource of each type: the judge gets to all that it is given."""
    judged: Counter[str] = Counter()
    first = {each.type: each for stack in reversed(STACKS) for each in _declared(stack)}
    for declared in first.values():
        for call, members in _requests(declared):
            for shape, place, name in list(_places(taken(call), members)):
                value = place[name]
                if name in shape.required_members:
                    del place[name]
                    said = f'"{name}"'
                    assert any(said in each for each in problems(call, members)), (call, name)
                    judged["needed"] += 1
                if getattr(shape.members[name], "enum", ()):
                    place[name] = "no such choice"
                    said = f".{name} is 'no such choice'"
                    assert any(said in each for each in problems(call, members)), (call, name)
                    judged["chosen"] += 1
                place[name] = value
            assert not problems(call, members)
    assert judged["needed"] > len(first)
    assert judged["chosen"] > len(first) / 2


def test_an_unknown_type_is_not_passed_over() -> None:
    with pytest.raises(KeyError, match="aws:sqs/queue:Queue"):
        requests("aws:sqs/queue:Queue", {}, {})
