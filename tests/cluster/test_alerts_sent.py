"""An alert of the platform's rules reaches whom the platform names, and nobody else.

A real Prometheus fires it, the real operator makes Alertmanager's configuration of what we
declare, and a real Alertmanager sends it.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from falaj.components.kubernetes.addons.alerts import rule_groups
from falaj.components.kubernetes.addons.installation import manifests
from falaj.components.kubernetes.addons.receivers import HEARTBEAT
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.objects import wait_for
from tests.cluster.alert_chain import (
    SECONDS,
    Receivers,
    Relay,
    alertmanager,
    asked,
    generated,
    operator,
    prometheus,
    receivers,
    relay,
)
from tests.components.kubernetes.platforms import spec, values

pytestmark = pytest.mark.cluster

#: The namespace, and the name that the chart gives.
MONITORING = NAME = "monitoring"
#: The chart's own: https://github.com/prometheus-community/helm-charts (kube-prometheus-stack,
#: `alertmanager.config`).
OF_THE_CHART = {
    "global": {"resolve_timeout": "5m"},
    "route": {
        "group_by": ["namespace"], "group_wait": "30s", "group_interval": "5m",
        "repeat_interval": "12h", "receiver": "null",
        "routes": [{"receiver": "null", "matchers": ['alertname = "Watchdog"']}],
    },
    "receivers": [{"name": "null"}],
}  # fmt: skip
METRICS = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{node="gpu-1",gpu="0",Hostname="gpu-1"} 1\n'
ALWAYS = {"alert": HEARTBEAT, "expr": "vector(1)", "labels": {"severity": "none"}}
BROKEN = "GpuRowRemapFailed"
CIDRS = {"cidrs": ["10.9.0.0/24"]}


@dataclass
class Chain:
    """What waits for alerts, and how they get there."""

    https: Receivers
    relay: Relay
    plain: Relay
    config: dict[str, Any]
    labels: dict[str, str]
    """Of Alertmanager's pods."""
    policies: list[dict[str, Any]]
    alertmanager: str


def secret(name: str, **entries: bytes) -> dict[str, Any]:
    data = {
        key.replace("_", "-"): base64.b64encode(each).decode() for key, each in entries.items()
    }
    return {
        "apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {"name": name, "namespace": MONITORING},
    }  # fmt: skip


def declared(port: int, mail: int, plain: int) -> list[dict[str, Any]]:
    """The objects of a platform with receivers of all kinds, and those of its Alertmanager."""
    hook = {"ca_secret": "own", **CIDRS}
    asks = {"user": "falaj", "secret": "relay", "ca_secret": "own", **CIDRS}
    mails = {"email": ["ops@acme.example"], "sender": "falaj@acme.example", **asks}
    at = f"https://localhost:{port}"
    names: dict[str, Any] = {
        "on-call": {**hook, "webhook": f"{at}/on-call", "secret": "hook", "heartbeat": True},
        "notes": {**hook, "webhook": f"{at}/notes", "severities": ["info"]},
        "moved": {**hook, "webhook": f"{at}/moved"},
        "pager": {**hook, "pagerduty": f"{at}/v2/enqueue", "secret": "pager"},
        "mail": {**mails, "relay": f"localhost:{mail}"},
        "plain": {**mails, "relay": f"localhost:{plain}"},
        # Its certificate is of an authority that nobody trusts.
        "stranger": {"webhook": f"{at}/stranger", **CIDRS},
        # Nobody made its secret.
        "forgotten": {**hook, "webhook": f"{at}/forgotten", "secret": "absent"},
    }
    of = spec("existing", {"monitoring": {"receivers": names}})
    chart = values(of)[MONITORING]["alertmanager"]["alertmanagerSpec"]
    return [
        *(
            each for each in manifests(of)
            if each["kind"] == "AlertmanagerConfig"
            or (each["kind"], each["metadata"]["name"]) == ("Namespace", MONITORING)
            or each["metadata"]["name"].startswith("allow-to-receiver-")
        ),
        secret(f"alertmanager-{NAME}", **{"alertmanager.yaml": json.dumps(OF_THE_CHART).encode()}),
        {
            "apiVersion": "monitoring.coreos.com/v1", "kind": "Alertmanager",
            "metadata": {"name": NAME, "namespace": MONITORING},
            "spec": {
                "replicas": 0,
                # As the chart writes them: of all namespaces.
                "alertmanagerConfigSelector": {}, "alertmanagerConfigNamespaceSelector": {},
                "alertmanagerConfigMatcherStrategy": chart["alertmanagerConfigMatcherStrategy"],
            },
        },
    ]  # fmt: skip


#: What another namespace's people ask for.
OTHERS = {
    "apiVersion": "monitoring.coreos.com/v1alpha1", "kind": "AlertmanagerConfig",
    "metadata": {"name": "others", "namespace": "acme-serving"},
    "spec": {
        "route": {"receiver": "own"},
        "receivers": [{"name": "own", "webhookConfigs": [{"url": "https://own.acme.example"}]}],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def chain(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    folder = tmp_path_factory.mktemp("alerts")
    authority = Authority(folder / "pki", "falaj-test-alerts")
    pair = authority.server("localhost", ["localhost"])
    cluster.define("prometheus-operator")
    with receivers(pair) as https, relay(pair) as mail, relay(None) as plain:
        objects = declared(https.port, mail.port, plain.port)
        order = sorted(objects, key=lambda each: each["kind"] != "Namespace")
        others = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme-serving"}}
        cluster.apply([*order, others])
        cluster.apply([
            OTHERS, secret("hook", token=b"s3cret"), secret("pager", routing_key=b"r0uting"),
            secret("relay", password=b"pa55"),
            secret("own", **{"ca.crt": authority.certificate.read_bytes()}),
        ])  # fmt: skip
        with operator(cluster, folder):
            names = ("mail", "moved", "notes", "on-call", "pager", "plain", "stranger")
            asked_for = (*(f"falaj-{each}" for each in names), "own.acme.example")
            text = generated(cluster, MONITORING, NAME, asked_for, folder)
            pods = wait_for(
                lambda: cluster.objects.get(
                    "apps/v1", "StatefulSet", f"alertmanager-{NAME}", MONITORING
                ),
                "Alertmanager's pods", seconds=SECONDS,
            )  # fmt: skip
        with alertmanager(text, folder) as address:
            yield Chain(
                https, mail, plain, yaml.safe_load(text),
                pods["spec"]["template"]["metadata"]["labels"],
                [each for each in objects if each["kind"] == "NetworkPolicy"], address,
            )  # fmt: skip


@pytest.fixture(scope="module")
def sent(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    """After a GPU broke."""
    rules = {"groups": [*rule_groups(), {"name": "general", "rules": [ALWAYS]}]}
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus(rules, METRICS, chain.alertmanager, folder):
        wait_for(lambda: chain.relay.mail, "mail of the alert", seconds=SECONDS)
        wait_for(
            lambda: {(BROKEN, "firing"), (HEARTBEAT, "firing")} <= chain.https.alerts("/on-call"),
            "the alert and the heartbeat", seconds=SECONDS,
        )  # fmt: skip
        wait_for(lambda: chain.plain.commands, "a try of the other relay", seconds=SECONDS)
        yield chain


def test_who_is_on_call_hears_of_it_and_of_nothing_else(sent: Chain) -> None:
    assert sent.https.alerts("/on-call") == {(BROKEN, "firing"), (HEARTBEAT, "firing")}
    of = [each for each in sent.https.requests if each.path == "/on-call"]
    assert {each.authorization for each in of} == {"Bearer s3cret"}
    [alert] = [
        alert for each in of for alert in each.body["alerts"]
        if alert["labels"]["alertname"] == BROKEN
    ][:1]  # fmt: skip
    assert alert["labels"]["node"] == "gpu-1"
    assert "have the GPU replaced" in alert["annotations"]["action"]


def test_an_incident_service_gets_an_event_with_its_key(sent: Chain) -> None:
    events = [each.body for each in sent.https.requests if each.path == "/v2/enqueue"]
    assert {each["routing_key"] for each in events} == {"r0uting"}
    assert {each["event_action"] for each in events} == {"trigger"}
    assert BROKEN in events[0]["payload"]["summary"]


def test_mail_goes_by_tls_alone(sent: Chain) -> None:
    assert all(safe for _, safe in sent.relay.mail)
    assert "To: ops@acme.example" in sent.relay.mail[0][0]
    assert BROKEN in sent.relay.mail[0][0]
    [login] = {line for line, _ in sent.relay.commands if line.startswith("AUTH PLAIN ")}
    assert base64.b64decode(login.split()[2]) == b"\0falaj\0pa55"
    assert {safe for line, safe in sent.relay.commands if line.startswith("AUTH")} == {True}
    # A relay that offers none gets neither a password nor an alert.
    assert not sent.plain.mail
    assert not [line for line, _ in sent.plain.commands if line.startswith(("AUTH", "DATA"))]


def test_a_redirect_and_a_stranger_get_nothing(sent: Chain) -> None:
    assert sent.https.alerts("/moved") == {(BROKEN, "firing")}
    assert not [each for each in sent.https.requests if each.path == "/elsewhere"]
    assert not [each for each in sent.https.requests if each.path == "/stranger"]


def test_a_secret_that_is_missing_is_told_and_silences_nobody_else(
    sent: Chain, cluster: ControlPlane
) -> None:
    assert not [each for each in sent.config["receivers"] if "forgotten" in each["name"]]
    told = [
        each for each in cluster.objects.list("v1", "Event", MONITORING)
        if each["involvedObject"]["name"] == "falaj-forgotten"
    ]  # fmt: skip
    assert any("absent" in each["message"] for each in told), told


def test_each_gets_the_severities_that_it_asked_for(sent: Chain) -> None:
    assert sent.https.alerts("/notes") == set()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    alert = {"labels": {"alertname": "GpuIdle", "severity": "info"}, "startsAt": now}
    assert asked(f"{sent.alertmanager}/api/v2/alerts", [alert])
    wait_for(lambda: sent.https.alerts("/notes"), "the note", seconds=SECONDS)
    assert sent.https.alerts("/notes") == {("GpuIdle", "firing")}
    assert "GpuIdle" not in {name for name, _ in sent.https.alerts("/on-call")}


def test_who_repairs_can_have_silence(sent: Chain) -> None:
    hours = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + each)) for each in
             (0, 3600)]  # fmt: skip
    matcher = {"name": "node", "value": "gpu-2", "isRegex": False, "isEqual": True}
    silence = {"matchers": [matcher], "startsAt": hours[0], "endsAt": hours[1],
               "createdBy": "ops", "comment": "its memory is replaced"}  # fmt: skip
    assert asked(f"{sent.alertmanager}/api/v2/silences", silence)["silenceID"]
    labels = {"alertname": "GpuHot", "severity": "warning", "node": "gpu-2"}
    alerts = [{"labels": labels}, {"labels": {**labels, "alertname": "Loud", "node": "gpu-3"}}]
    assert asked(f"{sent.alertmanager}/api/v2/alerts", alerts)
    wait_for(
        lambda: ("Loud", "firing") in sent.https.alerts("/on-call"), "another", seconds=SECONDS
    )
    assert "GpuHot" not in {name for name, _ in sent.https.alerts("/on-call")}


def test_others_hear_only_of_their_namespace(chain: Chain) -> None:
    routes = {each["receiver"]: each for each in chain.config["route"]["routes"]}
    assert routes["acme-serving/others/own"]["matchers"] == ['namespace="acme-serving"']
    ours = [each for name, each in routes.items() if name.startswith(f"{MONITORING}/falaj-")]
    assert len(ours) == 7
    for each in ours:
        assert "matchers" not in each
        assert each["continue"] is True


def test_its_pods_and_no_others_may_call_each_receiver(chain: Chain) -> None:
    assert len(chain.policies) == 8
    for each in chain.policies:
        wanted = each["spec"]["podSelector"]["matchLabels"]
        assert wanted
        assert wanted.items() <= chain.labels.items()
        assert each["spec"]["policyTypes"] == ["Egress"]
