"""Gateways: what is refused, who is let in, and that nothing is plain or public."""

from __future__ import annotations

import json
from typing import Any

import pytest

from falaj.components.kubernetes.gateway import check, manifests
from tests.components.kubernetes.cluster_parts import (
    COMMON,
    PLACES,
    by_key,
    difference,
    findings,
    refusal,
    same_as_golden,
    shown,
)

KEYS = json.dumps({"keys": [{"kty": "RSA", "n": "x", "e": "AQAB"}]})
PRIVATE = json.dumps({"keys": [{"kty": "RSA", "n": "x", "e": "AQAB", "d": "secret"}]})
STAFF = {
    "issuer": "https://login.acme.example", "audiences": ["models"],
    "jwks_uri": "https://login.acme.example/keys",
}  # fmt: skip
PARTNERS = {"issuer": "https://login.partner.example", "audiences": ["models"], "jwks": KEYS}
LOGIN = {"issuer": "https://login.acme.example", "client_id": "x", "client_secret": "login"}
GRANT = {"routes_in": "acme-serving", "services_in": "acme-models", "services": ["fraud"]}
GATEWAY: dict[str, Any] = {
    "hosts": ["models.acme.example"], "certificate_issuer": "acme-ca",
    "own_domains": ["acme.example"], "issuer_cidrs": ["10.9.0.0/24"], "tokens": {"staff": STAFF},
    "images": {"envoy": "sha256:" + "1" * 64},
}  # fmt: skip


def _tokens(**changes: Any) -> dict[str, Any]:
    return {"tokens": {"staff": {**STAFF, **changes}}}


def _shared(one: str, other: str) -> dict[str, Any]:
    """A host of one tenant, and a host of another."""
    of = {"acme": [one], "globex": [other]}
    return {"tenants": list(of), "hosts": list({one: 0, other: 0}), "hosts_of": of}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"hosts": []}, "given 0 of them; allowed: 1 to 16"),
    ({"hosts": ["localhost"]}, "a full name in small letters"),
    ({"hosts": ["a.acme.example/x"]}, "a full name in small letters"),
    ({"hosts": ["*"]}, "a full name in small letters"),
    ({"certificate_issuer": None}, "certificate_issuer: missing"),
    ({"certificate_issuer_kind": "Secret"}, "ClusterIssuer, Issuer"),
    ({"tokens": {}}, "nobody gets in without a token or a login"),
    (_tokens(audiences=[]), "tokens for any other service are taken"),
    (_tokens(jwks_uri=None), "give either jwks_uri or jwks"),
    (_tokens(jwks=KEYS), "give either jwks_uri or jwks"),
    (_tokens(jwks_uri="http://login.acme.example/keys"), "begins with https://"),
    (_tokens(jwks_uri="https://login.microsoftonline.com/keys"), "or below own_domains"),
    (_tokens(jwks_uri="https://acme.example.evil.com/keys"), "or below own_domains"),
    (_tokens(jwks_uri="https://8.8.8.8/keys"), "or below own_domains"),
    (_tokens(jwks_uri=None, jwks="{}"), "is no JSON Web Key Set"),
    (_tokens(jwks_uri=None, jwks=PRIVATE), "has a private or symmetric key"),
    (_tokens(audience=["x"]), "did you mean 'audiences'?"),
    ({"login": {**LOGIN, "issuer": "https://accounts.google.com"}}, "use tokens instead"),
    ({"allowed_cidrs": ["0.0.0.0/0"]}, "others neither reach it nor are reached"),
    ({"allowed_cidrs": []}, "at least one range"),
    ({"issuer_cidrs": None}, "proxies get the issuers' keys from there"),
    ({"issuer_cidrs": ["8.8.8.0/24"]}, "allowed: private ranges"),
    ({"address": None}, "address: missing; needed on an existing cluster"),
    ({"address": "8.8.8.8"}, "a private address"),
    ({"rates": []}, "given 0 of them; allowed: 1 to 16"),
    ({"rates": [{"requests": 0}]}, "a whole number from 1"),
    ({"rates": [{"requests": 5, "unit": "Day"}]}, "Second, Minute, Hour"),
    ({"rates": [{"requests": 5, "source": "10.0.0.1"}]}, "a range such as"),
    ({"largest_request": "10MB"}, "a size in Ki, Mi or Gi"),
    ({"request_seconds": 0}, "from 1 to 3600"),
    ({"replicas": 1}, "from 2 to 50"),
    ({"replicas": 4, "most_replicas": 3}, "most_replicas: given 3"),
    ({"grants": [{**GRANT, "services_in": "globex-serving"}]}, "namespaces of the same tenant"),
    ({"grants": [{**GRANT, "services": []}]}, "at least one name"),
    ({"images": {"envoy": "latest"}}, "envoy"),
    ({"tenants": ["acme", "globex"]}, "with several tenants say whose each host is"),
    ({"hosts_of": {"globex": ["models.acme.example"]}}, "hosts_of['globex']: given 'globex'"),
    ({"hosts_of": {"acme": ["models.globex.example"]}}, "hosts_of['acme'][0]: given"),
    ({"hosts_of": {"acme": []}}, "says nothing of models.acme.example"),
    (_shared("a.acme.example", "a.acme.example"), "a.acme.example is acme's"),
    (_shared("*.acme.example", "a.acme.example"), "*.acme.example is acme's"),
    (_shared("a.acme.example", "*.acme.example"), "a.acme.example is acme's"),
    ({"client_ca_secret": "A B"}, "at most 63 lower-case letters"),
]  # fmt: skip


def arguments(place: str = "existing", **changes: Any) -> dict[str, Any]:
    address = {"address": "10.0.9.9"} if place == "existing" else {}
    return {**COMMON, **PLACES[place], **GATEWAY, **address, **changes}


def gateway(place: str = "existing", **changes: Any) -> dict[str, Any]:
    return by_key(manifests(check("models", arguments(place, **changes))))  # type: ignore[arg-type]


WHERE = "envoy-gateway-system/models"


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[str(each[0]) for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    assert reason in refusal(check, arguments(**changes))


@pytest.mark.parametrize("place", PLACES)
def test_every_pack_passes(place: str) -> None:
    found = gateway(
        place, login=LOGIN, grants=[GRANT], client_ca_secret="ca", data_class="restricted",
        tokens={"staff": {**STAFF, "claims": {"groups": ["x"]}}, "partners": PARTNERS},
    )  # fmt: skip
    assert findings(list(found.values())) == []


def test_the_manifests_are_the_reviewed_ones_and_platforms_differ_where_they_must() -> None:
    texts = {place: shown(list(gateway(place).values())) for place in PLACES}
    same_as_golden("gateway-existing.yaml", texts["existing"])
    for place in ("eks", "aks"):
        same_as_golden(f"gateway-{place}.diff", difference(texts["existing"], texts[place]))


def test_there_is_no_listener_without_tls_1_3() -> None:
    found = gateway(hosts=["a.acme.example", "*.b.acme.example"])
    listeners = found[f"Gateway/{WHERE}"]["spec"]["listeners"]
    assert [each["protocol"] for each in listeners] == ["HTTPS", "HTTPS"]
    tls = found[f"ClientTrafficPolicy/{WHERE}"]["spec"]["tls"]
    assert (tls["minVersion"], tls["maxVersion"]) == ("1.3", "1.3")


def test_proxies_are_reached_by_the_allowed_and_reach_issuers_alone() -> None:
    found = gateway(allowed_cidrs=["10.1.0.0/16"])
    clients = found[f"NetworkPolicy/{WHERE}-clients"]["spec"]["ingress"]
    assert clients == [
        {"from": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
         "ports": [{"port": 10443, "protocol": "TCP"}]}
    ]  # fmt: skip
    (out,) = found[f"NetworkPolicy/{WHERE}-issuers"]["spec"]["egress"]
    assert out["to"] == [{"ipBlock": {"cidr": "10.9.0.0/24"}}]
    alone = gateway(tokens={"partners": PARTNERS}, issuer_cidrs=None)
    assert f"NetworkPolicy/{WHERE}-issuers" not in alone


def test_routes_come_from_serving_namespaces_of_the_tenants_alone() -> None:
    hosts = ["models.acme.example", "models.globex.acme.example"]
    of = {"acme": hosts[:1], "globex": hosts[1:]}
    found = gateway(tenants=["acme", "globex"], hosts=hosts, hosts_of=of)
    listeners = found[f"Gateway/{WHERE}"]["spec"]["listeners"]
    for listener, whose in zip(listeners, of, strict=True):
        selector = listener["allowedRoutes"]["namespaces"]["selector"]
        assert of[whose] == [listener["hostname"]]
        assert selector["matchLabels"] == {"falaj.io/duty": "serving"}
        assert selector["matchExpressions"][0]["values"] == [whose]


def test_who_is_not_allowed_is_denied_and_each_issuer_has_its_own_claims() -> None:
    tokens = {"staff": {**STAFF, "claims": {"groups": ["ml"]}}, "partners": PARTNERS}
    security = gateway(tokens=tokens)[f"SecurityPolicy/{WHERE}"]["spec"]
    assert security["authorization"]["defaultAction"] == "Deny"
    rules = {each["name"]: each["principal"] for each in security["authorization"]["rules"]}
    assert rules["claims-staff"]["jwt"]["claims"][0]["values"] == ["ml"]
    assert rules["issuer-partners"]["jwt"]["claims"] == [
        {"name": "iss", "valueType": "String", "values": ["https://login.partner.example"]}
    ]
    assert all(each["clientCIDRs"] for each in rules.values())
    assert "optional" not in security["jwt"]


def test_logs_have_neither_query_nor_token() -> None:
    (setting,) = gateway()[f"EnvoyProxy/{WHERE}"]["spec"]["telemetry"]["accessLog"]["settings"]
    assert "REQ_WITHOUT_QUERY" in setting["format"]["json"]["path"]
    assert not any("AUTHORIZATION)" in each for each in setting["format"]["json"].values())
    assert setting["sinks"] == [{"type": "File", "file": {"path": "/dev/stdout"}}]
