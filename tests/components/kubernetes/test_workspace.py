"""Workspaces: what is refused, who gets in, what the pod has, and what the packs say."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, cast

import pulumi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.workspace import Workspace, WorkspaceArgs, check
from tests.components.kubernetes.registrations import recorded
from tests.components.kubernetes.training_jobs import DIGEST, PLACES, REGISTRY, findings, the
from tests.components.kubernetes.workspaces import MIRROR, OWNER, arguments, rendered
from tests.examples import examples

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"user": None}, "user: missing"),
    ({"user": "system:admin"}, "system: is the cluster's own"),
    ({"user": "system:serviceaccount:acme-training:trainer"}, "one person's name"),
    ({"user": "alice, bob"}, "one person's name"),
    ({"user": ["alice"]}, "user"),
    ({"token_secret": None}, "token_secret: missing"),
    ({"token_secret": "globex/workspace-alice"}, "entries of the tenant: acme/"),
    ({"token_secret": "acme/../globex/token"}, "entries of the tenant: acme/"),
    ({"flavor": None}, "flavor: missing"),
    ({"gpus_per_node": 8}, "gpus_per_node: is not an argument"),
    ({"idle_minutes": 0}, "idle_minutes: given 0; allowed: a whole number from 5 to 480"),
    ({"idle_minutes": 100_000}, "from 5 to 480"),
    ({"hours": 0}, "hours: given 0; allowed: a whole number from 1 to 24"),
    ({"hours": 25}, "from 1 to 24"),
    ({"hours": 1.5}, "from 1 to 24"),
    ({"home_gib": 0}, "home_gib: given 0; allowed: a whole number from 1 to 1000"),
    ({"home_gib": 1_001}, "from 1 to 1000"),
    ({"session": 0}, "session: given 0"),
    ({"priority": "falaj-high"}, "allowed: falaj-low, falaj-normal"),
    ({"data": "home.bob"}, "data: given 'home.bob'"),
    ({"data": "../bob"}, "data: given '../bob'"),
    ({"spot": True, "data_class": "restricted"}, "not for data_class 'restricted'"),
    ({"images": {}}, "images.falaj-workspace: no digest of"),
    ({"package_mirror": {**MIRROR, "url": "http://packages.acme.example"}}, "https://host/path"),
    ({"package_mirror": {**MIRROR, "url": "https://[::1"}}, "https://host/path"),
    ({"package_mirror": {**MIRROR, "cidrs": ["0.0.0.0/0"]}}, "ranges of one's own networks"),
    ({"package_mirror": {**MIRROR, "cidrs": ["151.101.0.0/16"]}}, "the mirror is in the country"),
    ({"package_mirror": {**MIRROR, "cidrs": []}}, "at least one range"),
    ({"package_mirror": {"url": MIRROR["url"]}}, "package_mirror.cidrs: missing"),
    ({"idle_minuts": 5}, "did you mean 'idle_minutes'?"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[str(each[0]) for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check("alice", arguments(**changes))
    assert reason in str(refused.value)


def test_a_password_in_the_mirrors_address_is_refused_and_not_repeated() -> None:
    url = "https://alice:hunter2@packages.acme.example/simple"
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check("alice", arguments(package_mirror={**MIRROR, "url": url}))
    assert "without user, password or query" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@given(st.text(max_size=40))
@settings(max_examples=examples(200), deadline=None)
def test_any_name_is_refused_or_names_objects_that_no_colleagues_job_has(name: str) -> None:
    try:
        spec = check(name, arguments())
    except pulumi.InputPropertiesError as refused:
        assert "1 to 36 of a-z" in str(refused)
        return
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", spec.base)
    # What controllers append to names of pods: k8s.io/apimachinery/pkg/util/rand.
    assert not re.search(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$", spec.base)
    assert spec.home == f"home.{name}"


@given(
    st.one_of(st.integers(), st.floats(), st.text(), st.booleans(), st.none()),
    st.sampled_from(["idle_minutes", "hours", "home_gib", "session"]),
)
@settings(max_examples=examples(200), deadline=None)
def test_any_value_of_a_bounded_number_is_taken_within_its_bound_or_refused(
    value: object, argument: str
) -> None:
    most = {"idle_minutes": 480, "hours": 24, "home_gib": 1_000, "session": 999_999_999}[argument]
    try:
        spec = check("alice", arguments(**{argument: value}))
    except pulumi.InputPropertiesError as refused:
        assert f"  {argument}: " in str(refused)
        return
    assert 1 <= getattr(spec, argument) <= most
    assert spec.hours <= 24


# Who gets in.


def test_one_person_may_forward_ports_of_one_pod_and_read_one_secret() -> None:
    manifests = rendered()
    role, binding = the("Role", manifests), the("RoleBinding", manifests)
    assert [
        (each["resources"], each["resourceNames"], each["verbs"]) for each in role["rules"]
    ] == [
        (["pods"], ["alice-workspace"], ["get", "delete"]),
        (["pods/log"], ["alice-workspace"], ["get"]),
        (["pods/portforward"], ["alice-workspace"], ["create", "get"]),
        (["secrets"], ["alice-workspace-token"], ["get"]),
    ]
    assert binding["subjects"] == [
        {"kind": "User", "name": OWNER, "apiGroup": "rbac.authorization.k8s.io"}
    ]
    assert the("Pod", manifests)["metadata"]["name"] == "alice-workspace"


def test_nobody_in_the_network_gets_in_and_nothing_gets_out() -> None:
    spec = the("NetworkPolicy", rendered())["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    (names,) = spec["egress"]
    assert {each["port"] for each in names["ports"]} == {53}
    labels = the("Pod", rendered())["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    assert not [each for each in rendered() if each["kind"] in {"Service", "HTTPRoute", "Ingress"}]


def test_the_package_mirror_is_reached_by_its_addresses_alone() -> None:
    url = "https://packages.acme.example:8081/simple"
    manifests = rendered(package_mirror={**MIRROR, "url": url})
    (_, mirror) = the("NetworkPolicy", manifests)["spec"]["egress"]
    assert mirror == {
        "to": [{"ipBlock": {"cidr": "10.20.3.0/28"}}],
        "ports": [{"port": 8081, "protocol": "TCP"}],
    }
    assert environment(manifests)["PIP_INDEX_URL"] == url
    assert environment(rendered())["PIP_NO_INDEX"] == "1"


# What the pod has.


def environment(manifests: list[Manifest]) -> dict[str, str]:
    (container,) = the("Pod", manifests)["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_no_secret_is_in_the_command_or_the_environment() -> None:
    (container,) = the("Pod", rendered())["spec"]["containers"]
    assert not [each for each in container["env"] if "valueFrom" in each]
    assert "envFrom" not in container
    command = container["command"]
    assert command[command.index("--token-file") + 1] == "/run/falaj/token/token"
    assert not [each for each in environment(rendered()) if "TOKEN" in each]


def test_the_pod_has_its_own_secrets_its_home_and_nothing_else_of_the_tenants() -> None:
    spec = the("Pod", rendered())["spec"]
    secrets = [each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each]
    assert secrets == ["alice-workspace-tls", "alice-workspace-token"]
    claims = [each for each in spec["volumes"] if "persistentVolumeClaim" in each]
    assert [each["persistentVolumeClaim"]["claimName"] for each in claims] == ["home.alice"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "alice-workspace"
    assert the("ServiceAccount", rendered())["automountServiceAccountToken"] is False


def test_datasets_of_the_team_are_read_only() -> None:
    spec = the("Pod", rendered(data="datasets"))["spec"]
    (claim,) = [each for each in spec["volumes"] if each["name"] == "data"]
    assert claim["persistentVolumeClaim"] == {"claimName": "datasets", "readOnly": True}
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "data"]
    assert mount == {"name": "data", "mountPath": "/data", "readOnly": True}


def test_it_ends_by_a_deadline_that_is_beyond_its_own_and_is_never_started_again() -> None:
    spec = the("Pod", rendered(hours=2, idle_minutes=30))["spec"]
    assert spec["activeDeadlineSeconds"] == 2 * 3600 + 300
    assert spec["restartPolicy"] == "Never"
    command = spec["containers"][0]["command"]
    assert command[command.index("--idle-minutes") :] == ["--idle-minutes", "30", "--hours", "2"]


@pytest.mark.parametrize(
    ("flavor", "device"),
    [
        ("h200", "nvidia.com/gpu"),
        ("h200-mig-1g.18gb", "nvidia.com/mig-1g.18gb"),
        ("l4-time-slicing-4", "nvidia.com/gpu.shared"),
        ("cpu-x86-64", ""),
    ],
)
def test_it_has_at_most_one_gpu_or_part_of_one(flavor: str, device: str) -> None:
    (container,) = the("Pod", rendered(flavor=flavor))["spec"]["containers"]
    devices = {
        name: count for name, count in container["resources"]["limits"].items() if "/" in name
    }
    assert devices == ({device: "1"} if device else {})
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["image"] == f"{REGISTRY}/falaj/workspace:0.1.0@{DIGEST}"


def test_it_waits_in_the_tenants_queue_and_makes_room_for_jobs() -> None:
    pod = the("Pod", rendered())
    labels = pod["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "default"
    assert labels["kueue.x-k8s.io/priority-class"] == "falaj-low"
    assert pod["spec"]["priorityClassName"] == "falaj-low"


def test_the_certificate_is_for_names_of_loopback() -> None:
    spec = the("Certificate", rendered())["spec"]
    assert spec["dnsNames"] == ["alice.acme-training.localhost", "localhost"]
    assert spec["usages"] == ["digital signature", "server auth"]


def test_another_session_is_the_same_but_for_its_number() -> None:
    first, second = (the("Pod", rendered(session=each)) for each in (1, 2))
    assert first["metadata"]["annotations"].pop("falaj.io/session") == "1"
    assert second["metadata"]["annotations"].pop("falaj.io/session") == "2"
    assert first == second


# The packs.


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("changes", [{}, {"flavor": "cpu-x86-64", "package_mirror": MIRROR}])
def test_the_packs_have_nothing_against_it(place: str, changes: dict[str, Any]) -> None:
    assert findings(rendered(place, **changes)) == []


def test_the_packs_find_a_mirror_that_is_nobody_knows_where() -> None:
    foreign = {**MIRROR, "url": "https://packages.example.com/simple"}
    (found,) = findings(rendered(package_mirror=foreign))
    assert found.startswith("kubernetes-egress-host: ")


def _ports_of_all(manifests: list[Any]) -> None:
    for rule in the("Role", manifests)["rules"]:
        rule.pop("resourceNames")


def _commands(manifests: list[Any]) -> None:
    the("Role", manifests)["rules"].append(
        {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": ["alice-workspace"],
         "verbs": ["create"]}
    )  # fmt: skip


def _for_everybody(manifests: list[Any]) -> None:
    the("RoleBinding", manifests)["subjects"][0] |= {
        "kind": "Group", "name": "system:authenticated",
    }  # fmt: skip


def _token_of_the_cluster(manifests: list[Any]) -> None:
    the("Pod", manifests)["spec"]["automountServiceAccountToken"] = True


def _world(manifests: list[Any]) -> None:
    the("NetworkPolicy", manifests)["spec"]["egress"].append(
        {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}
    )


def _root(manifests: list[Any]) -> None:
    the("Pod", manifests)["spec"]["securityContext"] = {}


def _elsewhere(manifests: list[Any]) -> None:
    the("Pod", manifests)["spec"]["containers"][0]["image"] = "docker.io/jupyter/lab:latest"


def _nodes_disk(manifests: list[Any]) -> None:
    the("Pod", manifests)["spec"]["volumes"].append({"name": "n", "hostPath": {"path": "/"}})


def _plain_token(manifests: list[Any]) -> None:
    the("Pod", manifests)["spec"]["containers"][0]["env"].append(
        {"name": "JUPYTER_TOKEN", "value": "0123456789abcdef0123456789abcdef"}
    )


@pytest.mark.parametrize(
    ("tamper", "rule"),
    [
        (_ports_of_all, "kubernetes-rbac-escalation"),
        (_ports_of_all, "kubernetes-rbac-secrets"),
        (_commands, "kubernetes-rbac-escalation"),
        (_for_everybody, "kubernetes-rbac-subjects"),
        (_token_of_the_cluster, "kubernetes-token-mount"),
        (_world, "kubernetes-open-egress"),
        (_root, "kubernetes-run-as-non-root"),
        (_elsewhere, "kubernetes-image-registry"),
        (_nodes_disk, "kubernetes-host-path"),
        (_plain_token, "kubernetes-secret-in-plain"),
    ],
)
def test_the_packs_find_what_is_wrong_where_it_was_changed(
    tamper: Callable[[list[Any]], None], rule: str
) -> None:
    manifests = copy.deepcopy(rendered())
    tamper(manifests)
    assert rule in {each.partition(":")[0] for each in findings(manifests)}


# As the engine gets it.


def _registered(**changes: Any) -> tuple[dict[str, Any], Workspace]:
    made: list[Workspace] = []

    @pulumi.runtime.test
    def run() -> None:
        made.append(Workspace("alice", cast("WorkspaceArgs", arguments(**changes))))

    with recorded() as requests:
        run()
    return {each.name: each for each in requests if each.custom}, made[0]


def test_every_object_is_registered_and_the_way_in_is_told() -> None:
    custom, made = _registered()
    assert len(custom) == len(rendered())
    assert made.command == (
        "kubectl --namespace acme-training port-forward pod/alice-workspace 8443"
    )
    assert made.url == "https://alice.acme-training.localhost:8443"


def test_another_session_replaces_the_pod_and_the_home_stays_in_production() -> None:
    custom, _ = _registered()
    (pod,) = [each for name, each in custom.items() if "-pod-" in name]
    assert list(pod.replaceOnChanges) == ["spec", 'metadata.annotations["falaj.io/session"]']
    assert pod.deleteBeforeReplace
    for environment_, kept in (("production", True), ("test", False)):
        custom, _ = _registered(environment=environment_)
        (home,) = [each for name, each in custom.items() if "persistentvolumeclaim" in name]
        assert home.retainOnDelete is kept
