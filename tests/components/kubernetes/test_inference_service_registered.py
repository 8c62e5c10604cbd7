"""Inference services as the engine gets them: every object, under names that stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pulumi
import pytest

from falaj.components.kubernetes.inference_service import InferenceService, InferenceServiceArgs
from tests.components.kubernetes.registrations import recorded
from tests.components.kubernetes.serving_services import GPU, arguments, by_key, service
from tests.components.kubernetes.test_canary import CANARY


@pytest.fixture
def requests() -> Iterator[list[Any]]:
    with recorded() as found:
        yield found


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("credit-risk", {}),
        ("credit-risk-gpu", GPU),
        ("credit-risk", {"canary": CANARY}),
        ("credit-risk", {"audit_claim": "audit", "watch": {}}),
    ],
    ids=["cpu", "gpu", "canary", "watch"],
)
def test_every_object_is_registered_below_the_component(
    requests: list[Any], name: str, changes: dict[str, Any]
) -> None:
    made: list[InferenceService] = []

    @pulumi.runtime.test
    def run() -> None:
        args = cast("InferenceServiceArgs", arguments(**changes))
        made.append(InferenceService(name, args))

    run()
    custom = {each.name: each for each in requests if each.custom}
    objects = by_key(service(name, **changes))
    expected = {f"{name}-{key.lower().replace('/', '-acme-serving-', 1)}" for key in objects}
    assert set(custom) == expected
    assert all(each.parent for each in custom.values())
    assert made[0].url == f"https://{name}.acme-serving.svc:8443"
    assert made[0].namespace == "acme-serving"


def test_requests_are_sent_elsewhere_only_once_that_is_ready(requests: list[Any]) -> None:
    @pulumi.runtime.test
    def run() -> None:
        InferenceService("credit-risk", cast("InferenceServiceArgs", arguments()))

    run()
    waits = {each.name: list(each.dependencies) for each in requests if each.custom}
    replicas = [name for name in waits if "-deployment-" in name]
    kinds = ("-service-", "-httproute-", "-backendtlspolicy-")
    routed = [name for name in waits if any(kind in name for kind in kinds)]
    assert len(routed) >= 3
    for name in routed:
        for each in replicas:
            assert any(found.endswith(f"::{each}") for found in waits[name]), name
    # What replicas start with waits for none of them.
    assert not [name for name in waits if name not in routed and waits[name]]


def test_a_judge_begins_once_what_it_judges_is_ready(requests: list[Any]) -> None:
    @pulumi.runtime.test
    def run() -> None:
        InferenceService("credit-risk", cast("InferenceServiceArgs", arguments(canary=CANARY)))

    run()
    (job,) = [each for each in requests if each.custom and each.type.endswith(":Job")]
    for version in (7, 8):
        deployment = f"credit-risk-deployment-acme-serving-credit-risk-v{version}"
        assert any(found.endswith(f"::{deployment}") for found in job.dependencies)
    # Another version to be judged, or other demands, are another Job.
    assert job.replaceOnChanges == ["spec"]
    assert job.deleteBeforeReplace
