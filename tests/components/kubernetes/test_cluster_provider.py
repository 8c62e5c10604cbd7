"""The provider names one cluster in the country, and carries no credential."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes.provider import aks_kubeconfig, check, eks_kubeconfig

EKS = {
    "distribution": "eks",
    "region": "me-central-1",
    "cluster_name": "acme",
    "endpoint": "https://ABC.gr7.me-central-1.eks.amazonaws.com",
    "certificate_authority": "Y2VydA==",
}
EXISTING = {"distribution": "existing", "region": "dubai-dc1", "context": "dc1"}


@pytest.mark.parametrize(
    "args", [EKS, EXISTING, {**EKS, "distribution": "aks", "region": "uaenorth"}]
)
def test_what_names_a_cluster_is_taken(args: dict[str, Any]) -> None:
    check("cluster", args)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({**EKS, "region": "eu-west-1"}, "region"),
        ({**EKS, "region": "uaenorth"}, "region"),
        ({**EKS, "distribution": "gke"}, "given 'gke'; allowed: eks, aks, existing"),
        ({**EKS, "endpoint": None}, "endpoint"),
        ({"distribution": "existing", "region": "dubai-dc1"}, "context"),
        ({**EXISTING, "contxt": "x"}, "did you mean 'context'"),
        ({**EKS, "region": pulumi.Output.from_input("me-central-1")}, "plain value"),
    ],
)
def test_what_names_none_is_refused(args: dict[str, Any], said: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        check("cluster", args)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("make", "command", "words"),
    [
        (eks_kubeconfig, "aws", ["--cluster-name", "acme", "--region", "me-central-1"]),
        (aks_kubeconfig, "kubelogin", ["--server-id"]),
    ],
)
def test_a_kubeconfig_calls_the_clouds_own_login(
    make: Any, command: str, words: list[str]
) -> None:
    found = json.loads(make("acme", "abc.example.ae", "Y2VydA==", "me-central-1"))
    assert found["current-context"] == "acme"
    (cluster,) = found["clusters"]
    assert cluster["cluster"] == {
        "server": "https://abc.example.ae",
        "certificate-authority-data": "Y2VydA==",
    }
    (user,) = found["users"]
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == command
    assert [each for each in words if each in user["user"]["exec"]["args"]] == words
    assert user["user"]["exec"]["interactiveMode"] == "IfAvailable"
