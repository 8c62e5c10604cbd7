"""Which names the resolver answers, and that what the stack knows is among them."""

from __future__ import annotations

import pytest

from falaj.components.aws._endpoints import GATEWAYS, INTERFACES
from falaj.components.azure._private_endpoint import zone_names
from falaj.components.specification.network import CLUSTER
from falaj.components.specification.resolver import (
    AUDIT,
    ENFORCE,
    Names,
    cloud_domains,
    corefile,
    domain_of,
    override,
    servers,
)
from falaj.policies.reading.corefile import directives, open_zones, refuses


def answered(names: Names, host: str) -> bool:
    """Whether a name is one of these."""
    return any(
        f".{host}".endswith(domain) if domain.startswith(".") else host == domain
        for domain in names.domains
    )


@pytest.mark.parametrize("service", [*INTERFACES, *GATEWAYS[CLUSTER]])
def test_services_with_an_endpoint_have_a_name_for_pods(service: str) -> None:
    names = Names.of(cloud_domains("eks", "me-central-1"), (), "cluster.local")
    host = ".".join(reversed(service.split(".")))
    assert answered(names, f"{host}.me-central-1.amazonaws.com")
    assert not answered(names, f"{host}.eu-west-1.amazonaws.com")


@pytest.mark.parametrize("zone", zone_names("uaenorth"))
def test_zones_of_private_endpoints_are_answered(zone: str) -> None:
    names = Names.of(cloud_domains("aks", "uaenorth"), (), "cluster.local")
    public = zone.removeprefix("privatelink.")
    assert answered(names, f"acme.{zone}")
    assert answered(names, f"acme.{public}")
    assert not answered(names, "acme.azurewebsites.net")


def test_no_cloud_no_names_of_one() -> None:
    assert cloud_domains("existing", "dxb-1") == ()


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("models.example.ae", "models.example.ae"),
        ("*.Example.ae", ".example.ae"),
        ("registry.example.ae:5000/falaj", "registry.example.ae"),
        ("10.0.0.7:5000", ""),
        ("registry", ""),
    ],
)
def test_hosts_of_other_settings(host: str, domain: str) -> None:
    assert domain_of(host) == domain


def test_each_domain_stands_once() -> None:
    names = Names.of(
        ["b.example.ae", ".EXAMPLE.ae", "example.ae", "models.ae", "models.ae", ".a.example.ae"],
        ["corp.internal", "models.ae", "cluster.local"],
        "cluster.local",
    )
    assert names.domains == (".example.ae", "models.ae")
    assert names.searched == ("corp.internal",)


def test_an_end_of_a_label_is_no_domain() -> None:
    names = Names.of([".ample.ae", "ex.ample.ae", "example.ae"], (), "cluster.local")
    assert names.domains == (".ample.ae", "example.ae")


@pytest.mark.parametrize("mode", [ENFORCE, AUDIT])
def test_the_packs_take_what_enforces_alone(mode: str) -> None:
    names = Names.of([".example.ae", "models.ae"], ["corp.internal"], "cluster.local")
    assert [*open_zones(corefile(names, mode))] == ([] if mode == ENFORCE else ["."])
    assert not [*open_zones(servers(names, mode))]
    assert refuses(directives(override(mode))) == (mode == ENFORCE)
