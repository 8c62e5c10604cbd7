"""Whatever Falaj's own components render passes the admission that Falaj installs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from components.kubernetes._objects import Manifest, key_of
from components.kubernetes.tenancy.arguments import check as check_tenant
from components.kubernetes.tenant import manifests as tenant_manifests
from engine.controlplane import ControlPlane
from tests.cluster.residency_cluster import account, refusal, residence
from tests.components.kubernetes import platforms, serving_services, training_jobs

pytestmark = pytest.mark.cluster

REGISTRY = "registry.acme.example/falaj"
SITE: dict[str, Any] = {
    "distribution": "existing", "region": "dxb-1", "registry": REGISTRY, "tenant": "platform",
    "owner": "platform@acme.example", "data_class": "confidential", "cost_center": "ai-1",
    "allowed_hosts": ["openbao.acme.example", "s3.acme.example"],
}  # fmt: skip
TENANT = {**SITE, "tenant": "acme"}
#: Groups whose kinds are served: those of controllers that don't run here aren't.
SERVED = (
    "", "apps", "batch", "policy", "networking.k8s.io", "rbac.authorization.k8s.io",
    "storage.k8s.io", "scheduling.k8s.io", "gateway.networking.k8s.io", "external-secrets.io",
    "admissionregistration.k8s.io",
)  # fmt: skip


def _group(manifest: Manifest) -> str:
    return str(manifest["apiVersion"]).rpartition("/")[0]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with residence(SITE) as found:
        found.define("gateway-api", "external-secrets")
        tenant = {key: each for key, each in TENANT.items() if key != "allowed_hosts"}
        made = tenant_manifests(check_tenant("acme", cast("Any", tenant)))
        found.apply([each for each in made if _group(each) in SERVED])
        found.apply([account("trainer", "acme-training"), account("inference", "acme-serving")])
        yield found


def _refused(plane: ControlPlane, manifests: list[Manifest]) -> dict[str, str]:
    """What is refused by a policy of Residency, by object; and how many were asked about."""
    asked = [each for each in manifests if _group(each) in SERVED]
    assert asked
    said = {key_of(each): refusal(plane, each) for each in asked}
    return {key: each for key, each in said.items() if "ValidatingAdmissionPolicy 'falaj-" in each}


def test_tenants(plane: ControlPlane) -> None:
    """They were made, with the policies in force; a tenant's own admission beside them."""
    assert plane.objects.get("v1", "Namespace", "acme-serving")
    assert plane.objects.list("rbac.authorization.k8s.io/v1", "RoleBinding", "acme-training")


def test_inference_services(plane: ControlPlane) -> None:
    place = {"region": "dxb-1", "registry": REGISTRY}
    found = serving_services.service(place="existing", **place)
    assert _refused(plane, found) == {}


def test_training_jobs(plane: ControlPlane) -> None:
    """A JobSet is of a kind of its own; what admission sees of it are its pods."""
    job = training_jobs.job("existing", nodes=2)
    template = training_jobs.pod_of(job)
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {**template["metadata"], "name": "node-0", "namespace": "acme-training"},
        "spec": template["spec"],
    }  # fmt: skip
    assert _refused(plane, [pod, *(each for each in job if _group(each) in SERVED)]) == {}


def test_objects_of_the_platform(plane: ControlPlane) -> None:
    found = platforms.manifests(platforms.spec("existing"))
    namespaces = [each for each in found if each["kind"] == "Namespace"]
    plane.apply(namespaces)
    others = [each for each in found if each["kind"] != "Namespace"]
    assert _refused(plane, others) == {}
