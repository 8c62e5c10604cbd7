"""The add-on that writes the configuration of the cluster's resolver."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.components.kubernetes._objects import key_of, type_of
from falaj.components.kubernetes.addons.installation import manifests
from falaj.components.kubernetes.platform import PlatformSpec
from falaj.components.specification.argument_errors import InvalidArgumentsError
from tests.components.kubernetes.platforms import findings, program, spec

RULES = {"kubernetes-dns-refusal", "kubernetes-dns-forward"}


def written(of: PlatformSpec) -> dict[str, Any]:
    """The resolver's ConfigMap; empty where none is written."""
    return {
        key_of(each): each
        for each in manifests(of)
        if each["kind"] == "ConfigMap" and each["metadata"].get("namespace") == "kube-system"
    }


def judged(of: PlatformSpec) -> set[str]:
    return {rule for rule, _, _ in findings(program(of))} & RULES


def test_aks_has_it_by_default() -> None:
    of = spec("aks", allowed_domains=["login.microsoftonline.com"])
    ((key, found),) = written(of).items()
    assert key == "ConfigMap/kube-system/coredns-custom"
    # The map is AKS' own, and stays when the platform goes.
    assert type_of(found) == "kubernetes:core/v1:ConfigMapPatch"
    assert set(found["data"]) == {"falaj.server", "falaj.override"}
    for domain in ("vault.azure.net", "login.microsoftonline.com", "registry.acme.example"):
        assert f"{domain}:53 " in found["data"]["falaj.server"]
    assert "rcode NXDOMAIN" in found["data"]["falaj.override"]
    assert not judged(of)


@pytest.mark.parametrize("place", ["eks", "existing"])
def test_others_have_none_unasked(place: str) -> None:
    assert not written(spec(place))


def test_an_audit_is_found_by_the_packs() -> None:
    of = spec("aks", {"resolver": {"mode": "audit"}})
    assert judged(of) == {"kubernetes-dns-refusal"}


def test_left_out() -> None:
    assert not written(spec("aks", {"resolver": False}))


def test_a_cluster_by_kubeadm_is_taken_over_if_asked() -> None:
    options = {"config_map": "coredns", "domains": [".corp.example"], "cluster_domain": "acme.lan",
               "searched_domains": ["nodes.corp.example"]}  # fmt: skip
    of = spec("existing", {"resolver": options})
    ((key, found),) = written(of).items()
    assert key == "ConfigMap/kube-system/coredns"
    text = found["data"]["Corefile"]
    assert text.startswith("acme.lan:53 ")
    assert "\ncorp.example:53 {" in text
    assert "\nnodes.corp.example:53 {" in text
    assert found["metadata"]["annotations"]["pulumi.com/patchForce"] == "true"
    assert not judged(of)


@pytest.mark.parametrize(
    ("place", "options", "told"),
    [
        ("existing", {}, "addons.resolver.config_map: missing"),
        ("existing", {"config_map": "kube-dns"}, "coredns-custom, coredns"),
        ("aks", {"config_map": "coredns"}, "no meaning on aks"),
        ("aks", {"mode": "open"}, "enforce, audit"),
        ("aks", {"domains": ["https://a.example"]}, "a domain of two labels or more"),
        ("aks", {"domains": ["com"]}, "a domain of two labels or more"),
        ("aks", {"domains": ["a.example {\n}\n. "]}, "a domain of two labels or more"),
        ("aks", {"domains": "a.example"}, "a list of texts"),
        ("aks", {"searched_domains": [".a.example"]}, "searched_domains[0]"),
        ("aks", {"domain": []}, "did you mean"),
        ("eks", {}, "can't be installed on eks"),
    ],
)
def test_options_that_cant_be(place: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentsError) as refused:
        spec(place, {"resolver": options})
    assert told in str(refused.value)
