"""Charts that can be had as Go modules, rendered with the platform's values by helm itself.

Every value has a key in the chart, and every pod is what the platform says of it. What rules find
of the charts' objects is in `test_platform_waivers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.components.kubernetes.addons.installation import installations
from falaj.components.specification.limits import DEFAULT_KUBERNETES_VERSION as KUBERNETES
from falaj.engine.controlplane import binaries
from falaj.engine.gobuild import module_folders
from falaj.engine.oci import ensure
from falaj.engine.progress import to_stderr
from falaj.sandbox.charts import library
from falaj.sandbox.charts.library import Chart, Rendering, missing_dependencies, render
from tests.components.kubernetes.platforms import spec, values
from tests.components.kubernetes.test_platform_monitoring import EXPRESSIONS

pytestmark = pytest.mark.cluster

#: By release: the chart that it is of.
CHARTS = {
    "kueue": "kueue",
    "jobset": "jobset",
    "trainer": "kubeflow-trainer",
    "envoy-gateway": "gateway-helm",
    "cert-manager": "cert-manager",
}
#: Keys below which templates take whatever Kubernetes does.
FREE = {"nodeSelector", "securityContext", "resources"}
#: Keys that templates read and values.yaml only mentions in a comment.
UNLISTED = {
    "cert-manager": {
        "image.tag", "webhook.image.tag", "cainjector.image.tag", "acmesolver.image.tag",
        "webhook.podDisruptionBudget.minAvailable",
        "webhook.podDisruptionBudget.unhealthyPodEvictionPolicy",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def published(charts_of_modules: Path) -> dict[str, Chart]:
    """The charts by release, as their projects publish them."""
    found = {chart.name: chart for chart in library.add((), charts_of_modules)}
    return {release: found[name] for release, name in CHARTS.items()}


def unknown(given: Any, known: Any, path: str = "") -> Iterator[str]:
    """Keys that a chart's values don't have; below an empty map or list anything goes."""
    if not isinstance(given, Mapping) or not known or not isinstance(known, Mapping):
        return
    for key, value in given.items():
        at = f"{path}.{key}" if path else str(key)
        if key not in known:
            yield at
        elif key not in FREE:
            yield from unknown(value, known[key], at)


@pytest.mark.parametrize("release", CHARTS)
def test_every_value_has_a_key_in_the_chart(published: dict[str, Chart], release: str) -> None:
    known = yaml.safe_load((published[release].path / "values.yaml").read_text("utf-8"))
    found = set(unknown(values(spec("eks"))[release], known))
    assert found == UNLISTED.get(release, set())


def test_the_trainer_depends_only_on_charts_that_its_values_leave_out(
    published: dict[str, Chart],
) -> None:
    missing = missing_dependencies(published["trainer"].path)
    assert {name for name, _ in missing} == {"jobset", "lws"}


def test_a_key_that_the_chart_does_not_have_is_found() -> None:
    chart = {"replicas": 1, "image": {"tag": ""}, "labels": {}}
    given = {"replica": 2, "image": {"tags": ""}, "labels": {"a": "b"}}
    assert list(unknown(given, chart)) == ["replica", "image.tags"]


def test_alerts_on_queues_name_metrics_that_kueue_has(tmp_path: Path) -> None:
    module = "sigs.k8s.io/kueue"
    built = binaries.built()["kueue"].module
    folder = module_folders(built, [module], tmp_path / "module", to_stderr)
    source = (folder[module] / "pkg/metrics/metrics.go").read_text("utf-8")
    known = {f"kueue_{name}" for name in re.findall(r'Name: +"(\w+)"', source)}
    wanted = {found for each in EXPRESSIONS for found in re.findall(r"kueue_\w+", each)}
    assert wanted
    assert {re.sub(r"_bucket$", "", each) for each in wanted} <= known


def rendered(chart: Chart, release: str, charts: Path) -> list[dict[str, Any]]:
    """Objects of a chart without its hooks, as `kubernetes:helm.sh/v4:Chart` registers them."""
    declared = next(
        chart
        for each in installations(spec("eks"))
        for chart in each.charts
        if chart.release == release
    )
    rendering = Rendering(
        release, declared.namespace, declared.values, skip_crds=True, kube_version=KUBERNETES
    )
    text = render(ensure("helm"), chart, rendering, charts)
    documents = yaml.load_all(text, yaml.CSafeLoader)
    return [each for each in documents if each and each["kind"] != "CustomResourceDefinition"]


@pytest.fixture(scope="module")
def children(
    published: dict[str, Chart], charts_of_modules: Path
) -> dict[str, list[dict[str, Any]]]:
    return {
        release: rendered(chart, release, charts_of_modules)
        for release, chart in published.items()
    }


@pytest.mark.parametrize("release", CHARTS)
def test_pods_are_pinned_to_the_region_with_images_of_the_registry(
    children: dict[str, list[dict[str, Any]]], release: str
) -> None:
    found = spec("eks")
    pods = [
        each["spec"]["template"]["spec"]
        for each in children[release]
        if each["kind"] in {"Deployment", "DaemonSet", "StatefulSet", "Job"}
    ]
    assert pods
    for pod in pods:
        assert pod["nodeSelector"].items() >= found.placed.node_selector.items()
        for container in pod["containers"]:
            assert container["image"] in found.images.values()
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]
