"""Components can be unit-tested against the sandbox, without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
import pytest
from pulumi.runtime import rpc

from falaj.engine.errors import EngineError
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox, SandboxMocks
from falaj.wire import ARCHIVE, ASSET, SIGNATURE, UNKNOWN, Unknown

TOPIC = "aws:sns/topic:Topic"


def declare(program: Callable[[], Any], *, preview: bool = False, **config: Any) -> SandboxMocks:
    mocks = SandboxMocks(config, preview)
    asyncio.set_event_loop(asyncio.new_event_loop())  # another test may have closed the last one
    pulumi.runtime.set_mocks(mocks, preview=preview)
    pulumi.runtime.test(program)()
    return mocks


def test_misspelt_and_wrong_inputs_fail_the_program() -> None:
    class Wrong(pulumi.CustomResource):
        def __init__(self) -> None:
            super().__init__(TOPIC, "t", {"nam": "x", "fifoTopic": pulumi.Output.secret("yes")})

    with pytest.raises(SandboxError) as caught:
        declare(Wrong)
    assert [problem.path for problem in caught.value.problems] == ["fifoTopic", "nam"]
    assert str(caught.value).startswith(f"{TOPIC} t:\n- fifoTopic: expected true or false")


def test_wrong_settings_of_a_provider_fail_the_program() -> None:
    with pytest.raises(SandboxError, match="provider p: maxRetries: expected a whole number"):
        declare(lambda: aws.Provider("p", region="me-central-1", max_retries="many"))  # type: ignore[arg-type]


def test_query_that_the_sandbox_does_not_know_fails_the_program() -> None:
    with pytest.raises(SandboxError, match=r"sns/getTopic:getTopic"):
        declare(lambda: aws.sns.get_topic(name="x"))


def test_names_that_nobody_or_several_have_are_refused() -> None:
    def program() -> None:
        aws.sns.Topic("t")
        aws.sqs.Queue("t")

    mocks = declare(program, aws={"region": "me-central-1"})
    with pytest.raises(KeyError, match="0 resources are named 'x'; declared: t"):
        mocks.named("x")
    with pytest.raises(KeyError, match="2 resources"):
        mocks.named("t")
    assert [each.type for each in mocks.of_type(TOPIC)] == [TOPIC]


def test_resources_are_recorded_with_their_provider_and_outputs() -> None:
    seen: list[str] = []

    class Group(pulumi.ComponentResource):
        def __init__(self) -> None:
            super().__init__("falaj:test:Group", "g", {"size": 2})

    def program() -> Any:
        one = aws.Provider("one", region="me-central-1", default_tags={"tags": {"a": "b"}})
        group = Group()
        options = pulumi.ResourceOptions(provider=one, parent=group)
        topic = aws.sns.Topic("t", display_name=pulumi.Output.secret("A"), opts=options)
        kubernetes.core.v1.Namespace("n")
        return pulumi.Output.all(topic.arn, topic.region).apply(seen.extend)

    mocks = declare(program)
    declared = mocks.named("t")
    assert declared.inputs == {"displayName": "A"}
    assert "::one::" in declared.provider
    assert declared.outputs["displayName"] == "A"
    assert seen == [declared.outputs["arn"], "me-central-1"]
    assert seen[0].startswith("arn:aws:sns:me-central-1:000000000000:")
    group = mocks.named("g")
    assert (group.custom, group.inputs) == (False, {"size": 2})
    assert mocks.named("n").id.startswith("n-")


def test_resources_of_one_name_get_ids_of_their_own() -> None:
    def program() -> None:
        aws.sns.Topic("t")
        aws.sns.Topic("t")

    mocks = declare(program, aws={"region": "me-central-1"})
    assert len({each.id for each in mocks.resources}) == 2


def test_preview_makes_nothing_and_takes_nulls_for_unknown() -> None:
    made = Mocked()
    mocks = SandboxMocks({"aws": {"region": "me-central-1"}}, preview=True)
    made.inputs = {"displayName": None, "tags": {"a": 1.0, "b": rpc.UNKNOWN}}
    with pytest.raises(SandboxError, match=r"tags.a: expected a string, given the number 1$"):
        mocks.new_resource(made)
    made.inputs = {"displayName": None}
    made_id, outputs = mocks.new_resource(made)
    assert made_id == ""
    assert isinstance(mocks.named("t").outputs["displayName"], Unknown)
    assert "arn" not in outputs
    assert mocks.store.all() == []


class Mocked:
    typ = TOPIC
    name = "t"
    inputs: dict[str, Any]
    provider = ""
    resource_id = ""
    custom = True


def test_existing_resource_is_read() -> None:
    def program() -> Any:
        return aws.sns.Topic.get("old", "arn:aws:sns:me-central-1:000000000000:old")

    assert declare(program).named("old").id == "arn:aws:sns:me-central-1:000000000000:old"


def test_sandbox_in_process() -> None:
    sandbox = Sandbox("aws", config={"region": "me-central-1"})
    _, problems = sandbox.check(TOPIC, "t", {"name": UNKNOWN, "nme": "x"})
    assert [problem.path for problem in problems] == ["nme"]
    with pytest.raises(SandboxError, match="aws:sns/topic:Topic t: nme: unknown property"):
        sandbox.create(TOPIC, "t", {"nme": "x"})
    made, outputs = sandbox.create(TOPIC, "t", {})
    assert sandbox.store.by_id(TOPIC, made) is not None
    assert outputs["region"] == "me-central-1"
    assert sandbox.invoke("aws:index/getCallerIdentity:getCallerIdentity", {})["accountId"]


def test_clouds_share_a_store_and_have_short_names() -> None:
    sandbox = Sandbox("kubernetes")
    other = Sandbox("azure", sandbox.store)
    assert other.cloud.package == "azure-native"
    sandbox.create("kubernetes:core/v1:Namespace", "n", {})
    assert len(other.store.all()) == 1
    with pytest.raises(EngineError, match="'gcp' is no cloud that the sandbox stands in for"):
        Sandbox("gcp")


def test_files_reach_the_sandbox_as_a_provider_gets_them() -> None:
    # The mock monitor hands over the SDK's own objects.
    def program() -> None:
        role = aws.iam.Role("r", assume_role_policy=TRUST)
        bucket = aws.s3.Bucket("b")
        aws.s3.BucketObject("o", bucket=bucket.id, source=pulumi.StringAsset("hello"))
        code = pulumi.AssetArchive({"a.py": pulumi.StringAsset("x"), "d": pulumi.FileArchive(".")})
        aws.lambda_.Function("f", role=role.arn, code=code, runtime="python3.13", handler="a.main")

    mocks = declare(program, aws={"region": "me-central-1"})
    assert mocks.named("o").inputs["source"] == {SIGNATURE: ASSET, "text": "hello"}
    inside = mocks.named("f").inputs["code"]["assets"]
    assert inside["a.py"] == {SIGNATURE: ASSET, "text": "x"}
    assert inside["d"] == {SIGNATURE: ARCHIVE, "path": "."}


TRUST = """{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",
"Principal": {"Service": "lambda.amazonaws.com"}}]}"""
