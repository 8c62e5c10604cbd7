"""Alerts and dashboards: metrics that exist, panels that fit, and monitors of every add-on."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from falaj import components
from falaj.components.kubernetes.addons import ADDONS, gpu_metrics
from falaj.components.kubernetes.addons.alerts import (
    FIRST_TOKEN_BOUND,
    GROUPS,
    LATENCY_BOUND,
    Alert,
    Record,
)
from falaj.components.kubernetes.addons.gpu_metrics import (
    METRICS,
    NODE,
    SLOWED,
    WINDOW_MINUTES,
    WINDOW_VARIABLES,
    listing,
)
from falaj.components.kubernetes.addons.installation import installations, manifests
from falaj.components.kubernetes.addons.monitoring import DASHBOARDS, dashboard
from falaj.policies.model import Stack
from falaj.workloads.inference.metrics import BOUNDS, TEXT_BOUNDS, Counters, Totals
from falaj.workloads.inference.protocol.routes import INFERENCES
from tests.components.kubernetes import alert_cases
from tests.components.kubernetes.platforms import HOOK, MAIL, PAGER, findings, program, spec

KINDS = {each.name: each.kind for each in METRICS}
EXPRESSIONS = [
    *(each.expr for group in GROUPS.values() for each in group),
    *(panel.expr for panels in DASHBOARDS.values() for panel in panels),
]


def names(pattern: str) -> set[str]:
    return {found for each in EXPRESSIONS for found in re.findall(pattern, each)}


def served() -> set[str]:
    """Names of the metrics that our server has, as Prometheus stores them."""
    totals = Totals("fraud")
    totals.update(1, 1, Counters().snapshot())
    lines = totals.render().decode().splitlines()
    return {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}


def exporter() -> dict[str, Any]:
    """Values of the exporter in the GPU operator's chart."""
    (chart,) = [
        chart
        for each in installations(spec("existing"))
        for chart in each.charts
        if chart.release == "gpu-operator"
    ]
    values: dict[str, Any] = chart.values["dcgmExporter"]
    return values


def test_every_gpu_metric_that_is_named_anywhere_is_shipped() -> None:
    """Of the exporter's lists none has the errors: a query of them would find nothing."""
    folder = Path(components.__path__[0])
    written = {
        found
        for file in folder.resolve().rglob("*.py")
        if not file.samefile(gpu_metrics.__file__)
        for found in re.findall(r"\bDCGM_FI_\w+|\bDCGM_EXP_\w+", file.read_text("utf-8"))
    }
    assert {"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"} <= written
    assert written <= KINDS.keys()


@pytest.mark.parametrize("expression", [each for each in EXPRESSIONS if "DCGM_" in each])
def test_growth_is_asked_of_counters_and_level_of_gauges(expression: str) -> None:
    found = re.findall(r"(?:(\w+)\()?(DCGM_\w+)", expression)
    assert found
    for function, name in found:
        growth = function in {"increase", "rate", "irate", "delta", "resets"}
        assert growth == (KINDS[name] == "counter"), f"{function}({name}) of a {KINDS[name]}"


def test_the_exporter_is_given_the_list_and_the_window() -> None:
    given = exporter()
    assert given["config"] == {"name": "falaj-gpu-metrics", "create": True, "data": listing()}
    assert {each["name"]: each["value"] for each in given["env"]} == dict.fromkeys(
        WINDOW_VARIABLES, str(WINDOW_MINUTES * 60_000)
    )
    (label,) = given["serviceMonitor"]["relabelings"]
    assert label["targetLabel"] == NODE


def test_the_list_has_three_fields_a_line_and_each_name_once() -> None:
    """With another number of fields the exporter ends at its start."""
    rows = [[field.strip() for field in row] for row in csv.reader(listing().splitlines())]
    assert {len(row) for row in rows} == {3}
    assert {row[1] for row in rows} == {"gauge", "counter"}
    assert len({row[0] for row in rows}) == len(rows) == len(METRICS)


def test_labels_of_gpus_are_those_that_prometheus_gives() -> None:
    """The exporter changed the case of its own label between versions."""
    texts = " ".join(
        [*EXPRESSIONS, *(panel.legend for panels in DASHBOARDS.values() for panel in panels)]
    )
    assert "hostname" not in texts.lower()
    # All of them that the exporter knows are in clock_events_collector.go of it.
    assert set(SLOWED) <= {
        "gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal",
        "hw_thermal", "hw_power_brake", "display_clocks",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(alert_cases.alerts()))
def test_every_alert_has_cases_that_fire_and_that_do_not(name: str) -> None:
    fired = [
        each for case in alert_cases.CASES if case.alert == name for each in case.fires.values()
    ]
    assert any(fired)
    assert not all(fired)


@pytest.mark.thorough
def test_prometheus_fires_the_alerts() -> None:
    found = alert_cases.judged()
    assert found.returncode == 0, found.stdout + found.stderr


def test_without_prometheus_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert alert_cases.main() == 1
    assert "no rule was tried: prometheus: this machine has no packages" in capsys.readouterr().err


def test_metrics_of_services_are_those_that_the_server_has() -> None:
    wanted = names(r"falaj_inference_\w+")
    assert wanted
    assert wanted <= served() | {
        "falaj_inference_overflowed_total",
        "falaj_inference_responses_total",
        "falaj_inference_tokens_total",
    }


def test_the_bounds_of_the_promise_are_those_of_the_server() -> None:
    assert LATENCY_BOUND in BOUNDS
    assert FIRST_TOKEN_BOUND in TEXT_BOUNDS
    assert FIRST_TOKEN_BOUND != LATENCY_BOUND
    for each in (LATENCY_BOUND, FIRST_TOKEN_BOUND):
        assert f'le="{each:g}"' in " ".join(EXPRESSIONS)


def test_the_promise_is_of_every_route_by_which_a_model_is_asked() -> None:
    routes = {each for found in EXPRESSIONS for each in re.findall(r'route=~"([^"]+)"', found)}
    assert [set(each.split("|")) for each in routes] == [INFERENCES]


def test_series_that_are_recorded_are_used_and_the_other_way_round() -> None:
    recorded = {
        each.name for group in GROUPS.values() for each in group if isinstance(each, Record)
    }
    assert names(r"falaj:[\w:]+") == recorded


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_are_closed(expression: str) -> None:
    plain = re.sub(r'"[^"]*"', "", expression)
    for opening, closing in ("()", "[]", "{}"):
        assert plain.count(opening) == plain.count(closing)
    assert plain.count('"') == 0


def state_metrics(**changes: Any) -> dict[str, Any]:
    """Values of kube-state-metrics in the chart of Prometheus."""
    (values,) = [
        chart.values["kube-state-metrics"]
        for each in installations(spec("existing", **changes))
        for chart in each.charts
        if "kube-state-metrics" in chart.values
    ]
    return values


def test_clusters_that_jobs_are_sent_to_are_watched_for_the_alert_that_reads_them() -> None:
    values = state_metrics()
    (resource,) = values["customResourceState"]["config"]["spec"]["resources"]
    (metric,) = resource["metrics"]
    (label,) = resource["labelsFromPath"]
    kind = resource["groupVersionKind"]
    (rule,) = values["rbac"]["extraRules"]
    assert rule["apiGroups"] == [kind["group"]]
    assert rule["resources"] == [f"{kind['kind'].lower()}s"]
    assert set(rule["verbs"]) == {"list", "watch"}
    (alert,) = [each for each in GROUPS["queues"] if each.name == "WorkerClusterLost"]
    assert isinstance(alert, Alert)
    assert f"kube_customresource_{metric['name']}{{" in alert.expr
    assert f"$labels.{label} " in alert.summary


def test_alerts_say_what_to_do() -> None:
    alerts = [each for group in GROUPS.values() for each in group if isinstance(each, Alert)]
    assert len({each.name for each in alerts}) == len(alerts)
    for each in alerts:
        assert each.severity in {"critical", "warning", "info"}
        assert each.action
        assert each.rule()["annotations"]["summary"].count("{{") == each.summary.count("}}")


@pytest.mark.parametrize("title", DASHBOARDS)
def test_panels_do_not_overlap(title: str) -> None:
    body = json.loads(dashboard(title))
    taken: set[tuple[int, int]] = set()
    for panel in body["panels"]:
        place: dict[str, int] = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in body["panels"]}) == len(body["panels"])


def monitors(of: Any) -> list[Any]:
    return [each for each in manifests(of) if each["kind"] in {"PodMonitor", "ServiceMonitor"}]


@pytest.mark.parametrize(
    ("place", "asked", "absent"),
    [
        ("eks", {}, {"node-repair"}),
        (
            "existing",
            {"node-repair": True},
            {"cluster-autoscaler", "aws-load-balancer-controller"},
        ),
    ],
)
def test_every_scrape_has_a_monitor_where_the_policy_lets_prometheus_in(
    place: str, asked: dict[str, Any], absent: set[str]
) -> None:
    found = spec(place, asked)
    scraped = [
        (addon, each)
        for addon in ADDONS.values()
        for each in addon.scrapes
        if addon.name not in absent
    ]
    assert len(monitors(found)) == len(scraped)
    for addon, each in scraped:
        assert addon.traffic(found)[each.namespace].scrapes, addon.name


def test_metrics_behind_tls_are_read_with_the_certificate_or_not_at_all() -> None:
    for each in monitors(spec("eks")):
        for endpoint in each["spec"].get("endpoints", []):
            assert endpoint["tlsConfig"]["ca"]["secret"]["name"]
            assert "insecureSkipVerify" not in endpoint["tlsConfig"]
    webhooks = ("cert-manager", "envoy-gateway", "kserve", "aws-load-balancer-controller")
    alone = spec("eks", dict.fromkeys(webhooks, False))
    assert not [each for each in monitors(alone) if each["kind"] == "ServiceMonitor"]


def test_grafana_can_be_left_out() -> None:
    found = spec("eks", {"monitoring": {"grafana": False}})
    assert "grafana" not in found.images
    of = [each for each in manifests(found) if each["metadata"].get("namespace") == "monitoring"]
    kinds = [each["kind"] for each in of]
    assert "ConfigMap" not in kinds
    names = {each["metadata"]["name"] for each in manifests(found)}
    assert "grafana-admin" not in names


def receivers(place: str = "existing", **changes: dict[str, Any]) -> Stack:
    """A platform with one receiver, or none."""
    of = spec(place, {"monitoring": {"receivers": changes}})
    return program(of)


def test_nobody_is_told_unless_a_platform_says_who() -> None:
    kinds = {each["kind"] for each in manifests(spec("existing", {"monitoring": {}}))}
    assert "AlertmanagerConfig" not in kinds
    rules = {rule for rule, _, _ in findings(receivers(ops=HOOK))}
    assert rules == set()


@pytest.mark.parametrize(
    "given",
    [
        {**HOOK, "webhook": "https://events.pagerduty.com/v2/enqueue"},
        {**HOOK, "webhook": "https://alerts.elsewhere.example/falaj"},
        {**HOOK, "webhook": "https://203.0.113.7/falaj"},
        {**PAGER, "pagerduty": "https://events.eu.pagerduty.com/v2/enqueue"},
        {**MAIL, "relay": "smtp.gmail.com:587"},
        {**MAIL, "relay": "email-smtp.eu-west-1.amazonaws.com:587"},
    ],
)
def test_alerts_leave_the_country_nowhere(given: dict[str, Any]) -> None:
    found = [(rule, name) for rule, name, _ in findings(receivers(ops=given))]
    assert found
    assert {name for _, name in found} == {"AlertmanagerConfig/monitoring/falaj-ops"}


def test_each_address_opens_its_own_port() -> None:
    given = {
        "a": HOOK, "b": {**HOOK, "webhook": "https://alerts.acme.example:8443"}, "c": MAIL,
    }  # fmt: skip
    of = manifests(spec("existing", {"monitoring": {"receivers": given}}))
    found = {
        each["metadata"]["name"]: each["spec"]["egress"] for each in of
        if each["metadata"]["name"].startswith("allow-to-receiver-")
    }  # fmt: skip
    assert found == {
        f"allow-to-receiver-{name}": [
            {
                "to": [{"ipBlock": {"cidr": cidr}}],
                "ports": [{"port": port, "protocol": "TCP"}],
            }
        ]
        for name, cidr, port in (
            ("a", "10.9.0.0/24", 443), ("b", "10.9.0.0/24", 8443), ("c", "10.9.1.25/32", 587),
        )
    }  # fmt: skip
