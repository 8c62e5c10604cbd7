"""Every type that the table knows passes with plausible inputs, and answers like Azure."""

from __future__ import annotations

import re
from typing import Any

import pytest

from falaj.sandbox.clouds.azure import MODEL, checks, kinds, naming, registry, relations
from falaj.sandbox.clouds.azure.resources import shape

assert registry.SERVICES

ARM = re.compile(
    r"/subscriptions/[0-9a-f-]{36}(/resourceGroups/[-\w._()]+)?"
    r"(/providers/[A-Za-z.]+(/[A-Za-z]+/[^/\s]+)+)*"
)


def test_no_row_of_the_table_is_left_untried(all_samples: Any) -> None:
    tried = {resource.token for resource in all_samples.made.values()}
    assert {kind.token for kind in kinds.all_kinds()} - tried == set()


def test_every_id_is_one_of_resource_manager(all_samples: Any) -> None:
    for key, resource in all_samples.made.items():
        assert ARM.fullmatch(resource.id), (key, resource.id)
        assert naming.parse(resource.id), key
        assert resource.id.startswith(f"/subscriptions/{naming.SUBSCRIPTION}")


def test_every_type_is_in_the_sdk_with_the_inputs_of_its_path() -> None:
    for kind in kinds.all_kinds():
        known = shape(kind.token)
        assert known is not None, kind.token
        group = {"resourceGroupName"} if kind.is_in_group else set()
        assert {*kind.parameters, *group} <= known.inputs, kind.token
        # The eligibility of roles is the provider's own work: it has no version of the API.
        is_own = "PimRole" in kind.token
        assert is_own or re.fullmatch(r"\d{4}-\d{2}-\d{2}(-preview)?", known.api_version)


def test_replacements_name_inputs_of_the_sdk() -> None:
    for kind in kinds.all_kinds():
        known = shape(kind.token)
        tops = {path.split(".")[0] for path in kind.replaces}
        assert known is not None
        assert tops <= known.inputs, (kind.token, tops - known.inputs)


def test_outputs_are_those_of_the_sdk_and_never_change(all_samples: Any) -> None:
    for key, made in all_samples.made.items():
        known = shape(made.token)
        again = MODEL.outputs(
            made.token,
            made.id,
            {**made.inputs},
            {"location": "uaenorth"},
            all_samples.sandbox.store,
        )
        computed = set(again) - set(made.inputs)
        assert known is not None
        assert computed <= known.outputs | known.inputs, (key, computed - known.outputs)
        if "name" not in known.inputs and "name" in known.outputs:
            assert made.outputs["name"] == made.id.rpartition("/")[2]


@pytest.mark.parametrize(
    ("key", "path", "expected"),
    [
        ("vault", ("properties", "vaultUri"), r"https://vault-1\.vault\.azure\.net/"),
        ("key", ("keyUriWithVersion",), r"https://vault-1\.vault\.azure\.net/keys/disks/[0-9a-f]{32}"),
        ("hsm", ("properties", "hsmUri"), r"https://hsm-1\.managedhsm\.azure\.net/"),
        ("account", ("primaryEndpoints", "blob"), r"https://datasets1\.blob\.core\.windows\.net/"),
        ("account", ("primaryLocation",), "uaenorth"),
        ("registry", ("loginServer",), r"images1\.azurecr\.io"),
        ("cluster", ("privateFQDN",), r"cluster-\w{8}\..{36}\.privatelink\.uaenorth\.azmk8s\.io"),
        ("cluster", ("oidcIssuerProfile", "issuerURL"), r"https://uaenorth\.oic\..+\.com/.+/.+/"),
        ("cluster", ("nodeResourceGroup",), "MC_rg_cluster_uaenorth"),
        ("identity", ("principalId",), r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ("logs", ("customerId",), r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ("zone", ("location",), "global"),
        ("environment", ("defaultDomain",), r"sandbox-\w{8}\.uaenorth\.azurecontainerapps\.io"),
        ("app", ("latestRevisionFqdn",), r"inference--\w{7}\.internal\.sandbox-.+"),
        ("rg", ("type",), "Microsoft.Resources/resourceGroups"),
        ("nsg", ("location",), "uaenorth"),
        ("subnet", (), ""),
    ],
)  # fmt: skip
def test_computed_values_look_like_azures(
    all_samples: Any, key: str, path: tuple[str, ...], expected: str
) -> None:
    if not path:
        address = all_samples.out("balancer", "frontendIPConfigurations")[0]["privateIPAddress"]
        assert address.startswith(("10.0.0.", "10.0.1.", "10.0.2.", "10.0.3."))
        return
    assert re.fullmatch(expected, all_samples.out(key, *path))


def test_tables_speak_of_known_types_and_name_their_sources() -> None:
    known = {kind.token for kind in kinds.all_kinds()}
    assert set(checks.enumerated_tokens()) <= known
    assert set(relations.quotas()) <= known
    assert all(quota.source and quota.most > 0 for quota in relations.quotas().values())
    for name in ("enums", "regions", "private_link"):
        assert kinds.load_table(name)["source"]


def test_a_row_cannot_be_taken_into_the_table_twice() -> None:
    with pytest.raises(ValueError, match="already"):
        kinds.add_kinds(kinds.all_kinds()[:1])
