"""Tenants, queues, classes and gateways as the engine gets them: every object, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pytest

from falaj.components import kubernetes
from tests.components.kubernetes import (
    test_gateway,
    test_queues,
    test_storage_classes,
    test_tenant,
)
from tests.components.kubernetes.registrations import recorded

CASES: list[tuple[type[Any], dict[str, Any], Mapping[str, Any]]] = [
    (kubernetes.Tenant, test_tenant.arguments(), test_tenant.tenant()),
    (kubernetes.GpuQueues, test_queues.arguments(), test_queues.queues()),
    (kubernetes.StorageClasses, test_storage_classes.arguments("aks"),
     test_storage_classes.classes("aks")),
    (kubernetes.Gateway, test_gateway.arguments(), test_gateway.gateway()),
]  # fmt: skip
OUTPUTS = {
    "Tenant": {
        "namespaces": ["acme-training", "acme-serving"],
        "training_namespace": "acme-training",
        "serving_namespace": "acme-serving",
    },
    "GpuQueues": {
        "cluster_queues": ["acme", "globex"],
        "flavors": ["h200", "h200-mig-1g.18gb", "cpu-x86-64"],
    },
    "StorageClasses": {"block_class": "falaj-block", "file_class": "falaj-files"},
    "Gateway": {"class_name": "models", "namespace": "envoy-gateway-system"},
}


@pytest.fixture
def requests() -> Iterator[list[Any]]:
    with recorded() as found:
        yield found


@pytest.mark.parametrize(
    ("kind", "arguments", "objects"), CASES, ids=[c[0].__name__ for c in CASES]
)
def test_every_object_is_registered_and_waits_for_its_namespace(
    requests: list[Any], kind: type[Any], arguments: dict[str, Any], objects: Mapping[str, Any]
) -> None:
    made: list[Any] = []

    @pulumi.runtime.test
    def run() -> None:
        made.append(kind("models", arguments))

    run()
    custom = {each.name: each for each in requests if each.custom}
    assert len(custom) == len(objects)
    for key, value in OUTPUTS[kind.__name__].items():
        assert getattr(made[0], key) == value
    for key, each in objects.items():
        request = custom[f"models-{key.lower().replace('/', '-')}"]
        assert request.parent
        namespace = f"models-namespace-{each['metadata'].get('namespace')}"
        if namespace in custom:
            assert any(urn.endswith(f"::{namespace}") for urn in request.dependencies), key
