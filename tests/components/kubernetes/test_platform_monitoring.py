"""Alerts and dashboards: metrics that exist, panels that fit, and monitors of every add-on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.alerts import GROUPS, LATENCY_BOUND, Alert, Record
from falaj.components.kubernetes.addons.installation import manifests
from falaj.components.kubernetes.addons.monitoring import DASHBOARDS, dashboard
from falaj.workloads.inference.metrics import BOUNDS, Counters, Totals
from tests.components.kubernetes.platforms import spec

#: DCGM's counters: etc/default-counters.csv of dcgm-exporter, and its own.
DCGM = {
    "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT",
}  # fmt: skip
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


def test_gpu_metrics_are_dcgms() -> None:
    assert names(r"DCGM_\w+") == DCGM


def test_metrics_of_services_are_those_that_the_server_has() -> None:
    wanted = names(r"falaj_inference_\w+")
    assert wanted
    assert wanted <= served() | {
        "falaj_inference_overflowed_total",
        "falaj_inference_responses_total",
    }


def test_the_latency_bound_is_one_of_the_servers() -> None:
    assert LATENCY_BOUND in BOUNDS
    assert f'le="{LATENCY_BOUND:g}"' in " ".join(EXPRESSIONS)


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


def test_every_scrape_has_a_monitor_where_the_policy_lets_prometheus_in() -> None:
    found = spec("eks")
    scraped = [(addon, each) for addon in ADDONS.values() for each in addon.scrapes]
    assert len(monitors(found)) == len(scraped)
    for addon, each in scraped:
        assert addon.traffic(found)[each.namespace].scrapes, addon.name


def test_metrics_behind_tls_are_read_with_the_certificate_or_not_at_all() -> None:
    for each in monitors(spec("eks")):
        for endpoint in each["spec"].get("endpoints", []):
            assert endpoint["tlsConfig"]["ca"]["secret"]["name"]
            assert "insecureSkipVerify" not in endpoint["tlsConfig"]
    alone = spec("eks", {"cert-manager": False, "envoy-gateway": False, "kserve": False})
    assert not [each for each in monitors(alone) if each["kind"] == "ServiceMonitor"]


def test_grafana_can_be_left_out() -> None:
    found = spec("eks", {"monitoring": {"grafana": False}})
    assert "grafana" not in found.images
    kinds = [each["kind"] for each in manifests(found)]
    assert "ConfigMap" not in kinds
    names = {each["metadata"]["name"] for each in manifests(found)}
    assert "grafana-admin" not in names
