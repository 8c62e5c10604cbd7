"""The end of a platform on real machines; files of tests run in the order of their names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.real.platform import Platform
from tests.cluster.real.team import OTHERS, SERVING, TRAINING
from tests.newcomer import documents

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


def test_nothing_of_it_is_left_but_what_is_the_teams(
    platform: Platform, served: dict[str, Any], swept: dict[str, Any]
) -> None:
    platform.down("real-sweep")
    assert "is down" in platform.machine.run(documents.commands("real")[4])
    left = platform.plane.objects.list("apps/v1", "Deployment", SERVING)
    assert left == []
    pods = platform.plane.objects.list("v1", "Pod", SERVING)
    assert not [each for each in pods if each["metadata"]["name"].startswith("digits-")]


def test_the_platform_goes_with_the_namespaces_of_its_tenants(
    platform: Platform, served: dict[str, Any]
) -> None:
    assert "is down" in platform.machine.run(documents.commands("real")[5])
    names = [
        each["metadata"]["name"]
        for group, kind in (("v1", "Namespace"), ("apiregistration.k8s.io/v1", "APIService"))
        for each in platform.plane.objects.list(group, kind)
    ]
    gone = (
        TRAINING, SERVING, OTHERS, "kueue-system", "kubeflow-system",
        "v1beta1.visibility.kueue.x-k8s.io",
    )  # fmt: skip
    assert not set(gone) & set(names)
