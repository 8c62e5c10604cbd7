"""Whatever the API server calls of the platform's add-ons, the clouds' networks let in."""

from __future__ import annotations

import pytest

from falaj.components.aws import network as aws
from falaj.components.azure import network as azure
from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.addon import Traffic
from tests.components.kubernetes.platforms import spec

#: Beside add-ons: kubelets, EKS's and others' metrics servers, and webhooks as charts have them.
ALWAYS = {443, 4443, 8443, 10250, 10251}


def webhooks(place: str) -> dict[int, set[str]]:
    """The ports that the API server calls, with the add-ons whose they are."""
    found: dict[int, set[str]] = {port: {"the cluster"} for port in ALWAYS}
    asked = {
        name: True
        for name, addon in ADDONS.items()
        if place in addon.distributions and not addon.default
    }
    installed = spec(place, asked)
    for name in installed.addons:
        for traffic in ADDONS[name].traffic(installed).values():
            for port in traffic.webhooks:
                found.setdefault(port, set()).add(name)
    assert {"istio", "keda", "kueue", "cert-manager"} <= set.union(*found.values())
    return found


def admitted_by_aws() -> set[int]:
    return {
        port
        for flow in aws.FLOWS
        if (flow.source, flow.target) == (aws.CONTROL_PLANE, aws.NODES)
        for port in range(flow.first_port, flow.last_port + 1)
    }


def test_security_groups_admit_every_webhook_and_nothing_else() -> None:
    called = webhooks("eks")
    dropped = {port: who for port, who in called.items() if port not in admitted_by_aws()}
    assert dropped == {}
    assert admitted_by_aws() - called.keys() == set()


def test_network_security_groups_admit_every_webhook_of_nodes_and_pods() -> None:
    (flow,) = [
        each
        for each in azure.FLOWS
        if (each.source, each.target) == (azure.CONTROL_PLANE, azure.NODES)
    ]
    # Rules see the pods' own addresses, of an overlay, wherever one is called.
    assert flow.pods
    if flow.ports != azure.ANY:
        assert set(map(str, webhooks("aks"))) <= set(flow.ports)


def test_an_add_on_that_is_called_by_a_port_that_networks_drop_is_refused() -> None:
    with pytest.raises(ValueError, match=r"given 9876, which networks of clouds drop; allowed: 4"):
        Traffic(webhooks=(9443, 9876))
