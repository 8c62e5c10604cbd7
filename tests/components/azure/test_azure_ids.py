"""Resource ids and key identifiers: what is refused, and that parts come out as they went in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.azure._ids import IdError, key_identifier, resource_id

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
KINDS = st.sampled_from(
    [
        "Microsoft.ContainerService/managedClusters",
        "Microsoft.KeyVault/vaults/secrets",
        "Microsoft.Storage/storageAccounts/blobServices/containers",
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "acme",
        "/subscriptions/s",
        "/subscriptions/s/resourceGroups/g",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v/secrets/x",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/vaults/v",
    ],
)
def test_what_is_no_vault(text: str) -> None:
    with pytest.raises(IdError, match=r"allowed: /subscriptions/.*/vaults/<name>"):
        resource_id(text, "Microsoft.KeyVault/vaults")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://v.vault.azure.net/keys/k",
        "https://v.vault.azure.net/secrets/k",
        "https://v.vault.azure.com/keys/k",
        "https://v.vault.azure.net/keys/k/latest",
        "https://v.vault.azure.net/keys/",
    ],
)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(IdError, match="allowed: https://<vault>"):
        key_identifier(text)


@given(KINDS, st.lists(NAMES, min_size=3, max_size=3), NAMES, st.booleans())
def test_parts_come_out_as_they_went_in(
    kind: str, names: list[str], group: str, shout: bool
) -> None:
    provider, *types = kind.split("/")
    path = "".join(f"/{one}/{name}" for one, name in zip(types, names, strict=False))
    root = f"/subscriptions/s-1/resourceGroups/{group}/providers/{provider}"
    found = resource_id(root + path, kind.upper() if shout else kind)
    assert (found.subscription, found.group) == ("s-1", group)
    assert found.names == tuple(names[: len(types)])
    assert found.name == names[len(types) - 1]
    assert found.parent == f"{root}/{types[0]}/{names[0]}"


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused_in_words(text: str) -> None:
    for parse in (key_identifier, lambda t: resource_id(t, "Microsoft.KeyVault/vaults")):
        try:
            parse(text)
        except IdError as error:
            assert repr(text) in str(error)


@pytest.mark.parametrize("version", [None, "0" * 32])
def test_keys_of_vaults_and_of_hardware_modules(version: str | None) -> None:
    end = f"/{version}" if version else ""
    vault = key_identifier(f"https://acme.vault.azure.net/keys/data{end}")
    assert (vault.vault, vault.name, vault.version) == ("acme", "data", version)
    assert not vault.hardware_module
    assert key_identifier(f"https://acme.managedhsm.azure.net/keys/data{end}").hardware_module
