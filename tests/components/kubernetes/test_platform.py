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
from tests.components.kubernetes.platforms import DIGESTS, HOOK, KEY, MAIL, PAGER, arguments, spec

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
    *(
        ("eks", {"velero": {"bucket": "b", "key": KEY, **given}}, {}, says)
        for given, says in (
            ({"recovery_point_hours": 0}, "a whole number from 1 to 744"),
            ({"rehearsal": True}, "an object with minutes, namespaces, schedule, within_days"),
            ({"rehearsal": {"shedule": "0 2 * * 5"}}, "did you mean 'schedule'?"),
            ({"rehearsal": {"schedule": "@weekly"}}, "velero.rehearsal.schedule: given '@weekly'"),
            ({"rehearsal": {"schedule": "0 2 * * ;"}}, "allowed: five fields"),
            ({"rehearsal": {"minutes": 241}}, "a whole number from 1 to 240"),
            ({"rehearsal": {"within_days": "ten"}}, "a whole number from 1 to 400"),
            ({"rehearsal": {"namespaces": "acme-serving"}}, "velero.rehearsal.namespaces: given"),
            ({"rehearsal": {"namespaces": ["Acme"]}}, "namespaces[0]: given 'Acme'"),
            ({"rehearsal": {"namespaces": ["*"]}}, "namespaces[0]: given '*'"),
            ({"rehearsal": {"namespaces": ["a", "a"]}}, "namespaces[1]: given 'a'; allowed: each"),
            ({"rehearsal": {"namespaces": [f"a{n}" for n in range(51)]}}, "51 of them; allowed:"),
            ({"rehearsal": {"namespaces": ["kube-system"]}}, "none of restore-rehearsal,"),
            ({"rehearsal": {"namespaces": ["velero"]}}, "given 'velero'; allowed: namespaces of"),
            ({"rehearsal": {"namespaces": ["restore-rehearsal"]}}, "namespaces of one's own"),
        )
    ),
    ("existing", {"velero": {"bucket": "b", "endpoint": "http://s3", "credentials_secret": "c"}},
     {}, "given 'http://s3'; allowed: an address that starts with https://"),
    ("existing", {"velero": {"storage_account": "a"}}, {}, "has no meaning on existing"),
    ("eks", {"opencost": True}, {}, "addons.opencost.cpu: missing; the catalogue has no"),
    ("eks", {"opencost": {"cpu": -1}}, {}, "given -1; allowed: a number of at least 0 USD"),
    ("aks", {"opencost": {"gpu_model": "H900"}}, {}, "addons.opencost.gpu: missing"),
    ("eks", {"kserve": {"domain": "ml.acme.example"}}, {}, "addons.kserve.gateway: missing"),
    ("eks", {"kserve": {"domain": "a.example", "gateway": "a"}}, {}, "allowed: namespace/name"),
    ("eks", {"cert-manager": {"ca_secret": "a", "ca_years": 3}}, {}, "leave one out"),
    ("eks", {"monitoring": {"retention_days": 0}}, {}, "a whole number from 1 to 400"),
    *(
        ("eks", {"monitoring": {"receivers": given}}, {}, says)
        for given, says in (
            ([HOOK], "monitoring.receivers: given [{"),
            ({"nobody": HOOK}, "given 'nobody', which takes what nobody asks for; rename it"),
            ({"On call": HOOK}, "given 'On call'; allowed: at most 63 lower-case letters"),
            ({f"r{n}": HOOK for n in range(21)}, "given 21 of them; allowed: up to 20"),
            ({"a": "https://hook"}, "receivers['a']: given 'https://hook'; allowed: an object"),
            ({"a": {**HOOK, "severity": ["critical"]}}, "did you mean 'severities'?"),
            ({"a": {"cidrs": ["10.9.0.0/24"]}}, "['a'].webhook: missing; a receiver has one of"),
            ({"a": {"webhook": "https://a.example"}}, "receivers['a'].cidrs: missing"),
            ({"a": {**HOOK, "cidrs": []}}, "at least one range"),
            ({"a": {**HOOK, "cidrs": ["8.8.8.0/24"]}}, "cidrs[0]: given '8.8.8.0/24'; allowed: p"),
            ({"a": {**HOOK, "cidrs": ["0.0.0.0/0"]}}, "allowed: private ranges"),
            ({"a": {**HOOK, "webhook": "http://a.example"}}, "starts with https://"),
            ({"a": {**HOOK, "webhook": "https://"}}, "starts with https://"),
            ({"a": {**HOOK, "webhook": "https://a:99999/"}}, "starts with https://"),
            ({"a": {**HOOK, "webhook": "https://me:pass@a.example"}}, "without a name or pass"),
            ({"a": {**HOOK, "pagerduty": "https://b.example"}}, "['a'].pagerduty: given with"),
            ({"a": {**HOOK, "relay": "mail.example:587"}}, "relay: is for email; leave it out"),
            ({"a": {**HOOK, "user": "me", "secret": "s"}}, "user: is for email"),
            ({"a": {**HOOK, "severities": []}}, "at least one of critical, warning, info"),
            ({"a": {**HOOK, "severities": ["fatal"]}}, "severities[0]: given 'fatal'"),
            ({"a": {**HOOK, "severities": ["info", "info"]}}, "each only once"),
            ({"a": {**HOOK, "repeat_hours": 0}}, "a whole number from 1 to 168"),
            ({"a": {**HOOK, "heartbeat": "yes"}}, "heartbeat: given 'yes'; allowed: true or f"),
            ({"a": {**HOOK, "secret": "A b"}}, "['a'].secret: given 'A b'"),
            ({"a": {**PAGER, "secret": None}}, "['a'].secret: missing; needed with pagerduty"),
            ({"a": {**MAIL, "email": []}}, "['a'].email: given 0 of them; allowed: at least one"),
            ({"a": {**MAIL, "email": "ops@a.example"}}, "['a'].email: given 'ops@a.example'"),
            ({"a": {**MAIL, "email": ["ops"]}}, "['a'].email[0]: given 'ops'; allowed: an add"),
            ({"a": {**MAIL, "email": ["a@b,c@d"]}}, "['a'].email[0]: given 'a@b,c@d'"),
            ({"a": {**MAIL, "relay": None}}, "['a'].relay: missing; needed with email"),
            ({"a": {**MAIL, "relay": "mail.example"}}, "allowed: host:port"),
            ({"a": {**MAIL, "relay": "mail.example:0"}}, "allowed: host:port"),
            ({"a": {**MAIL, "relay": "mail.example:65536"}}, "allowed: host:port"),
            ({"a": {**MAIL, "sender": "platform"}}, "['a'].sender: given 'platform'"),
            ({"a": {**MAIL, "secret": None}}, "['a'].secret: missing; needed with user"),
            ({"a": {**MAIL, "user": None}}, "['a'].secret: is for who logs in at the relay"),
        )
    ),
    ("eks", {}, {"cluster_name": None},
     "cluster_name: missing; needed by aws-load-balancer-controller, cluster-autoscaler"),
    ("eks", {}, {"network_id": None}, "network_id: missing; needed by aws-load-balancer"),
    ("eks", {"cert-manager": False}, {}, "addons.aws-load-balancer-controller: needs"),
    ("aks", {"cluster-autoscaler": True}, {}, "can't be installed on aks; allowed on eks"),
    ("eks", {}, {"control_plane_cidrs": ["0.0.0.0/0"]}, "nothing public is let in"),
    ("eks", {}, {"control_plane_cidrs": []}, "at least one private range"),
    ("eks", {}, {"region": "eu-west-1"}, "eu-west-1"),
    ("eks", {}, {"images": {}}, "images.falaj-training: no digest of falaj/training:"),
    ("eks", {}, {"images": {**DIGESTS, "kueue": "latest"}}, "images.kueue: given 'latest'"),
    ("eks", {}, {"images": {each: digest for each, digest in DIGESTS.items()
                            if each != "falaj-inference"}},
     "images.falaj-inference: no digest of falaj/inference:"),
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
