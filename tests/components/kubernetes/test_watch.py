"""Who watches a service's drift in a cluster: what stands for it, and what it may do."""

from __future__ import annotations

from typing import Any, cast

import pulumi
import pytest

from falaj.components.catalogue.pipelines import REQUESTS_ENDING
from falaj.components.kubernetes import pipeline
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.inference_service.arguments import WATCH_STEPS
from falaj.workloads.pipelines.__main__ import build_parser
from falaj.workloads.watching.command import parser
from falaj.workloads.watching.ladder import STEPS
from tests.components.kubernetes.cluster_parts import same_as_golden, shown
from tests.components.kubernetes.serving_services import PLACES, by_key, pod_of, service
from tests.components.kubernetes.test_canary import PEM, PRIVATE
from tests.components.kubernetes.test_inference_service import judged
from tests.components.kubernetes.test_pipeline import given as pipeline_arguments

WATCH: dict[str, Any] = {
    "steps": ["tell", "retrain"],
    "pipeline": "credit",
    "control_plane_cidrs": ["10.20.0.0/28"],
    "webhook": "https://hooks.corp.internal:8443/falaj",
    "webhook_cidrs": ["10.20.0.9/32"],
    "webhook_secret": "acme/watch-webhook",
    "webhook_authority": PEM,
}
NAME = "credit-risk-watch"


def watched(place: str = "existing", **changes: Any) -> list[Manifest]:
    entry = {"webhook_secret": "acme--watch-webhook"} if place == "aks" else {}
    watch = {key: each for key, each in {**WATCH, **entry, **changes}.items() if each is not None}
    return service(place=place, audit_claim="audit", watch=watch)


def asked(**changes: Any) -> list[Manifest]:
    """A pipeline that the service's watch may ask."""
    args = pipeline_arguments("existing", on_drift={"service": "credit-risk"}, **changes)
    return pipeline.manifests(pipeline.check("credit", cast("pipeline.PipelineArgs", args)))


def _with(**changes: Any) -> dict[str, Any]:
    watch = {key: each for key, each in {**WATCH, **changes}.items() if each is not None}
    return {"audit_claim": "audit", "watch": watch}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"audit_claim": "audit", "watch": "me"}, "watch: given 'me'; allowed: an object"),
    ({"watch": {}}, "audit_claim: missing; needed with watch"),
    ({**_with(), "drift": {"enabled": False}}, "watch: needs reports on drift"),
    (_with(steps=["tell", "rollBack"]), "rollBack is for a stack of one machine: in a cluster a"),
    (_with(steps=["tell", "mail"]), "watch.steps"),
    (_with(steps=["retrain"]), "watch.steps: given 'retrain'; allowed: tell as well"),
    (_with(steps=[]), "watch.steps"),
    (_with(pipeline=None), "watch.pipeline: missing; needed with retrain"),
    (_with(control_plane_cidrs=None), "watch.control_plane_cidrs: missing; needed with retrain"),
    (_with(steps=["tell"]), "watch.pipeline: is for retrain; leave it out"),
    (_with(pipeline="Credit"), "watch.pipeline: given 'Credit'"),
    (_with(control_plane_cidrs=["8.8.8.8/32"]), "watch.control_plane_cidrs[0]"),
    (_with(webhook="http://hooks.corp.internal"), "watch.webhook: given 'http"),
    (_with(webhook="https://me:secret@hooks.corp.internal"), "watch.webhook"),
    (_with(webhook="https://hooks.corp.internal/?key=secret"), "watch.webhook"),
    (_with(webhook=None), "watch.webhook_secret: is for webhook; leave it out"),
    (_with(webhook_secret=None), "watch.webhook_secret: missing; needed with webhook"),
    (_with(webhook_cidrs=None), "watch.webhook_cidrs: missing; needed with webhook"),
    (_with(webhook_cidrs=["8.8.8.0/24"]), "watch.webhook_cidrs[0]"),
    (_with(webhook_secret="bank/hook"), "watch.webhook_secret: given 'bank/hook'"),
    (_with(webhook_authority=PRIVATE), "watch.webhook_authority: has to be certificates"),
    (_with(interval_seconds=0), "watch.interval_seconds: given 0"),
    (_with(cool_down_hours=721), "watch.cool_down_hours: given 721"),
    (_with(most_retrainings_per_week=0), "watch.most_retrainings_per_week: given 0"),
    (_with(data="in"), "watch.data"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[each[1] for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        service(**changes)
    assert reason in str(refused.value)


def test_no_other_service_is_called_as_what_stands_beside_one() -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="no '-watch' at the end"):
        service(NAME)


@pytest.mark.parametrize(
    ("on_drift", "reason"),
    [
        ({}, "on_drift.service: missing"),
        ({"service": "Credit"}, "on_drift.service: given 'Credit'"),
        ({"service": "credit", "every_minutes": 1}, "on_drift.every_minutes: given 1"),
        ("credit", "on_drift: given 'credit'"),
    ],
)
def test_a_pipeline_refuses_who_cannot_ask(on_drift: object, reason: str) -> None:
    args = pipeline_arguments("existing", on_drift=on_drift)
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        pipeline.check("credit", cast("pipeline.PipelineArgs", args))
    assert reason in str(refused.value)


@pytest.mark.parametrize("place", sorted(PLACES))
def test_every_rule_of_every_pack_is_met(place: str) -> None:
    name = f"credit{REQUESTS_ENDING}"
    rights = [each for each in asked() if each["metadata"]["name"] == name]
    assert judged([*watched(place), *(each for each in rights if each["kind"] != "CronJob")]) == []


def test_without_a_watch_nothing_stands_there_and_nothing_differs() -> None:
    plain, more = by_key(service(audit_claim="audit")), by_key(watched())
    assert not [each for each in plain if "watch" in each]
    assert {each for each in plain if plain[each] != more[each]} == {
        "NetworkPolicy/credit-risk", "AuthorizationPolicy/credit-risk",
    }  # fmt: skip


def test_who_only_tells_has_no_right_in_the_cluster() -> None:
    listed = by_key(service(audit_claim="audit", watch={}))
    pod = listed[f"Deployment/{NAME}"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert listed[f"ServiceAccount/{NAME}"]["automountServiceAccountToken"] is False
    assert [each["name"] for each in pod["volumes"]] == ["observer", "tls", "logs", "tmp"]
    policy = listed[f"NetworkPolicy/{NAME}"]["spec"]
    assert len(policy["egress"]) == 2, "the resolver, and the replicas"


def test_it_may_ask_in_one_object_and_make_nothing() -> None:
    """All rights are the pipeline's to give, by names, and none makes anything."""
    assert not [each for each in watched() if "Role" in each["kind"]]
    name = f"credit{REQUESTS_ENDING}"
    of = {(each["kind"], each["metadata"]["name"]): each for each in asked()}
    rules = of["Role", name]["rules"]
    assert [(each["resources"], each["verbs"], each["resourceNames"]) for each in rules] == [
        (["configmaps"], ["get", "patch"], [name]),
        (["configmaps"], ["get"], ["credit-pipeline"]),
    ]
    (subject,) = of["RoleBinding", name]["subjects"]
    assert (subject["name"], subject["namespace"]) == (NAME, "acme-serving")
    assert "data" not in of["ConfigMap", name], "no update takes away what is asked"
    starter = of["Role", "credit-pipeline"]["rules"][-1]
    assert (starter["verbs"], starter["resourceNames"]) == (["get"], [name])


def test_starters_look_into_it_and_one_starts_for_it_alone() -> None:
    of = {each["metadata"]["name"]: each for each in asked() if each["kind"] == "CronJob"}
    for name, cron in of.items():
        pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        told = build_parser().parse_args(pod["containers"][0]["command"][3:])
        assert told.requests == "credit-pipeline-drift"
        assert told.if_asked is (name == "credit-pipeline-drift")
    assert of["credit-pipeline-drift"]["spec"]["schedule"] == "*/5 * * * *"


def test_it_reaches_what_it_asks_and_tells_and_prometheus_it() -> None:
    objects = by_key(watched())
    policy = objects[f"NetworkPolicy/{NAME}"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = policy["ingress"]
    assert ingress["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]
    names, replicas, api, webhook = policy["egress"]
    assert {each["port"] for each in names["ports"]} == {53}
    own = objects["NetworkPolicy/credit-risk"]["spec"]
    assert replicas["to"] == [{"podSelector": own["podSelector"]}]
    assert api["to"] == [{"ipBlock": {"cidr": "10.20.0.0/28"}}]
    assert webhook == {
        "to": [{"ipBlock": {"cidr": "10.20.0.9/32"}}],
        "ports": [{"port": 8443, "protocol": "TCP"}],
    }
    labels = objects[f"Deployment/{NAME}"]["spec"]["template"]["metadata"]["labels"]
    assert own["ingress"][1]["from"] == [{"podSelector": policy["podSelector"]}]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert not own["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = objects["AuthorizationPolicy/credit-risk"]["spec"]["rules"]
    assert f"cluster.local/ns/acme-serving/sa/{NAME}" in rule["from"][1]["source"]["principals"]


def test_it_finds_the_replicas_of_the_version_that_most_requests_go_to() -> None:
    objects = by_key(watched())
    service_ = objects[f"Service/{NAME}"]["spec"]
    assert service_["clusterIP"] == "None"
    of = {
        version: objects[f"Deployment/{version}"]["spec"]["template"]["metadata"]["labels"]
        for version in ("credit-risk-v7", "credit-risk-v8")
    }
    found = [each for each, labels in of.items() if service_["selector"].items() <= labels.items()]
    assert found == ["credit-risk-v7"]


def test_there_is_one_of_it_which_keeps_what_it_did() -> None:
    listed = watched()
    spec = by_key(listed)[f"Deployment/{NAME}"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = pod_of(listed, NAME)
    (logs,) = [each for each in pod["volumes"] if each["name"] == "logs"]
    assert logs["persistentVolumeClaim"] == {"claimName": "audit"}
    (container,) = pod["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "logs"]
    assert mount["subPath"] == "credit-risk/watch"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsUser"] == 65532


def test_what_it_is_told_is_what_the_program_takes_and_no_secret() -> None:
    (container,) = pod_of(watched(cool_down_hours=1.5), NAME)["containers"]
    assert container["command"][:3] == ["python", "-m", "falaj.workloads.watching"]
    told = parser().parse_args(container["command"][3:])
    assert (told.service, told.model) == ("credit-risk", "credit-risk")
    assert told.servers == f"{NAME}.acme-serving.svc:8443"
    assert told.server_name == "credit-risk.acme-serving.svc"
    assert (told.steps, told.pipeline, told.namespace, told.requests) == (
        "tell,retrain", "credit", "acme-training", "credit-pipeline-drift",
    )  # fmt: skip
    assert (told.interval_seconds, told.cool_down_hours, told.most_retrainings_per_week) == (
        60, 1.5, 2,
    )  # fmt: skip
    assert str(told.webhook_key) == "/run/falaj/webhook/webhook.key"
    assert str(told.webhook_authority) == "/run/falaj/authority/webhook.pem"
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert told.metrics == "0.0.0.0:8443"
    own = (told.webhook_key.parent, told.webhook_authority.parent)
    for path in (told.observer, told.metrics_tls, *own):
        assert str(path) in mounts
    assert str(told.folder.parent) in mounts
    assert set(WATCH_STEPS) <= set(STEPS)


def test_prometheus_asks_it_as_it_asks_the_replicas() -> None:
    objects = by_key(watched())
    (endpoint,) = objects[f"PodMonitor/{NAME}"]["spec"]["podMetricsEndpoints"]
    (replicas,) = objects["PodMonitor/credit-risk"]["spec"]["podMetricsEndpoints"]
    host = f"{NAME}.acme-serving.svc"
    assert endpoint["tlsConfig"] == {**replicas["tlsConfig"], "serverName": host}
    assert objects[f"Certificate/{NAME}-tls"]["spec"]["dnsNames"] == [host]
    labels = objects[f"Deployment/{NAME}"]["spec"]["template"]["metadata"]["labels"]
    selector = objects[f"PodMonitor/{NAME}"]["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()


def test_what_stands_beside_it_is_as_reviewed() -> None:
    before = by_key(service(audit_claim="audit"))
    more = [each for key, each in by_key(watched()).items() if key not in before]
    same_as_golden("watch-existing.yaml", shown(more))
