"""Whatever is asked for: nothing abroad, nothing open, nobody almighty, everything labelled."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from falaj.components import catalogue
from falaj.components.aws import (
    AuditTrail,
    Budget,
    Identity,
    KeyRing,
    Network,
    ObjectStore,
    Registry,
    TrainingFileSystem,
)
from tests.examples import examples

ALLOWED = {each.region for each in catalogue.all_places() if each.cloud == "aws"}
REGION = re.compile(r"\b(?:af|ap|ca|cn|eu|il|me|mx|sa|us)(?:-gov)?-[a-z]+-\d\b")
ZONES = ["mec1-az1", "mec1-az2", "mec1-az3"]
USERS = [f"arn:aws:iam::000000000000:user/u{number}" for number in range(5)]

SETTINGS = st.fixed_dictionaries(
    {
        "placed": st.fixed_dictionaries(
            {
                "region": st.sampled_from(sorted(ALLOWED)),
                "acknowledge_degraded": st.just("2026-04-30"),
                "tenant": st.from_regex(r"\A[a-z][a-z0-9]{1,18}\Z"),
                "owner": st.from_regex(r"\A[A-Za-z0-9 .:/=+@_]{1,20}\Z").filter(str.strip),
                "data_class": st.sampled_from(["public", "internal", "restricted"]),
                "cost_center": st.from_regex(r"\A[a-z0-9]{1,12}\Z"),
                "environment": st.sampled_from(["development", "test", "production"]),
            }
        ),
        "network": st.fixed_dictionaries(
            {
                "cidr": st.sampled_from(["10.0.0.0/16", "172.16.4.0/22", "192.168.0.0/20"]),
                "zones": st.lists(st.sampled_from(ZONES), min_size=1, unique=True),
                "flow_log_days": st.sampled_from([1, 30, 3653]),
            },
            optional={
                "organization_id": st.just("o-a1b2c3d4e5"),
                "egress_domains": st.just(["models.example.ae", ".acme.example"]),
            },
        ),
        "keys": st.fixed_dictionaries(
            {"rotation_days": st.integers(90, 2560)},
            optional={"administrators": st.lists(st.sampled_from(USERS), unique=True)},
        ),
        "store": st.fixed_dictionaries(
            {
                "audit_retention_days": st.integers(1, 36500),
                "old_version_days": st.integers(1, 365),
            }
        ),
        "registry": st.fixed_dictionaries(
            {
                "upstreams": st.lists(
                    st.sampled_from(["public.ecr.aws", "quay.io", "registry.k8s.io"]),
                    unique=True,
                ),
                "keep_images": st.integers(1, 10000),
            }
        ),
        "identity": st.fixed_dictionaries(
            {
                "members": st.dictionaries(
                    st.sampled_from(["trainer", "auditor", "provisioner"]),
                    st.just([]),
                ).map(lambda duties: {duty: [USERS[i]] for i, duty in enumerate(duties)}),
                "require_mfa": st.booleans(),
                "session_minutes": st.integers(60, 720),
            }
        ),
        "trail": st.fixed_dictionaries(
            {"retention_days": st.sampled_from([30, 400])},
            optional={"alert_emails": st.just(["a@b.example"])},
        ),
        "files": st.fixed_dictionaries(
            {
                "capacity_gib": st.sampled_from([1200, 2400, 9600]),
                "homes": st.booleans(),
            }
        ),
    }
)


def foundation(chosen: Mapping[str, Any]) -> Any:
    """Builds everything that a foundation has, wired as a stack wires it."""

    def build(opts: pulumi.ResourceOptions) -> None:
        placed = chosen["placed"]
        keys = KeyRing("keys", {**placed, **chosen["keys"]}, opts).key_ids
        network = Network(
            "core", {**placed, **chosen["network"], "log_key_id": keys["logs"]}, opts
        )
        store = ObjectStore(
            "store",
            {
                **placed,
                **chosen["store"],
                "data_key_id": keys["data"],
                "log_key_id": keys["logs"],
                "state_key_id": keys["state"],
            },
            opts,
        )
        registry = Registry(
            "images",
            {**placed, **chosen["registry"], "registry_key_id": keys["registry"]},
            opts,
        )
        AuditTrail(
            "audit",
            {
                **placed,
                **chosen["trail"],
                "log_key_id": keys["logs"],
                "audit_bucket_name": store.bucket_names["audit"],
                "audit_store_id": store.store_ids["audit"],
            },
            opts,
        )
        Identity(
            "people",
            {
                **placed,
                **chosen["identity"],
                "bucket_ids": store.bucket_ids,
                "repository_ids": registry.repository_ids,
                "key_ids": keys,
            },
            opts,
        )
        Budget("month", {**placed, "monthly_usd": 5, "emails": ["a@b.example"]}, opts)
        TrainingFileSystem(
            "files",
            {
                **placed,
                **chosen["files"],
                "zones": chosen["network"]["zones"],
                "data_key_id": keys["data"],
                "network_id": network.network_id,
                "storage_subnet_ids": network.storage_subnet_ids,
                "security_group_id": network.security_group_ids["storage"],
            },
            opts,
        )

    return build


def texts(value: Any) -> Iterator[str]:
    """Every text in a property, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)


@cache
def takes_tags(token: str) -> bool:
    """Whether the SDK's class of a resource has tags."""
    _, path, name = token.split(":")
    module = getattr(aws, path.split("/", maxsplit=1)[0])
    return "tags" in inspect.signature(getattr(module, name)._internal_init).parameters


def upright(made: Any, placed: Mapping[str, Any]) -> None:
    """The invariants of everything that was declared."""
    resources = [each for each in made.resources if each.type.startswith("aws:")]
    assert resources
    for each in resources:
        for text in texts(each.inputs):
            assert set(REGION.findall(text)) <= ALLOWED, (each.type, each.name, text)
            assert "::/0" not in text
        if each.type != "aws:ec2/route:Route":
            # Routes of the way out, which are there only when domains are named.
            assert "0.0.0.0/0" not in set(texts(each.inputs)), each.name
        assert each.provider, f"{each.name} has no provider of its own"
        if takes_tags(each.type):
            tags = each.inputs["tags"]
            for key in ("owner", "tenant", "cost-center", "data-class", "environment"):
                assert tags[f"falaj:{key}"] == placed[key.replace("-", "_")].strip()
    for _, _, document in made.documents():
        for statement in document["Statement"]:
            if statement["Effect"] == "Allow":
                assert not ("*" in statement["Action"] and "*" in statement.get("Resource", []))
    kept = placed["environment"] == "production"
    stateful = ("aws:kms/key:Key ", "aws:s3/bucket:Bucket ", "aws:efs/", "aws:fsx/", "aws:ecr/r")
    for name, options in made.kept().items():
        if name.startswith(stateful) and name.split(" ")[0].endswith(
            (":Key", ":Bucket", "FileSystem", ":Repository")
        ):
            assert options == (kept, kept), name


@pytest.mark.slow
@settings(
    max_examples=examples(6),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(chosen=SETTINGS)
def test_a_foundation_is_upright_for_any_settings(deploy: Any, chosen: dict[str, Any]) -> None:
    made = deploy(foundation(chosen))
    upright(made, chosen["placed"])
    asked = "egress_domains" in chosen["network"]
    assert bool(made.of_type("aws:ec2/route:Route")) == asked
    assert bool(made.of_type("aws:ec2/internetGateway:InternetGateway")) == asked


def test_what_is_not_upright_is_seen(deploy: Any, placed: dict[str, Any]) -> None:
    def build(opts: pulumi.ResourceOptions) -> None:
        own = pulumi.ResourceOptions(provider=opts.providers[0])  # pyright: ignore
        aws.ec2.Vpc("bare", cidr_block="10.0.0.0/16", opts=own)

    made = deploy(build)
    with pytest.raises(KeyError, match="tags"):
        upright(made, placed)
