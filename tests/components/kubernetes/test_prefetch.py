"""Images on nodes before pods need them: whose, where, and in which pods."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.components.catalogue.clusters import (
    IMAGE_PREFETCH,
    PREFETCH_LIMITS,
    PREFETCH_PRIORITY,
)
from falaj.components.kubernetes.bill_of_materials import images
from falaj.components.kubernetes.gpu_queues import check, manifests
from falaj.components.kubernetes.gpu_queues.queues import PRIORITIES
from tests.components.kubernetes.cluster_parts import (
    COMMON,
    PLACES,
    REGISTRY,
    by_key,
    findings,
    refusal,
    same_as_golden,
    shown,
)

GPU = "nvidia.com/gpu"
LOCK = {"falaj-inference": f"sha256:{'a' * 64}", "falaj-training": f"sha256:{'b' * 64}"}
TRAIN = f"team/train@sha256:{'c' * 64}"
KEPT = ["falaj-training", TRAIN]
H200: dict[str, Any] = {"nodes": 8, "cpu": 180, "memory_gib": 1900, "devices": {GPU: 8}}
SET = f"DaemonSet/{IMAGE_PREFETCH}/h200"


def arguments(place: str = "existing", /, **pool: Any) -> dict[str, Any]:
    return {
        **COMMON, **PLACES[place], "tenant": "platform", "images": LOCK,
        "pools": {"h200": {**H200, "prefetch_images": KEPT, **pool},
                  "cpu-x86-64": {"nodes": 20, "cpu": 60, "memory_gib": 240}},
        "tenants": {"acme": {"quotas": {"h200": {"devices": {GPU: 32}}}}},
    }  # fmt: skip


def rendered(place: str = "existing", /, **pool: Any) -> dict[str, Any]:
    return by_key(manifests(check("queues", arguments(place, **pool))))  # type: ignore[arg-type]


def pod(place: str = "existing", /, **pool: Any) -> dict[str, Any]:
    found: dict[str, Any] = rendered(place, **pool)[SET]["spec"]["template"]["spec"]
    return found


def refused(value: object) -> str:
    return refusal(check, arguments(prefetch_images=value))


AT = "pools['h200'].prefetch_images"
REFUSED: list[tuple[object, str]] = [
    ([], f"{AT}: given 0 of them; allowed: 1 to 20"),
    ([f"team/a{i}@sha256:{i:064}" for i in range(21)], f"{AT}: given 21 of them; allowed: 1 to"),
    ("falaj-training", f"{AT}: given 'falaj-training'; allowed: a list of texts"),
    ([7], f"{AT}[0]: given 7; allowed: text"),
    (["team/train:1.0"], f"{AT}[0]: given 'team/train:1.0'; allowed: repository@sha256:…"),
    (["team/train"], "repository@sha256:… below the registry"),
    ([f"team/train@sha256:{'c' * 63}"], "repository@sha256:… below the registry"),
    (["Team/Train@sha256:" + "c" * 64], "in lower case"),
    ([f"ghcr.io:443/team/train@sha256:{'c' * 64}"], "below the registry"),
    ([f"https://ghcr.io/team/train@sha256:{'c' * 64}"], "below the registry"),
    ([f"../other/train@sha256:{'c' * 64}"], "below the registry"),
    ([TRAIN, TRAIN], f"{AT}[1]: given '{TRAIN}'; allowed: each only once"),
    ([TRAIN, TRAIN.replace("@", ":1@")], "each image only once; leave out the second"),
    ([TRAIN, f"{REGISTRY}/{TRAIN}"], "each image only once; leave out the second"),
    (["falaj-training-cpu"], "images.falaj-training-cpu: no digest of falaj/training-cpu:"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "reason"), REFUSED, ids=[each[1][-40:] for each in REFUSED])
def test_what_cannot_be_kept_is_refused_with_the_reason(value: object, reason: str) -> None:
    assert reason in refused(value)


def test_a_misspelt_name_is_no_reference() -> None:
    assert f"{AT}[0]" in refused(["falaj-trainning"])


def test_an_image_without_a_digest_of_the_program_that_holds_it_is_refused() -> None:
    given: dict[str, Any] = {**arguments(), "images": {"falaj-training": LOCK["falaj-training"]}}
    assert "images.falaj-inference: no digest" in refusal(check, given)
    # Who keeps nothing needs none.
    del given["pools"]["h200"]["prefetch_images"]
    check("queues", given)  # type: ignore[arg-type]


def test_a_pool_that_is_not_there_cannot_be_named() -> None:
    given = arguments()
    given["pools"]["h100"] = {"prefetch_images": KEPT}
    assert "pools['h100'].nodes: missing" in refusal(check, given)


@pytest.mark.parametrize("version", ["1.34", "1.9", "v1.33.4", "0.99"])
def test_a_version_that_mounts_no_images_is_refused(version: str) -> None:
    said = refusal(check, {**arguments(), "kubernetes_version": version})
    assert f"kubernetes_version: given '{version}'; allowed: 1.35 or later" in said
    assert "upgrade the cluster, or leave prefetch_images out" in said
    # Who keeps nothing may have it.
    given: dict[str, Any] = {**arguments(), "kubernetes_version": version}
    del given["pools"]["h200"]["prefetch_images"]
    check("queues", given)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["", "newest", "1", 1.36])
def test_what_is_no_version_is_refused(version: object) -> None:
    said = refusal(check, {**arguments(), "kubernetes_version": version})
    assert "allowed: a version such as 1.36" in said


@pytest.mark.parametrize("version", ["1.35", "v1.36.1", "1.100.0-eks-1", "2.0"])
def test_later_versions_are_taken(version: str) -> None:
    check("queues", {**arguments(), "kubernetes_version": version})  # type: ignore[arg-type]


def test_nothing_is_made_where_no_pool_keeps_images() -> None:
    given = arguments()
    del given["pools"]["h200"]["prefetch_images"]
    found = by_key(manifests(check("queues", given)))  # type: ignore[arg-type]
    assert not [key for key in found if IMAGE_PREFETCH in key or key.startswith("DaemonSet/")]


@pytest.mark.parametrize("place", PLACES)
def test_every_pack_passes(place: str) -> None:
    taints = ["team=a:NoSchedule", "slow:NoExecute"] if place == "existing" else []
    assert findings(list(rendered(place, taints=taints).values())) == []


def test_only_the_pool_that_keeps_images_has_pods() -> None:
    found = rendered()
    assert [key for key in found if key.startswith("DaemonSet/")] == [SET]
    assert pod()["nodeSelector"] == {
        "falaj.io/flavor": "h200", "topology.kubernetes.io/region": "dxb-1",
        "kubernetes.io/os": "linux",
    }  # fmt: skip


def test_images_are_those_that_pods_name_and_from_the_registry_in_the_country() -> None:
    foreign = f"ghcr.io/vllm/vllm@sha256:{'d' * 64}"
    spec = pod(prefetch_images=[*KEPT, foreign])
    listed = [each["image"] for each in spec["volumes"]]
    assert listed == [
        {"reference": each, "pullPolicy": "IfNotPresent"}
        for each in (
            images()["falaj-training"].mirrored(REGISTRY, LOCK["falaj-training"]),
            f"{REGISTRY}/{TRAIN}",
            # As mirrors have it: what is below the registry is never pulled from abroad.
            f"{REGISTRY}/{foreign}",
        )
    ]
    whole = pod(prefetch_images=[f"{REGISTRY}/{TRAIN}"])
    assert whole["volumes"][0]["image"]["reference"] == f"{REGISTRY}/{TRAIN}"


def test_every_image_is_mounted_else_the_kubelet_thinks_that_nobody_uses_it() -> None:
    spec = pod()
    (container,) = spec["containers"]
    mounts = container["volumeMounts"]
    assert [each["name"] for each in mounts] == [each["name"] for each in spec["volumes"]]
    assert all(each["readOnly"] for each in mounts)
    folders = [each["mountPath"] for each in mounts]
    assert container["command"] == ["python", "-m", "falaj.workloads.prefetch", *folders]
    assert container["image"] == images()["falaj-inference"].mirrored(
        REGISTRY, LOCK["falaj-inference"]
    )
    assert "args" not in container


def test_taints_of_the_pool_are_tolerated_and_no_gpu_is_asked_for() -> None:
    gpu = {"key": GPU, "effect": "NoSchedule", "operator": "Equal", "value": "present"}
    team = {"key": "team", "effect": "NoSchedule", "operator": "Equal", "value": "a"}
    spot = "kubernetes.azure.com/scalesetpriority"
    assert pod()["tolerations"] == [gpu]
    assert pod(taints=["team=a:NoSchedule"])["tolerations"] == [gpu, team]
    assert [each["key"] for each in pod("aks", capacity="spot")["tolerations"]] == [GPU, spot]
    flavor = rendered("aks", capacity="spot")["ResourceFlavor/h200"]
    assert [each["key"] for each in flavor["spec"]["tolerations"]] == [spot]
    (container,) = pod()["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1m", "memory": PREFETCH_LIMITS["memory"]},
        "limits": dict(PREFETCH_LIMITS),
    }
    without = {**arguments()}
    without["pools"]["cpu-x86-64"]["prefetch_images"] = KEPT
    found = by_key(manifests(check("queues", without)))  # type: ignore[arg-type]
    on_cpu = found[f"DaemonSet/{IMAGE_PREFETCH}/cpu-x86-64"]["spec"]["template"]["spec"]
    assert on_cpu["tolerations"] == []


def test_its_priority_is_below_every_other_and_displaces_nobody() -> None:
    made = rendered()[f"PriorityClass/{PREFETCH_PRIORITY}"]
    # https://github.com/kubernetes/autoscaler: pods below -10 are expendable.
    assert made["value"] < -10 < min(PRIORITIES.values())
    assert made["preemptionPolicy"] == "Never"
    assert pod()["priorityClassName"] == PREFETCH_PRIORITY


def test_nobody_waits_for_it_and_a_new_list_rolls() -> None:
    made = rendered()[SET]
    assert made["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert made["spec"]["updateStrategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"},
    }  # fmt: skip


def test_objects_are_as_reviewed() -> None:
    found = rendered()
    mine = [each for key, each in found.items() if IMAGE_PREFETCH in key]
    same_as_golden("prefetch.yaml", shown(mine, ["apiVersion"]))
