"""Charts that can be had as Go modules, rendered with the platform's values by helm itself.

Every value has a key in the chart, and every pod is what the platform says of it. What rules find
of the charts' objects is in `test_platform_waivers`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.kubernetes.addons.installation import installations
from components.specification.kubernetes_version import DEFAULT as KUBERNETES
from engine.controlplane import binaries
from engine.gobuild import module_folders
from engine.oci.tools import ensure
from engine.progress import to_stderr
from tests.components.kubernetes.platforms import spec, values
from tests.components.kubernetes.test_platform_monitoring import EXPRESSIONS

pytestmark = pytest.mark.cluster

#: By release: the control plane's module that pins it, the Go module, and the chart's folder.
CHARTS: dict[str, tuple[str, str, str]] = {
    "kueue": ("kueue", "sigs.k8s.io/kueue", "charts/kueue"),
    "jobset": ("jobset", "sigs.k8s.io/jobset", "charts/jobset"),
    "trainer": ("trainer", "github.com/kubeflow/trainer/v2", "charts/kubeflow-trainer"),
    "envoy-gateway": ("crds", "github.com/envoyproxy/gateway", "charts/gateway-helm"),
    "cert-manager": (
        "crds", "github.com/cert-manager/cert-manager", "deploy/charts/cert-manager",
    ),
}  # fmt: skip
#: Keys below which templates take whatever Kubernetes does.
FREE = {"nodeSelector", "securityContext", "resources"}
#: Keys that templates read and values.yaml only mentions in a comment.
UNLISTED = {
    "cert-manager": {
        "image.tag", "webhook.image.tag", "cainjector.image.tag", "acmesolver.image.tag",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of the charts, as their vendors publish them."""
    scratch = tmp_path_factory.mktemp("charts")
    found: dict[str, Path] = {}
    for release, (pinned_by, module, path) in CHARTS.items():
        built = binaries.built()[pinned_by].module
        source = module_folders(built, [module], scratch / f"{release}-module", to_stderr)[module]
        found[release] = scratch / release
        shutil.copytree(source / path, found[release], copy_function=shutil.copyfile)
    _publish(found)
    return found


def _publish(folders: Mapping[str, Path]) -> None:
    """What the vendors' releases do to the sources of two charts."""
    gateway = folders["envoy-gateway"]
    template = (gateway / "values.tmpl.yaml").read_text("utf-8")
    text = template.replace("${GatewayImagePullPolicy}", "IfNotPresent")
    (gateway / "values.yaml").write_text(text.replace("${GatewayImage}", "a/b:c"), "utf-8")
    trainer = folders["trainer"] / "Chart.yaml"
    about = yaml.safe_load(trainer.read_text("utf-8"))
    # Charts of others, which its values leave out.
    assert {each["name"] for each in about.pop("dependencies")} == {"jobset", "lws"}
    trainer.write_text(yaml.safe_dump(about), "utf-8")


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
def test_every_value_has_a_key_in_the_chart(folders: dict[str, Path], release: str) -> None:
    known = yaml.safe_load((folders[release] / "values.yaml").read_text("utf-8"))
    found = set(unknown(values(spec("eks"))[release], known))
    assert found == UNLISTED.get(release, set())


def test_a_key_that_the_chart_does_not_have_is_found() -> None:
    chart = {"replicas": 1, "image": {"tag": ""}, "labels": {}}
    given = {"replica": 2, "image": {"tags": ""}, "labels": {"a": "b"}}
    assert list(unknown(given, chart)) == ["replica", "image.tags"]


def test_alerts_on_queues_name_metrics_that_kueue_has(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pinned_by, module, _ = CHARTS["kueue"]
    scratch = tmp_path_factory.mktemp("metrics") / "module"
    folder = module_folders(binaries.built()[pinned_by].module, [module], scratch, to_stderr)
    source = (folder[module] / "pkg/metrics/metrics.go").read_text("utf-8")
    known = {f"kueue_{name}" for name in re.findall(r'Name: +"(\w+)"', source)}
    wanted = {found for each in EXPRESSIONS for found in re.findall(r"kueue_\w+", each)}
    assert wanted
    assert {re.sub(r"_bucket$", "", each) for each in wanted} <= known


@cache
def helm() -> Path:
    return ensure("helm")


def rendered(folder: Path, release: str) -> list[dict[str, Any]]:
    """Objects of a chart without its hooks, as `kubernetes:helm.sh/v4:Chart` registers them."""
    chart = next(
        chart
        for each in installations(spec("eks"))
        for chart in each.charts
        if chart.release == release
    )
    file = folder.with_name(f"{release}-values.yaml")
    file.write_text(yaml.safe_dump(chart.values), "utf-8")
    done = subprocess.run(
        [helm(), "template", release, folder, "--namespace", chart.namespace, "--values", file,
         "--no-hooks", "--kube-version", KUBERNETES],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    documents = yaml.load_all(done.stdout, yaml.CSafeLoader)
    return [each for each in documents if each and each["kind"] != "CustomResourceDefinition"]


@pytest.fixture(scope="module")
def children(folders: dict[str, Path]) -> dict[str, list[dict[str, Any]]]:
    return {release: rendered(folder, release) for release, folder in folders.items()}


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
