"""Tenants: what is refused, what separates them, and that nothing more is open than is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.components.kubernetes.tenant import check, manifests
from falaj.components.kubernetes.tenant.roles import ROLES, grants
from tests.components.kubernetes.cluster_parts import (
    COMMON,
    PLACES,
    by_key,
    difference,
    findings,
    refusal,
    same_as_golden,
    shown,
)
from tests.examples import examples

TENANT: dict[str, Any] = {
    "training": {"devices": {"nvidia.com/gpu": 32}},
    "serving": {"devices": {"nvidia.com/mig-1g.18gb": 14}},
    "egress": {"file-system": {"cidrs": ["10.20.0.0/20"], "ports": [988]}},
    "monthly_budget_usd": 120_000,
}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tenant": "Acme"}, "tenant: given 'Acme'"),
    ({"trainig": {}}, "did you mean 'training'?"),
    ({"training": {"cpus": 4}}, "training.cpus: is not an option of TenantNamespaceArgs"),
    ({"training": 4}, "training: given 4; allowed: an object with cpu"),
    ({"training": {"cpu": 0}}, "training.cpu: given 0; allowed: a number above 0"),
    ({"training": {"cpu": float("inf")}}, "training.cpu: given inf"),
    ({"training": {"devices": {"amd.com/gpu": 1}}}, "allowed: nvidia.com/gpu"),
    ({"training": {"devices": {"nvidia.com/gpu": -1}}}, "a whole number from 0"),
    ({"training": {"devices": {"nvidia.com/gpu.shared": 4}}}, "or set shares_gpus to true"),
    ({"training": {"purpose": "serving"}}, "training.purpose: given 'serving'"),
    ({"further": {"lab": {}}}, "further['lab'].purpose: given None; allowed: training, serving"),
    ({"further": {"training": {"purpose": "training"}}}, "training has its own argument"),
    ({"further": {"Lab": {"purpose": "training"}}}, "at most 63 of a-z"),
    ({"shares_gpus": True, "data_class": "restricted"}, "false, where data_class is 'restricted'"),
    ({"groups": {"trainer": ["x"]}}, "allowed: trainers, deployers, auditors, admins"),
    ({"groups": {"trainers": ["ml"], "deployers": ["ml"]}}, "nobody both trains models and"),
    ({"users": {"trainers": ["a@x"], "deployers": ["b@x", "a@x"]}}, "users: 'a@x' is both"),
    ({"groups": {"admins": ["system:masters"]}}, "system: is the cluster's own"),
    ({"priorities": ["falaj-highest"]}, "falaj-low, falaj-normal, falaj-high, falaj-urgent"),
    ({"egress": {"web": {"cidrs": ["0.0.0.0/0"]}}}, "public ranges of /12 or narrower"),
    ({"egress": {"web": {"cidrs": ["::/0"], "reason": "x"}}}, "public ranges of /32 or narrower"),
    ({"egress": {"web": {"cidrs": ["52.219.0.0/16"]}}}, "set reason to why they are"),
    ({"egress": {"web": {"cidrs": ["169.254.169.254/32"]}}}, "these are the node's own"),
    ({"egress": {"web": {"cidrs": ["10.0.0.1"]}}}, "a range such as 10.20.0.0/16"),
    ({"egress": {"web": {"cidrs": ["10.0.0.1/8"]}}}, "has host bits set"),
    ({"egress": {"web": {"cidrs": []}}}, "at least one range"),
    ({"egress": {"web": {}}}, "egress['web'].cidrs: missing"),
    ({"egress": {"web": {"cidrs": ["10.0.0.0/8"], "ports": []}}}, "allowed: at least one, each"),
    ({"egress": {"web": {"cidrs": ["10.0.0.0/8"], "ports": [0]}}}, "from 1 to 65535"),
    ({"egress": {"web": {"cidrs": ["10.0.0.0/8"], "protocol": "ICMP"}}}, "TCP, UDP"),
    ({"egress": {"web": {"cidrs": ["10.0.0.0/8"], "purposes": ["all"]}}}, "training, serving"),
    ({"identity_client_ids": {"training": "x"}}, "is for aks, but distribution is 'existing'"),
    ({"monthly_budget_usd": 0}, "a number above 0"),
    ({"queue_weight": -1}, "a number above 0"),
    ({"pod_security_version": "1.36"}, "latest, or v and a minor version"),
    ({"mesh": "yes"}, "true or false"),
]  # fmt: skip


def arguments(place: str = "existing", **changes: Any) -> dict[str, Any]:
    return {**COMMON, **PLACES[place], **TENANT, **changes}


def tenant(place: str = "existing", **changes: Any) -> dict[str, Any]:
    return by_key(manifests(check("acme", arguments(place, **changes))))  # type: ignore[arg-type]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[str(each[0]) for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    assert reason in refusal(check, arguments(**changes))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("data_class", ["internal", "restricted"])
def test_every_pack_passes(place: str, data_class: str) -> None:
    further = {"lab": {"purpose": "training", "devices": {"nvidia.com/gpu": 1}}}
    found = tenant(place, data_class=data_class, further=further, users={"admins": ["a@x"]})
    assert findings(list(found.values())) == []


def test_the_manifests_are_the_reviewed_ones_and_platforms_differ_where_they_must() -> None:
    clients = {"training": "01234567-89ab-cdef-0123-456789abcdef"}
    found = {
        "existing": tenant(),
        "eks": tenant("eks"),
        "aks": tenant("aks", identity_client_ids=clients),
    }
    texts = {
        place: shown([each for each in objects.values() if each["kind"] != "Role"])
        for place, objects in found.items()
    }
    same_as_golden("tenant-existing.yaml", texts["existing"])
    for place in ("eks", "aks"):
        same_as_golden(f"tenant-{place}.diff", difference(texts["existing"], texts[place]))


def test_the_manifests_are_the_reviewed_ones_of_roles_too() -> None:
    lines = [
        f"{each['metadata']['namespace']} {each['metadata']['name']}: "
        f"{' '.join(rule['verbs'])}: {' '.join(rule['resources'])} of {rule['apiGroups'][0]!r}"
        for each in tenant().values()
        if each["kind"] == "Role"
        for rule in each["rules"]
    ]
    same_as_golden("tenant-roles.txt", "".join(f"{each}\n" for each in lines))


def test_nobody_trains_and_deploys_nor_reads_secrets_nor_widens_what_it_may() -> None:
    for of in ("training", "serving"):
        for role in ROLES:
            for group, resources, verbs in grants(role, of):
                allowed = {(group, each, verb) for each in resources for verb in verbs}
                assert ("", "secrets", "get") not in allowed
                assert ("", "secrets", "list") not in allowed
                # Patching returns the whole object.
                assert ("", "secrets", "patch") not in allowed
                changed = {each[1] for each in allowed if each[2] not in {"get", "list", "watch"}}
                assert not changed & {
                    "roles", "rolebindings", "networkpolicies", "resourcequotas", "limitranges",
                    "serviceaccounts", "namespaces", "pods/exec", "authorizationpolicies",
                }  # fmt: skip
                assert not (role == "auditors" and changed)
    trained = {each for _, names, verbs in grants("trainers", "training") for each in names
               if "create" in verbs}  # fmt: skip
    deployed = {each for _, names, verbs in grants("deployers", "serving") for each in names
                if "create" in verbs}  # fmt: skip
    assert trained & deployed == {"configmaps"}
    assert grants("trainers", "serving") == grants("deployers", "training") == ()
    started = {"jobs", "jobsets", "deployments", "pods", "inferenceservices"}
    for of in ("training", "serving"):
        assert not any("create" in verbs and started & set(names)
                       for _, names, verbs in grants("admins", of))  # fmt: skip


def test_each_namespace_denies_at_first_and_names_what_it_lets_through() -> None:
    found = tenant("eks")
    for namespace in ("acme-training", "acme-serving"):
        deny = found[f"NetworkPolicy/{namespace}/default-deny"]["spec"]
        assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for key, each in found.items():
        if key.startswith("NetworkPolicy/"):
            rules = [*each["spec"].get("ingress", []), *each["spec"].get("egress", [])]
            assert all(rule.get("from") or rule.get("to") for rule in rules), key
    assert "NetworkPolicy/acme-training/allow-gateway" not in found
    assert "NetworkPolicy/acme-serving/allow-jobs" not in found


def test_only_serving_is_in_the_mesh_and_only_where_it_is_wanted() -> None:
    mesh = "istio.io/dataplane-mode"
    for wanted in (True, False):
        found = tenant(mesh=wanted)
        assert (mesh in found["Namespace/acme-serving"]["metadata"]["labels"]) is wanted
        assert mesh not in found["Namespace/acme-training"]["metadata"]["labels"]


def test_gpus_that_are_not_given_have_a_quota_of_none() -> None:
    found = tenant(training={}, serving={"devices": {"nvidia.com/mig-1g.18gb": 14}})
    hard = found["ResourceQuota/acme-training/compute"]["spec"]["hard"]
    assert hard["requests.nvidia.com/gpu"] == hard["requests.nvidia.com/gpu.shared"] == "0"
    served = found["ResourceQuota/acme-serving/compute"]["spec"]["hard"]
    assert served["requests.nvidia.com/mig-1g.18gb"] == "14"
    policy = found["ValidatingAdmissionPolicy/falaj-acme-devices"]["spec"]
    given_ = 'name in ["cpu", "memory", "ephemeral-storage", "nvidia.com/mig-1g.18gb"]'
    assert policy["validations"][0]["expression"].count(given_) == 2


def test_a_name_with_quotes_stays_text_in_the_policy() -> None:
    name = "a\"' || true || \\"
    found = tenant(users={"trainers": [name]})
    policy = found["ValidatingAdmissionPolicy/falaj-acme-duties"]["spec"]
    assert '["a\\"\' || true || \\\\"]' in policy["validations"][0]["expression"]


@settings(max_examples=examples(60), deadline=None)
@given(
    cpu=st.floats(0.001, 1e6), memory=st.integers(1, 100_000), gpus=st.integers(0, 10_000),
    blocks=st.integers(0, 10_000), files=st.integers(0, 10_000),
)  # fmt: skip
def test_the_quota_of_storage_is_the_sum_of_its_classes(
    cpu: float, memory: int, gpus: int, blocks: int, files: int
) -> None:
    given_ = {
        "cpu": cpu, "memory_gib": memory, "devices": {"nvidia.com/gpu": gpus},
        "storage_gib": {"falaj-block": blocks, "falaj-files": files},
    }  # fmt: skip
    found = tenant(training=given_)
    hard = found["ResourceQuota/acme-training/storage"]["spec"]["hard"]
    assert hard["requests.storage"] == f"{blocks + files}Gi"
    compute = found["ResourceQuota/acme-training/compute"]["spec"]["hard"]
    text = compute["requests.cpu"]
    cores = int(text[:-1]) / 1000 if text.endswith("m") else int(text)
    assert cores == pytest.approx(cpu, abs=0.0005)
    assert compute["requests.nvidia.com/gpu"] == str(gpus)


def test_no_budget_is_a_warning_and_a_budget_two_alerts() -> None:
    spec = check("acme", arguments(monthly_budget_usd=None))  # type: ignore[arg-type]
    assert "no monthly_budget_usd" in spec.notes[0]
    (group,) = tenant()["PrometheusRule/monitoring/acme-budget"]["spec"]["groups"]
    assert [each["labels"]["severity"] for each in group["rules"]] == ["warning", "critical"]
    assert group["rules"][0]["expr"].endswith("> 96000")
