"""A platform's arguments: what is refused, and what can be left out."""

from __future__ import annotations

import inspect
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.kubernetes import platform
from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.installation import installations, manifests
from tests.components.kubernetes.platforms import DIGESTS, KEY, arguments, spec

#: Place, add-ons or other arguments, and what the refusal has to say.
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("eks", {"keuue": True}, {}, "addons.keuue: is not an add-on; did you mean 'kueue'?"),
    ("eks", {"argo-cd": True}, {}, "addons.argo-cd: is not an add-on; allowed: cert-manager,"),
    ("eks", {"kueue": {"ready_minute": 3}}, {}, "did you mean 'ready_minutes'?"),
    ("eks", {"jobset": {"replicas": 3}}, {}, "is not an option of jobset; allowed: none"),
    ("eks", {"kueue": "yes"}, {}, "given 'yes'; allowed: true, false or its options"),
    ("eks", {"kueue": {"ready_minutes": 0}}, {}, "given 0; allowed: a whole number from 1"),
    ("eks", {"kueue": {"ready_minutes": True}}, {}, "allowed: a whole number from 1 to 240"),
    ("eks", {"kueue": {"worker_lost_minutes": 0}}, {}, "allowed: a whole number from 1 to 1440"),
    ("eks", {"kueue": {"origin": "Abu Dhabi"}}, {}, "origin: given 'Abu Dhabi'; allowed: at"),
    ("eks", {"jobset": False}, {}, "addons.trainer: needs 'jobset', which is left out"),
    ("eks", {"cert-manager": False}, {}, "addons.kserve: needs 'cert-manager'"),
    ("eks", {"cert-manager": False}, {}, "addons.envoy-gateway: needs 'cert-manager'"),
    ("eks", {"envoy-gateway": False}, {}, "addons.kserve: needs 'envoy-gateway'"),
    ("eks", {"monitoring": False}, {}, "addons.keda: needs 'monitoring'"),
    ("aks", {"efa": True}, {}, "addons.efa: can't be installed on aks; allowed on eks"),
    ("eks", {"network-operator": True}, {}, "can't be installed on eks; allowed on aks, existing"),
    ("aks", {"gpu-operator": False}, {}, "addons.network-operator: needs 'gpu-operator'"),
    ("eks", {"gpu-operator": {"driver": True}}, {}, "on eks, whose node images have it"),
    ("eks", {"gpu-operator": {"driver_packages": "a"}}, {}, "the operator installs no driver"),
    ("existing", {"gpu-operator": True}, {}, "addons.gpu-operator.driver_packages: missing"),
    ("eks", {"gpu-operator": {"mig_strategy": "none"}}, {}, "allowed: mixed, single"),
    ("aks", {"external-secrets": True}, {}, "addons.external-secrets.vault_url: missing"),
    ("aks", {"external-secrets": {"vault_url": "http://a", "client_id": "c"}}, {},
     "allowed: an address that starts with https://"),
    ("eks", {"external-secrets": {"role": "a"}}, {}, "role: has no meaning on eks; leave it out"),
    ("eks", {"velero": True}, {}, "addons.velero.bucket: missing; needed on eks; or leave the"),
    ("eks", {"velero": {"bucket": "b", "key": KEY, "region": "eu-west-1"}}, {}, "eu-west-1"),
    ("eks", {"velero": {"bucket": "b", "key": KEY.replace("me-central", "us-east")}}, {},
     "allowed: the ARN of a KMS key in me-central-1"),
    ("eks", {"velero": {"bucket": "b", "key": KEY, "schedule": "daily"}}, {}, "five fields"),
    ("existing", {"velero": {"bucket": "b", "endpoint": "http://s3", "credentials_secret": "c"}},
     {}, "given 'http://s3'; allowed: an address that starts with https://"),
    ("existing", {"velero": {"storage_account": "a"}}, {}, "has no meaning on existing"),
    ("eks", {"opencost": True}, {}, "addons.opencost.cpu: missing; the catalogue has no"),
    ("eks", {"opencost": {"cpu": -1}}, {}, "given -1; allowed: USD per hour, 0 or more"),
    ("aks", {"opencost": {"gpu_model": "H900"}}, {}, "addons.opencost.gpu: missing"),
    ("eks", {"kserve": {"domain": "ml.acme.example"}}, {}, "addons.kserve.gateway: missing"),
    ("eks", {"kserve": {"domain": "a.example", "gateway": "a"}}, {}, "allowed: namespace/name"),
    ("eks", {"cert-manager": {"ca_secret": "a", "ca_years": 3}}, {}, "leave one out"),
    ("eks", {"monitoring": {"retention_days": 0}}, {}, "a whole number from 1 to 400"),
    ("eks", {}, {"control_plane_cidrs": ["0.0.0.0/0"]}, "nothing public is let in"),
    ("eks", {}, {"control_plane_cidrs": []}, "at least one private range"),
    ("eks", {}, {"region": "eu-west-1"}, "eu-west-1"),
    ("eks", {}, {"images": {}}, "images.falaj-training: no digest of falaj/training:"),
    ("eks", {}, {"images": {**DIGESTS, "kueue": "latest"}}, "images.kueue: given 'latest'"),
    ("eks", {}, {"adons": {}}, "did you mean 'addons'?"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "addons", "changes", "reason"), REFUSED)
def test_is_refused(
    place: str, addons: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        platform.check("platform", arguments(place, addons, **changes))
    assert reason in str(refused.value)


def test_add_ons_are_given_by_name() -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        platform.check("platform", {**arguments("eks"), "addons": ["kueue"]})
    assert "options, true or false by name" in str(refused.value)


def test_every_add_on_is_named_where_they_are_chosen() -> None:
    text = inspect.getsource(platform.PlatformArgs)
    assert [each for each in ADDONS if f"``{each}``" not in text] == []


def test_all_problems_are_named_at_once() -> None:
    wrong = {"keuue": True, "velero": {"bucket": ""}, "kueue": {"ready_minutes": 999}}
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        spec("eks", wrong)
    assert all(each in str(refused.value) for each in ("keuue", "velero.bucket", "ready_minutes"))


def test_nothing_needs_what_comes_after_it() -> None:
    names = list(ADDONS)
    for name, addon in ADDONS.items():
        for other in (*addon.needs, *addon.follows):
            assert names.index(other) < names.index(name), f"{name} comes before {other}"


@pytest.mark.parametrize("left_out", sorted(ADDONS))
def test_an_add_on_that_is_left_out_leaves_nothing_behind(left_out: str) -> None:
    without = {left_out: False}
    for name, addon in ADDONS.items():
        if left_out in addon.needs or any(without.get(each) is False for each in addon.needs):
            without[name] = False
    found = spec("aks" if left_out == "network-operator" else "eks", without)
    names = {each.name for name in without for each in ADDONS[name].namespaces}
    for each in manifests(found):
        assert each["metadata"].get("namespace") not in names
        assert each["metadata"]["name"] not in names
        if each["kind"] == "NetworkPolicy":
            assert not any(repr(name) in repr(each["spec"]) for name in names)
    assert not {each.addon for each in installations(found)} & set(without)
    kinds = {each["kind"] for each in manifests(found)}
    if left_out == "cert-manager":
        assert not kinds & {"Certificate", "ClusterIssuer"}
    if left_out == "monitoring":
        assert not kinds & {"PrometheusRule", "PodMonitor", "ServiceMonitor"}
    if left_out == "external-secrets":
        assert not kinds & {"ExternalSecret", "Password", "ClusterSecretStore"}


@given(st.dictionaries(st.sampled_from([*ADDONS, "x", "kuee"]), st.booleans() | st.none()))
def test_every_choice_is_installed_or_refused(chosen: dict[str, Any]) -> None:
    try:
        found = spec("eks", chosen)
    except pulumi.InputPropertiesError:
        return
    for name in found.addons:
        assert all(found.has(needed) for needed in ADDONS[name].needs)
        assert chosen.get(name, True) is not False
    assert len(list(installations(found))) == len(found.addons)
