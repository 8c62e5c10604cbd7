"""Every stack as a whole, without an engine: what it names and grants, what is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falaj.components.catalogue.tag_names import tag_name
from falaj.sandbox.inprocess import Sandbox, SandboxMocks
from falaj.sandbox.schema import Tables
from falaj.stacks.errors import SettingsError
from falaj.wire import Unknown
from tests.examples import examples
from tests.sandbox.mutants import mutants
from tests.stacks.in_mocks import SIX, declare, shipped

ALLOWED = {"me-central-1", "uaenorth", "uaecentral"}
#: How the clouds write regions, wherever they are: in ARNs, hosts, locations.
AWS_REGION = re.compile(r"\b(?:af|ap|ca|cn|eu|il|me|mx|sa|us)-(?:[a-z]+-)?[a-z]+-\d\b")
AZURE_REGIONS = re.compile(
    r"\b(westeurope|northeurope|eastus2?|westus[23]?|centralus|southcentralus|uksouth|ukwest|"
    r"francecentral|germanywestcentral|switzerlandnorth|qatarcentral|centralindia|southindia|"
    r"southeastasia|eastasia|australiaeast|japaneast|brazilsouth|canadacentral|swedencentral|"
    r"southafricanorth|israelcentral|saudiarabiaeast|norwayeast|koreacentral|italynorth)\b",
    re.IGNORECASE,
)
PACKAGES = ("aws", "azure-native")


@pytest.fixture(scope="module")
def six() -> dict[str, SandboxMocks]:
    return {stack: declare(shipped(stack), stack) for stack in SIX}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def foreign(mocks: SandboxMocks) -> list[str]:
    found: list[str] = []
    for resource in mocks.resources:
        for text in texts(resource.inputs):
            named = {*AWS_REGION.findall(text), *map(str.lower, AZURE_REGIONS.findall(text))}
            if named - ALLOWED:
                found.append(f"{resource.type} {resource.name}: {text}")
    return found


def documents(mocks: SandboxMocks) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in mocks.resources:
        for text in texts(resource.inputs):
            if text.startswith("{") and '"Statement"' in text:
                yield resource.name, json.loads(text)


def grants_everything(document: Mapping[str, Any]) -> bool:
    def has(value: Any) -> bool:
        return value == "*" or (isinstance(value, list) and "*" in value)

    return any(
        statement["Effect"] == "Allow"
        and has(statement.get("Action"))
        and has(statement.get("Resource"))
        for statement in document["Statement"]
    )


def cloud_resources(mocks: SandboxMocks) -> list[Any]:
    return [r for r in mocks.resources if r.custom and r.type.split(":")[0] in PACKAGES]


@pytest.mark.parametrize("stack", SIX)
def test_a_shipped_stack_stays_in_the_country(six: dict[str, SandboxMocks], stack: str) -> None:
    assert len(cloud_resources(six[stack])) > 30
    assert not foreign(six[stack])


@pytest.mark.parametrize("stack", SIX)
def test_everything_has_an_explicit_provider(six: dict[str, SandboxMocks], stack: str) -> None:
    assert not [r.name for r in cloud_resources(six[stack]) if not r.provider]


@pytest.mark.parametrize("stack", SIX)
def test_everything_that_takes_tags_has_all_of_them(
    six: dict[str, SandboxMocks], stack: str
) -> None:
    cloud = stack.partition("-")[0]
    wanted = {tag_name(cloud, name) for name in ("owner", "tenant", "data-class", "cost-center")}
    missing: list[str] = []
    for package in PACKAGES:
        tables = Tables(package)
        for resource in cloud_resources(six[stack]):
            if not resource.type.startswith(f"{package}:"):
                continue
            shape = tables.resource(resource.type)
            if shape is None or "tags" not in shape.inputs.properties:
                continue
            tags: Any = resource.inputs.get("tags") or {}
            # Scaling groups have a list of them.
            found = {tag["key"] for tag in tags} if isinstance(tags, list) else set(tags)
            if not wanted <= found:
                missing.append(f"{resource.type} {resource.name}")
    assert not missing


@pytest.mark.parametrize("stack", SIX)
def test_no_document_allows_everything(six: dict[str, SandboxMocks], stack: str) -> None:
    assert not [name for name, document in documents(six[stack]) if grants_everything(document)]


def test_the_check_for_regions_finds_one_abroad(six: dict[str, SandboxMocks]) -> None:
    mocks = six["aws-foundation"]
    resource = cloud_resources(mocks)[0]
    wrong = SandboxMocks()
    wrong.resources = [
        type(resource)(
            resource.type, "x", {"a": [{"b": "arn:aws:s3:eu-west-1:1:x"}]}, "p", "i", {}, True
        )
    ]
    assert foreign(wrong)


CIDRS = st.builds(
    lambda second, prefix: f"10.{second}.0.0/{prefix}", st.integers(0, 242), st.integers(16, 20)
)
COMMON = {
    "falaj:tenant": "acme",
    "falaj:owner": "a@b.ae",
    "falaj:costCenter": "7",
}
CLASSES = st.sampled_from(["public", "internal", "confidential"])
ENVIRONMENTS = st.sampled_from(["development", "test", "production"])


@st.composite
def foundations(draw: st.DrawFn, cloud: str) -> dict[str, Any]:
    """Settings of any valid foundation."""
    domains = draw(st.lists(st.sampled_from(["example.ae", ".gov.ae"]), max_size=2, unique=True))
    config: dict[str, Any] = {
        **COMMON,
        "falaj:platform": cloud,
        "falaj:blueprint": "foundation",
        "falaj:dataClass": draw(CLASSES),
        "falaj:environment": draw(ENVIRONMENTS),
        "falaj:network": {
            "cidr": draw(CIDRS),
            "egressDomains": domains,
            "flowLogDays": draw(st.sampled_from([30, 90, 365])),
        },
        "falaj:keys": {
            "rotationDays": draw(st.integers(90, 730)),
            "deletionWindowDays": draw(st.integers(7, 30)),
        },
        "falaj:audit": {"threatDetection": draw(st.booleans())},
    }
    if cloud == "aws":
        config["falaj:acknowledgeDegraded"] = {
            "region": "me-central-1",
            "asOf": "2026-04-30",
            "for": "sandbox",
        }
        config["falaj:identity"] = {"sessionMinutes": draw(st.integers(60, 720))}
        config["falaj:network"]["zones"] = draw(
            st.lists(
                st.sampled_from(["mec1-az1", "mec1-az2", "mec1-az3"]), min_size=1, unique=True
            )
        )
    return config


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["aws", "azure"])
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_valid_foundation_leaves_the_country_or_allows_everything(
    cloud: str, data: st.DataObject
) -> None:
    mocks = declare(data.draw(foundations(cloud)))
    assert not foreign(mocks)
    assert not [name for name, document in documents(mocks) if grants_everything(document)]


POOLS = {
    "aws": [("H200", 8), ("L40S", 1), ("L40S", 4), ("L4", 1), ("A10G", 1), ("A10G", 8)],
    "azure": [("H200", 8), ("H100", 8), ("H100", 1), ("A100", 8), ("A10", 0.3333), ("A10", 1)],
}


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["aws", "azure"])
@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_valid_cluster_leaves_the_country_or_allows_everything(
    cloud: str, data: st.DataObject
) -> None:
    gpu, count = data.draw(st.sampled_from(POOLS[cloud]))
    most = data.draw(st.integers(1, 8))
    config = data.draw(foundations(cloud)) | {
        "falaj:blueprint": "cluster",
        "falaj:cpuPools": {"cpu": {"system": True, "vcpu": data.draw(st.sampled_from([4, 8]))}},
        "falaj:gpuPools": {
            "train": {
                "gpu": gpu,
                "count": count,
                "maxNodes": most,
                "minNodes": data.draw(st.integers(0, most)),
                "capacity": data.draw(st.sampled_from(["on-demand", "spot"])),
                "diskGib": data.draw(st.integers(100, 500)),
            }
        },
    }
    if cloud == "aws":
        config["falaj:network"]["zones"] = ["mec1-az1", "mec1-az2"]
    mocks = declare(config)
    assert not foreign(mocks)
    assert not [name for name, document in documents(mocks) if grants_everything(document)]


@pytest.mark.slow
def test_mistakes_in_any_resource_of_the_six_stacks_are_caught(
    six: dict[str, SandboxMocks], capsys: pytest.CaptureFixture[str]
) -> None:
    made: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    missed: set[str] = set()
    seen: set[str] = set()
    for package in PACKAGES:
        tables = Tables(package)
        sandbox = Sandbox(package, config={"region": "me-central-1", "location": "uaenorth"})
        for stack in SIX:
            for resource in cloud_resources(six[stack]):
                if not resource.type.startswith(f"{package}:"):
                    continue
                for mutant in mutants(tables, resource.type, resource.inputs):
                    path = re.sub(r"/\d+", "[]", mutant.path)
                    key = f"{resource.type} {path} {mutant.kind}"
                    if key in seen:
                        continue
                    seen.add(key)
                    made[mutant.kind] += 1
                    _, problems = sandbox.check(resource.type, resource.name, mutant.inputs)
                    if problems:
                        caught[mutant.kind] += 1
                    else:
                        missed.add(key)
    with capsys.disabled():
        shares = ", ".join(f"{kind} {caught[kind]}/{made[kind]}" for kind in sorted(made))
        print(f"\n  mistakes caught before anything is made: {shares}")
    assert min(made.values()) > 50
    assert not missed, "\n".join(sorted(missed))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {
                "falaj:inference": {
                    "model": "a",
                    "mode": "serverless",
                    "int8": "vnni",
                }
            },
            "falaj:inference.int8: given 'vnni'",
        ),
        ({"falaj:network": {"cidr": "8.8.8.0/20"}}, "falaj:network.cidr: given '8.8.8.0/20'"),
    ],
)
def test_what_a_component_would_refuse_is_said_before_anything_is_made(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        declare(shipped("aws-smb") | changes)
    assert said in str(caught.value)


def test_unknown_values_are_no_obstacle_in_a_preview() -> None:
    mocks = declare(shipped("azure-cluster"), preview=True)
    assert any(isinstance(value, Unknown) for r in mocks.resources for value in r.inputs.values())
