"""Wrong inputs are refused with the property's path; right ones are taken."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.sandbox import property_types
from falaj.sandbox.checker import Checker
from falaj.sandbox.schema import Tables
from falaj.wire import ARCHIVE, ASSET, SIGNATURE, UNKNOWN
from tests.examples import examples
from tests.sandbox.mutants import MISSING, MISSPELT, WRONG_CHOICE, WRONG_TYPE, mutants

BUCKET = "aws:s3/bucket:Bucket"
CLUSTER = "aws:eks/cluster:Cluster"
ROLE = "aws:iam/role:Role"
ACCOUNT = "azure-native:storage:StorageAccount"
POOL = "azure-native:containerservice:AgentPool"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"

GOOD: dict[str, dict[str, Any]] = {
    BUCKET: {"bucket": "b", "tags": {"a.b": "c"}, "objectLockEnabled": True},
    CLUSTER: {
        "roleArn": UNKNOWN,
        "vpcConfig": {"subnetIds": ["subnet-1", UNKNOWN], "endpointPublicAccess": False},
        "encryptionConfig": {"provider": {"keyArn": "k"}, "resources": ["secrets"]},
        "upgradePolicy": None,
    },
    ROLE: {"assumeRolePolicy": '{"Statement": []}', "maxSessionDuration": 3600},
    ACCOUNT: {
        "resourceGroupName": "g",
        "kind": "StorageV2",
        "sku": {"name": "Standard_ZRS"},
        "encryption": {"services": {"blob": {"enabled": True, "keyType": "Account"}}},
        "networkRuleSet": {"defaultAction": "Deny", "ipRules": []},
    },
    POOL: {
        "resourceGroupName": "g",
        "resourceName": "c",
        "count": 2,
        "spotMaxPrice": -1.0,
        "scaleSetPriority": "Spot",
        "gpuProfile": {"driver": "Install"},
        "nodeLabels": {"a": "b"},
        "nodeTaints": ["a=b:NoSchedule"],
    },
    DEPLOYMENT: {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
                            "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
                        }
                    ]
                },
            },
        },
    },
}


@cache
def checker(package: str) -> Checker:
    return Checker(Tables(package))


def found(token: str, **changes: Any) -> dict[str, str]:
    """Problems of good inputs with changes; the path of each with its reason."""
    inputs = {**GOOD.get(token, {}), **changes}
    return {
        each.path: each.reason
        for each in checker(token.split(":", maxsplit=1)[0]).resource(token, inputs)
    }


def test_misspelt_property_is_refused_with_the_nearest_one() -> None:
    assert found(BUCKET, buket="b") == {
        "buket": "unknown property 'buket'; did you mean 'bucket'?"
    }


def test_python_name_is_told_apart_from_the_engines() -> None:
    problems = found(BUCKET, object_lock_enabled=True)
    assert "here it is written 'objectLockEnabled'" in problems["object_lock_enabled"]


def test_property_unlike_any_other_lists_all() -> None:
    problems = found(CLUSTER, vpcConfig={"subnetIds": [], "zzz": 1})
    assert problems["vpcConfig.zzz"].startswith("unknown property 'zzz'; allowed: cluster")


def test_missing_required_property_is_named_as_in_python_too() -> None:
    problems = found(CLUSTER, roleArn=None)
    assert problems == {
        "roleArn": "missing required property 'roleArn' (role_arn in Python); give a string"
    }


def test_missing_required_property_deep_inside() -> None:
    assert list(found(ACCOUNT, sku={})) == ["sku.name"]
    spec = GOOD[DEPLOYMENT]["spec"]
    broken = {**spec, "template": {"spec": {"containers": [{"image": "i"}]}}}
    assert list(found(DEPLOYMENT, spec=broken)) == ["spec.template.spec.containers[0].name"]


@pytest.mark.parametrize(
    ("token", "changes", "path", "reason"),
    [
        (BUCKET, {"bucket": 5}, "bucket", "expected a string, given the number 5"),
        (BUCKET, {"tags": {"a": 1}}, "tags.a", "expected a string, given the number 1"),
        (BUCKET, {"tags": "x"}, "tags", "expected a mapping, given the string 'x'"),
        (BUCKET, {"tags": {"a.b": 1}}, 'tags["a.b"]', "expected a string"),
        (BUCKET, {"forceDestroy": "true"}, "forceDestroy", "expected true or false"),
        (ROLE, {"maxSessionDuration": True}, "maxSessionDuration", "expected a whole number"),
        (ROLE, {"maxSessionDuration": 1.5}, "maxSessionDuration", "expected a whole number"),
        (CLUSTER, {"vpcConfig": {"subnetIds": "s"}}, "vpcConfig.subnetIds", "expected a list"),
        (CLUSTER, {"vpcConfig": {"subnetIds": [None]}}, "vpcConfig.subnetIds[0]", "null"),
        (CLUSTER, {"vpcConfig": []}, "vpcConfig", "expected an object (ClusterVpcConfig)"),
        (POOL, {"spotMaxPrice": "cheap"}, "spotMaxPrice", "expected a number"),
    ],
)
def test_wrong_type_is_refused(token: str, changes: Any, path: str, reason: str) -> None:
    problems = found(token, **changes)
    assert list(problems) == [path]
    assert reason in problems[path]


@pytest.mark.parametrize(
    ("token", "changes", "path", "near"),
    [
        (ACCOUNT, {"kind": "StorageV3"}, "kind", "did you mean 'StorageV2'?"),
        (ACCOUNT, {"sku": {"name": "Standard_LSR"}}, "sku.name", "'Standard_LRS'"),
        (POOL, {"scaleSetPriority": "spott"}, "scaleSetPriority", "did you mean 'Spot'?"),
        (BUCKET, {"acl": "Private"}, "acl", "did you mean 'private'?"),
        (DEPLOYMENT, {"kind": "Deploymnt"}, "kind", "is not one of: Deployment"),
    ],
)
def test_wrong_choice_is_refused(token: str, changes: Any, path: str, near: str) -> None:
    problems = found(token, **changes)
    assert list(problems) == [path]
    assert near in problems[path]


def test_azure_takes_the_values_of_its_lists_in_any_letter_case() -> None:
    assert not found(ACCOUNT, kind="storagev2", sku={"name": "standard_lrs"})
    assert not found(ACCOUNT, networkRuleSet={"defaultAction": "DENY"})
    assert not found(POOL, scaleSetPriority="spot")


def test_list_of_what_is_sold_today_is_open() -> None:
    token = "aws:ec2/instance:Instance"
    assert not found(token, ami="ami-1", instanceType="p9.48xlarge")
    assert list(found(token, ami="ami-1", instanceType=4)) == ["instanceType"]


def test_unknown_type_is_refused_with_the_nearest_ones() -> None:
    (problem,) = checker("aws").resource("aws:ec2/subnett:Subnet", {})
    assert "did you mean" in problem.reason
    assert "aws:ec2/subnet:Subnet" in problem.reason


def test_text_or_document_takes_both_and_checks_the_document() -> None:
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["a"]}]}
    assert not found("aws:iam/policy:Policy", policy=document)
    assert not found("aws:iam/policy:Policy", policy="{}")
    document["Statement"] = [{"Efect": "Allow"}]
    assert "policy.Statement[0].Efect" in found("aws:iam/policy:Policy", policy=document)
    assert list(found("aws:iam/policy:Policy", policy=3)) == ["policy"]


def test_assets_and_archives_are_told_apart() -> None:
    asset, archive = {SIGNATURE: ASSET, "text": "x"}, {SIGNATURE: ARCHIVE, "path": "x"}
    token = "aws:lambda/function:Function"
    assert not found(token, role="r", code=archive)
    assert list(found(token, role="r", code=asset)) == ["code"]
    upload = "aws:s3/bucketObjectv2:BucketObjectv2"
    assert not found(upload, bucket="b", source=asset)
    assert list(found(upload, bucket="b", source="x.txt")) == ["source"]


def test_number_or_text_takes_both() -> None:
    assert not found(DEPLOYMENT)
    spec = GOOD[DEPLOYMENT]["spec"]
    container = {"name": "c", "livenessProbe": {"httpGet": {"path": "/", "port": []}}}
    broken = {**spec, "template": {"spec": {"containers": [container]}}}
    assert list(found(DEPLOYMENT, spec=broken)) == [
        "spec.template.spec.containers[0].livenessProbe.httpGet.port"
    ]


def test_custom_kubernetes_kinds_are_taken_except_for_their_metadata() -> None:
    token = "kubernetes:karpenter.sh/v1:NodePool"
    inputs = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "spec": {"a": [1]}}
    assert not found(token, **inputs)
    assert list(found(token, **inputs, metadata={"nam": "x"})) == ["metadata.nam"]
    # A group of the API server itself is known: its kinds are misspelt, not custom.
    assert list(found("kubernetes:networking.k8s.io/v1:NetworkPolice")) == [""]


def test_query_with_an_unknown_argument_is_refused() -> None:
    (problem,) = checker("aws").query("aws:ec2/getSubnet:getSubnet", {"vpcID": "v"})
    assert problem.reason == "unknown property 'vpcID'; did you mean 'vpcId'?"
    assert not checker("aws").query("aws:ec2/getSubnet:getSubnet", {"vpcId": "v"})


def test_settings_of_a_provider_are_checked() -> None:
    assert not checker("aws").settings({"region": "me-central-1", "maxRetries": 3})
    assert [p.path for p in checker("aws").settings({"regoin": "x"})] == ["regoin"]


@pytest.mark.parametrize("token", GOOD)
def test_good_inputs_are_taken(token: str) -> None:
    assert not found(token)


@pytest.mark.parametrize("token", GOOD)
def test_every_mutant_of_good_inputs_is_caught(token: str) -> None:
    tables = Tables(token.split(":", maxsplit=1)[0])
    checks = Checker(tables)
    alive = [
        m for m in mutants(tables, token, GOOD[token]) if not checks.resource(token, m.inputs)
    ]
    assert not alive
    kinds = {mutant.kind for mutant in mutants(tables, token, GOOD[token])}
    assert {MISSPELT, WRONG_TYPE} <= kinds
    assert (WRONG_CHOICE in kinds) == (token in (ACCOUNT, POOL, DEPLOYMENT))
    assert (MISSING in kinds) == (token != BUCKET)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
SOME = ("aws:ec2/launchTemplate:LaunchTemplate", ACCOUNT, POOL, DEPLOYMENT, CLUSTER)


@given(data=st.data(), token=st.sampled_from(SOME))
def test_no_input_whatever_raises(data: st.DataObject, token: str) -> None:
    package = token.split(":", maxsplit=1)[0]
    known = Tables(package).resource(token)
    assert known is not None
    names = st.sampled_from(sorted(known.inputs.properties)) | st.text(max_size=6)
    inputs = data.draw(st.dictionaries(names, JSON, max_size=4))
    for problem in checker(package).resource(token, inputs):
        assert problem.reason


def valid(tables: Tables, kind: property_types.Type, depth: int) -> st.SearchStrategy[Any]:
    """Values that a type promises to take."""
    match kind:
        case property_types.Choice(_, values, _):
            return st.sampled_from(values)
        case property_types.ListOf(item):
            return st.lists(valid(tables, item, depth), max_size=2)
        case property_types.MapOf(item):
            return st.dictionaries(st.text(max_size=4), valid(tables, item, depth), max_size=2)
        case property_types.Reference(name):
            return valid_object(tables, tables.objects[name], depth - 1)
        case property_types.Either(members):
            return st.one_of(*(valid(tables, member, depth) for member in members))
        case property_types.Scalar(name):
            return {
                "any": JSON,
                "string": st.text(max_size=4),
                "integer": st.integers(),
                "number": st.floats() | st.integers(),
                "boolean": st.booleans(),
                "asset": st.just({SIGNATURE: ASSET}),
                "archive": st.just({SIGNATURE: ARCHIVE}),
            }[name]


def valid_object(
    tables: Tables, kind: property_types.ObjectType, depth: int
) -> st.SearchStrategy[dict[str, Any]]:
    required = {n: p for n, p in kind.properties.items() if p.required}
    optional = {n: p for n, p in kind.properties.items() if not p.required} if depth > 0 else {}
    return st.deferred(
        lambda: st.fixed_dictionaries(
            {n: valid(tables, p.type, depth) for n, p in required.items()},
            optional={
                n: st.just(UNKNOWN) | st.none() | valid(tables, p.type, depth)
                for n, p in optional.items()
            },
        )
    )


@pytest.mark.parametrize("token", SOME)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_whatever_the_types_promise_is_taken(token: str, data: st.DataObject) -> None:
    tables = Tables(token.split(":", maxsplit=1)[0])
    known = tables.resource(token)
    assert known is not None
    inputs = data.draw(valid_object(tables, known.inputs, 2))
    assert not Checker(tables).resource(token, inputs)


def pod(resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a", "resources": resources}], **more}}


@pytest.mark.parametrize(
    "inputs",
    [
        pod({"limits": {"cpu": 2, "nvidia.com/gpu": 1}, "requests": {"cpu": 0.5}}),
        pod({}, volumes=[{"name": "m", "emptyDir": {"sizeLimit": 1024}}]),
    ],
)
def test_quantities_may_be_numbers(inputs: dict[str, Any]) -> None:
    assert not found("kubernetes:core/v1:Pod", **inputs)


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        (pod({"limits": {"cpu": True}}), "spec.containers[0].resources.limits.cpu"),
        (pod({"limits": {"cpu": ["2"]}}), "spec.containers[0].resources.limits.cpu"),
        (pod({}, nodeSelector={"max": 1}), "spec.nodeSelector.max"),
        (pod({}, nodeSelector={"limits.cpu": 1}), 'spec.nodeSelector["limits.cpu"]'),
        (pod({}, schedulerName=1), "spec.schedulerName"),
    ],
)
def test_other_texts_may_not(inputs: dict[str, Any], path: str) -> None:
    assert list(found("kubernetes:core/v1:Pod", **inputs)) == [path]
