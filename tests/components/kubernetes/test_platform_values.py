"""What a platform's charts are told: images, no reports, and differences by distribution."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.gpu_operator import sharing_profiles
from falaj.components.kubernetes.addons.installation import installations, manifests
from falaj.components.kubernetes.addons.kueue import kueue_configuration
from falaj.components.kubernetes.bill_of_materials import charts, images
from falaj.components.specification.gpu_node_pool import LEAST_SLICES, MOST_SLICES, Sharing
from tests.components.kubernetes.platforms import (
    DIGESTS,
    GOLDEN,
    PLACES,
    difference,
    findings,
    golden,
    leaves,
    program,
    spec,
    values,
)

#: What may differ, by facts of the platforms: driver and toolkit, fabrics, identities and stores
#: of secrets, places of backups, prices, and private load balancers.
DIFFERENT = {
    "aks": r"^(efa-device-plugin|cluster-autoscaler|aws-load-balancer-controller|network-operator"
           r"|external-secrets\.serviceAccount\.annotations|opencost\..*\.costModel"
           r"|velero\.(initContainers|podLabels|serviceAccount"
           r"|configuration\.backupStorageLocation))",
    "existing": r"^(efa-device-plugin|cluster-autoscaler|aws-load-balancer-controller"
                r"|network-operator|gpu-operator\.(driver|toolkit\.enabled)|opencost\..*\.costModel"
                r"|velero\.(credentials|extraVolume"
                r"|configuration\.backupStorageLocation))",
}  # fmt: skip
#: Values that would let something report outside, and what they have to be.
SILENT: dict[str, Any] = {
    "monitoring.prometheus.prometheusSpec.remoteWrite": [],
    "monitoring.grafana.grafana.ini.analytics.reporting_enabled": False,
    "monitoring.grafana.grafana.ini.analytics.check_for_updates": False,
    "monitoring.grafana.grafana.ini.analytics.check_for_plugin_updates": False,
    "monitoring.grafana.grafana.ini.analytics.feedback_links_enabled": False,
    "monitoring.grafana.grafana.ini.plugins.plugin_admin_enabled": False,
    "monitoring.grafana.grafana.ini.plugins.public_key_retrieval_disabled": True,
    "monitoring.grafana.grafana.ini.plugins.preinstall_disabled": True,
    "monitoring.grafana.grafana.ini.news.news_feed_enabled": False,
    "monitoring.grafana.grafana.ini.snapshots.external_enabled": False,
    "monitoring.grafana.grafana.ini.security.disable_gravatar": True,
    "opencost.opencost.cloudCost.enabled": False,
    "opencost.opencost.exporter.cloudProviderApiKey": "",
    "opencost.opencost.customPricing.enabled": True,
}
#: Values that switch a chart's hooks off: they aren't run.
HOOKLESS: dict[str, Any] = {
    "cert-manager.startupapicheck.enabled": False,
    "monitoring.prometheusOperator.admissionWebhooks.patch.enabled": False,
    "monitoring.grafana.testFramework.enabled": False,
    "monitoring.crds.upgradeJob.enabled": False,
    "gpu-operator.operator.upgradeCRD": False,
    "gpu-operator.operator.cleanupCRD": False,
    "gpu-operator.node-feature-discovery.postDeleteCleanup": False,
    "envoy-gateway.topologyInjector.enabled": False,
    "trainer.runtimes.defaultEnabled": False,
    "velero.upgradeCRDs": False,
    "velero.cleanUpCRDs": False,
}


def at(path: str, place: str = "eks") -> Any:
    """A value by its path; keys may have dots of their own."""
    found: Any = values(spec(place))
    rest = path
    while rest:
        key = max((each for each in found if rest == each or rest.startswith(f"{each}.")), key=len)
        found, rest = found[key], rest[len(key) + 1 :]
    return found


@pytest.mark.parametrize("place", PLACES)
def test_every_image_is_of_the_registry_and_by_digest(place: str) -> None:
    found = spec(place)
    registry = PLACES[place]["registry"]
    assert found.images
    for name, reference in found.images.items():
        assert reference.startswith(f"{registry}/"), name
        assert reference.endswith(f"@{DIGESTS[name]}"), name
    said = yaml.safe_dump([values(found), [dict(each) for each in manifests(found)]], width=9999)
    for name in found.images:
        digest = DIGESTS[name].removeprefix("sha256:")
        assert digest in said, f"{name} is asked for, but nothing runs it"
    hosts = {image.source.partition("/")[0] for image in images().values() if image.source}
    for host in hosts:
        for line in said.splitlines():
            if f"{host}/" in line:
                assert f"{registry}/{host}/" in line, line.strip()


@pytest.mark.parametrize("place", PLACES)
def test_every_chart_is_pinned_in_the_registry(place: str) -> None:
    for each in installations(spec(place)):
        for chart in each.charts:
            assert chart.reference.startswith(f"oci://{PLACES[place]['registry']}/charts/")
            assert re.fullmatch(r"v?\d+\.\d+\.\d+", chart.version)
            assert chart.namespace in {of.name for of in ADDONS[each.addon].namespaces}


def test_bill_of_materials_says_who_uses_an_image() -> None:
    for place in PLACES:
        found = spec(place)
        for name, addon in ADDONS.items():
            for image in addon.images(found) if found.has(name) else ():
                if not images()[image].is_ours:
                    assert name in images()[image].used_by, f"{image} is used by {name}"
    assert {each.chart for addon in ADDONS.values() for each in addon.releases} <= set(charts())


@pytest.mark.parametrize(("path", "value"), [*SILENT.items(), *HOOKLESS.items()])
def test_nothing_reports_outside_and_no_hook_is_left_on(path: str, value: Any) -> None:
    assert at(path) == value


@pytest.mark.parametrize("place", ["aks", "existing"])
def test_distributions_differ_in_what_facts_name(place: str) -> None:
    own, base = PLACES[place], PLACES["eks"]
    there = dict(leaves(values(spec("eks"))))
    for path, value in difference(place).items():
        if isinstance(value, str) and isinstance(there.get(path), str):
            same = there[path].replace(base["registry"], own["registry"])
            if value == same.replace(base["region"], own["region"]):
                continue
        if path.endswith("kubernetes.io/region"):
            continue
        assert re.search(DIFFERENT[place], path), f"{path} is {value!r} on {place}"


@pytest.mark.parametrize("place", PLACES)
def test_values_are_those_that_were_reviewed(place: str) -> None:
    kept = (GOLDEN / f"{place}.yaml").read_text(encoding="utf-8")
    assert golden(place) == kept, "reviewed? python -m tests.components.kubernetes.platforms"


@pytest.mark.parametrize("place", PLACES)
def test_rules_of_all_packs_find_nothing(place: str) -> None:
    assert findings(program(spec(place))) == []


def test_nodes_are_labelled_with_profiles_that_the_device_plugin_has() -> None:
    profiles = sharing_profiles()
    for parts in range(LEAST_SLICES, MOST_SLICES + 1):
        label = Sharing("time-slicing", None, parts).operator_labels
        body = yaml.safe_load(profiles[label["nvidia.com/device-plugin.config"]])
        slicing = body["sharing"]["timeSlicing"]
        assert slicing["renameByDefault"] is True
        assert slicing["failRequestsGreaterThanOne"] is True
        assert slicing["resources"] == [{"name": "nvidia.com/gpu", "replicas": parts}]
    assert yaml.safe_load(profiles["mps-4"])["sharing"]["mps"]["renameByDefault"] is True
    assert "sharing" not in yaml.safe_load(
        profiles[at("gpu-operator.devicePlugin.config.default")]
    )


def test_the_driver_is_installed_where_nodes_have_none() -> None:
    for place, expected in (("eks", False), ("aks", False), ("existing", True)):
        assert at("gpu-operator.driver.enabled", place) is expected
        assert at("gpu-operator.toolkit.enabled", place) is expected
    own = {"gpu-operator": {"driver": False}}
    assert values(spec("existing", own))["gpu-operator"]["driver"] == {"enabled": False}


def test_kueue_manages_what_names_no_queue_and_gives_up_gangs_that_do_not_form() -> None:
    found = kueue_configuration(spec("eks", {"kueue": {"ready_minutes": 45, "requeue_limit": 3}}))
    assert found["manageJobsWithoutQueueName"] is True
    assert found["waitForPodsReady"]["timeout"] == "45m"
    assert found["waitForPodsReady"]["requeuingStrategy"]["backoffLimitCount"] == 3
    assert found["resources"]["quotaCheckStrategy"] == "BlockUndeclared"
    assert found["internalCertManagement"] == {"enable": False}
    webhooks = ("cert-manager", "envoy-gateway", "kserve", "aws-load-balancer-controller")
    alone = spec("eks", dict.fromkeys(webhooks, False))
    assert kueue_configuration(alone)["internalCertManagement"] == {"enable": True}
    inside = values(spec("eks"))["kueue"]["managerConfig"]["controllerManagerConfigYaml"]
    assert yaml.safe_load(inside) == kueue_configuration(spec("eks"))
