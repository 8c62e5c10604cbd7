"""In which order a platform is registered: what waits for what."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes import Platform
from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.installation import manifests
from tests.components.kubernetes.platforms import arguments, spec
from tests.components.kubernetes.registrations import recorded

CHART = "kubernetes:helm.sh/v4:Chart"


@pytest.fixture(scope="module")
def registered() -> dict[str, Any]:
    """Requests by ``Kind name`` of the EKS platform, as the engine gets them."""
    with recorded() as requests:

        @pulumi.runtime.test
        def run() -> None:
            Platform("platform", arguments("eks"))

        run()
    return {f"{each.type.rpartition(':')[2]} {each.name}": each for each in requests}


def urns(requests: dict[str, Any], kind: str) -> set[str]:
    return {name.partition(" ")[2] for name in requests if name.startswith(f"{kind} ")}


def waits(request: Any) -> set[str]:
    """Names of the resources that it waits for, of which components are named by themselves."""
    return {urn.rpartition("::")[2] for urn in request.dependencies}


def test_every_object_and_chart_is_registered(registered: dict[str, Any]) -> None:
    found = spec("eks")
    charts = {f"platform-{each.name}" for name in found.addons for each in ADDONS[name].releases}
    assert urns(registered, "Chart") == charts
    objects = [each for name, each in registered.items() if each.custom]
    assert len(objects) == len(manifests(found))
    assert all(each.parent for each in objects)


def test_charts_wait_for_namespaces_policies_and_the_charts_they_need(
    registered: dict[str, Any],
) -> None:
    namespaces = urns(registered, "Namespace")
    policies = urns(registered, "NetworkPolicy")
    assert namespaces
    assert policies
    for name in spec("eks").addons:
        for release in ADDONS[name].releases:
            waited = waits(registered[f"Chart platform-{release.name}"])
            assert waited >= namespaces | policies, release.name
            for needed in ADDONS[name].needs:
                assert waited >= {f"platform-{each.name}" for each in ADDONS[needed].releases}


def test_charts_of_one_add_on_come_one_after_the_other(registered: dict[str, Any]) -> None:
    for addon in ADDONS.values():
        names = [f"platform-{each.name}" for each in addon.releases]
        if names and all(f"Chart {each}" in registered for each in names):
            for first, second in pairwise(names):
                assert first in waits(registered[f"Chart {second}"])


@pytest.mark.parametrize(
    ("resource", "chart"),
    [
        ("ClusterIssuer platform-cert-manager-after-clusterissuer-falaj", "cert-manager"),
        ("ClusterSecretStore platform-external-secrets-after-clustersecretstore-falaj",
         "external-secrets"),
        ("PrometheusRule platform-monitoring-after-prometheusrule-monitoring-falaj", "monitoring"),
        ("PeerAuthentication platform-istio-after-peerauthentication-istio-system-strict",
         "istio-base"),
        ("ClusterTrainingRuntime platform-trainer-after-clustertrainingruntime-falaj-torch",
         "trainer"),
        ("Certificate platform-envoy-gateway-before-certificate-envoy-gateway-system-envoy",
         "cert-manager"),
    ],
)  # fmt: skip
def test_objects_wait_for_the_chart_that_defines_them(
    registered: dict[str, Any], resource: str, chart: str
) -> None:
    assert f"platform-{chart}" in waits(registered[resource])


def test_the_gateway_waits_for_its_certificates(registered: dict[str, Any]) -> None:
    waited = waits(registered["Chart platform-envoy-gateway"])
    assert "platform-envoy-gateway-before-certificate-envoy-gateway-system-envoy" in waited
