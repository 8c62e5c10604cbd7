"""Arguments of `Gateway`, and how they are checked."""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NotRequired, TypedDict
from urllib.parse import urlsplit

from annotated_types import Len

from falaj.components.catalogue.clusters import GATEWAYS
from falaj.components.kubernetes._load_balancer import checked_address
from falaj.components.kubernetes._placed import InCluster, InClusterArgs, check_in_cluster
from falaj.components.kubernetes._validation import (
    PRIVATE,
    by_name,
    cidr,
    object_name,
    options,
    private_ranges,
)
from falaj.components.kubernetes.bill_of_materials import resolve_one
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, Between, OneOf, TextRule
from falaj.wire.documents import is_mapping, is_sequence

HOST: Final = TextRule(
    r"^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$",
    "a full name in small letters, or *. and one",
    "api.acme.ae",
)
_SIZE: Final = TextRule(r"^[1-9]\d*(Ki|Mi|Gi)$", "a size in Ki, Mi or Gi", "10Mi")
_ISSUER_KINDS: Final = OneOf(("ClusterIssuer", "Issuer"))
#: RFC 1918.
_OWN: Final = tuple(str(each) for each in PRIVATE[:3])
#: The CRD's own limits.
_MOST_HOSTS, _MOST_RULES = 16, 16
_MOST_REPLICAS: Final = Between(2, 500)
_USUAL_RATE: Final = 100


class GatewayTokensArgs(TypedDict):
    """Whose tokens are taken (JWT)."""

    issuer: str
    """The claim ``iss``: ``https://login.acme.ae``."""
    audiences: list[str]
    """Values of the claim ``aud``, one of which a token has."""
    jwks_uri: NotRequired[str]
    """Where its keys are: in the cluster, at a private address, or below one of ``own_domains``.
    Default: ``jwks``."""
    jwks: NotRequired[str]
    """Its public keys as a JSON Web Key Set, for issuers elsewhere: the gateway asks nobody.
    Default: ``jwks_uri``."""
    claims: NotRequired[dict[str, list[str]]]
    """Claims that a token has to have, each with one of the values. Default: none."""
    headers: NotRequired[dict[str, str]]
    """Claims that are handed on, by the header's name. Default: none."""


class GatewayLoginArgs(TypedDict):
    """Login of people with a browser (OIDC)."""

    issuer: str
    """In the cluster, at a private address, or below one of ``own_domains``."""
    client_id: str
    """Id of the client there."""
    client_secret: str
    """Secret in the gateway's namespace with the key ``client-secret``, by External Secrets."""


class GatewayRateArgs(TypedDict):
    """How often a client may ask, counted by each proxy."""

    requests: Annotated[int, Between(1, 10_000_000)]
    """Most requests in the time."""
    unit: NotRequired[Annotated[str, OneOf(("Second", "Minute", "Hour")), Default("Second")]]
    """The time."""
    source: NotRequired[str]
    """Range of addresses that it is for, each address counted alone. Default: all together."""


class GatewayGrantArgs(TypedDict):
    """Routes of one namespace to services of another of the same tenant."""

    routes_in: Annotated[str, OBJECT]
    """Namespace of the routes."""
    services_in: Annotated[str, OBJECT]
    """Namespace of the services."""
    services: list[str]
    """Names of the services."""


@described
class GatewayArgs(InClusterArgs):
    """Arguments of `Gateway`."""

    hosts: Annotated[list[Annotated[str, HOST]], Len(1, _MOST_HOSTS)]
    """Names that it serves: ``api.acme.ae``, ``*.models.acme.ae``."""
    certificate_issuer: Annotated[str, OBJECT]
    """cert-manager's issuer of the certificate."""
    certificate_issuer_kind: NotRequired[Annotated[str, _ISSUER_KINDS, Default("ClusterIssuer")]]
    """What it is: of the cluster, or of the gateway's namespace."""
    tokens: NotRequired[dict[str, GatewayTokensArgs]]
    """Issuers of tokens by name. Needed without ``login``."""
    login: NotRequired[GatewayLoginArgs]
    """Login of people. Default: tokens only."""
    own_domains: NotRequired[list[str]]
    """Domains whose servers are one's own and in the country. Default: none."""
    issuer_cidrs: NotRequired[list[str]]
    """Private ranges that ``jwks_uri`` and ``login`` are in: proxies reach them on port 443.
    Needed with either. Default: none."""
    tenants: NotRequired[list[str]]
    """Tenants whose serving namespaces may have routes here. Default: ``tenant``."""
    hosts_of: NotRequired[dict[str, list[str]]]
    """Which of ``hosts`` are a tenant's, by tenant: its routes serve no others, and nobody else's
    serve these. Needed with several tenants. Default: all are the one tenant's."""
    allowed_cidrs: NotRequired[Annotated[list[str], Default(_OWN)]]
    """Private ranges of clients."""
    address: NotRequired[str]
    """Private address of the load balancer. Needed on an ``existing`` cluster."""
    subnet: NotRequired[str]
    """Subnet of the load balancer: an id (EKS) or a name (AKS). Default: ``balancers`` of
    the cluster's `Network` on AKS, the controller's choice on EKS."""
    rates: NotRequired[Annotated[list[GatewayRateArgs], Len(1, _MOST_RULES)]]
    """How often clients may ask. Default: 100 a second from each private address."""
    largest_request: NotRequired[Annotated[str, _SIZE, Default("10Mi")]]
    """Largest body."""
    request_seconds: NotRequired[Annotated[int, Between(1, 3_600), Default(60)]]
    """Most seconds for an answer."""
    client_ca_secret: NotRequired[Annotated[str, OBJECT]]
    """Secret in the gateway's namespace with ``ca.crt``: clients need a certificate of it.
    Default: none."""
    grants: NotRequired[list[GatewayGrantArgs]]
    """Routes to services of other namespaces. Default: none."""
    replicas: NotRequired[Annotated[int, Between(2, 50), Default(2)]]
    """Fewest proxies."""
    most_replicas: NotRequired[Annotated[int, _MOST_REPLICAS, Default(10)]]
    """Most proxies; not fewer than ``replicas``."""
    namespace: NotRequired[Annotated[str, OBJECT, Default(GATEWAYS)]]
    """Where it is."""
    images: NotRequired[dict[str, str]]
    """Digests by short name. Default: the bill of materials'."""


@dataclass(frozen=True, kw_only=True)
class GatewaySpec:
    """The arguments of `Gateway`, checked."""

    placed: InCluster
    name: str
    hosts: tuple[str, ...]
    issuer: tuple[str, str]
    """Kind and name."""
    tokens: Mapping[str, Mapping[str, Any]]
    login: Mapping[str, Any] | None
    tenants: tuple[str, ...]
    hosts_of: Mapping[str, tuple[str, ...]]
    """Hosts of each tenant; together they are all hosts."""
    allowed_cidrs: tuple[str, ...]
    issuer_cidrs: tuple[str, ...]
    address: str
    subnet: str
    rates: tuple[tuple[int, str, str], ...]
    """Requests, unit and source of each."""
    largest_request: str
    request_seconds: int
    client_ca_secret: str
    grants: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Namespace of routes, of services, and these."""
    replicas: tuple[int, int]
    namespace: str
    image: str


def check(name: str, args: GatewayArgs) -> GatewaySpec:
    """Check the arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Gateway {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, GatewayArgs)
    placed = check_in_cluster(given, errors)
    object_name("name", name, errors)
    hosts: tuple[str, ...] = checked["hosts"] or ()
    domains: tuple[str, ...] = checked["own_domains"] or ()
    tokens = {
        each: _tokens(each, one, domains, errors)
        for each, one in by_name("tokens", given.get("tokens", {}), errors).items()
    }
    login = _login(given.get("login"), domains, errors)
    if not tokens and login is None:
        errors.say("tokens", "missing; nobody gets in without a token or a login")
    tenants = errors.texts("tenants", given.get("tenants", [placed.tenant if placed else "x"]))
    hosts_of = _hosts_of(given.get("hosts_of"), hosts, tenants, errors)
    ranges = private_ranges("allowed_cidrs", checked["allowed_cidrs"], errors)
    asks = login is not None or any(each.get("jwks_uri") for each in tokens.values())
    issuers: tuple[str, ...] = ()
    near: object = given.get("issuer_cidrs")
    if near is not None:
        issuers = private_ranges("issuer_cidrs", near, errors)
    elif asks:
        errors.say("issuer_cidrs", "missing; proxies get the issuers' keys from there")
    address = checked_address(placed, given.get("address"), errors)
    rates = _rates(checked["rates"], errors)
    grants = _grants(checked["grants"] or (), tenants, errors)
    fewest: int = checked["replicas"]
    allowed = replace(_MOST_REPLICAS, low=fewest)
    most = errors.within("most_replicas", checked["most_replicas"], allowed)
    image = ""
    if placed:
        image = resolve_one(placed, "envoy", given.get("images"), errors)
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return GatewaySpec(
        placed=placed,
        name=name,
        hosts=hosts,
        issuer=(checked["certificate_issuer_kind"], checked["certificate_issuer"]),
        tokens=tokens,
        login=login,
        tenants=tenants,
        hosts_of=hosts_of,
        allowed_cidrs=ranges,
        issuer_cidrs=issuers,
        address=address,
        subnet=checked["subnet"] or "",
        rates=rates,
        largest_request=checked["largest_request"],
        request_seconds=checked["request_seconds"],
        client_ca_secret=checked["client_ca_secret"] or "",
        grants=grants,
        replicas=(fewest, most),
        namespace=checked["namespace"],
        image=image,
    )


def _hosts_of(
    value: object, hosts: tuple[str, ...], tenants: tuple[str, ...], errors: ArgumentErrors
) -> dict[str, tuple[str, ...]]:
    """Hosts by tenant: each is of one, and none is below another tenant's."""
    if value is None:
        if len(tenants) > 1:
            errors.say(
                "hosts_of",
                "missing; with several tenants say whose each host is, or routes of one would "
                "serve paths of another",
            )
        return {tenants[0]: hosts} if len(tenants) == 1 else {}
    found: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for tenant, listed in by_name("hosts_of", value, errors).items():
        at = f"hosts_of[{tenant!r}]"
        errors.choice(at, tenant, tenants)
        found[tenant] = errors.texts(at, listed)
        for position, each in enumerate(found[tenant]):
            errors.choice(f"{at}[{position}]", each, hosts)
            for other, owner in owners.items():
                if owner != tenant and (_covers(each, other) or _covers(other, each)):
                    errors.add(
                        f"{at}[{position}]", each, "hosts of one tenant each",
                        f"{other} is {owner}'s",
                    )  # fmt: skip
            owners[each] = tenant
    for each in hosts:
        if each not in owners:
            errors.say("hosts_of", f"says nothing of {each}; give it to one of the tenants")
    return found


def _covers(host: str, other: str) -> bool:
    """Whether requests to the one may be requests to the other."""
    return host == other or (host.startswith("*.") and other.endswith(host[1:]))


def _tokens(
    name: str, value: object, domains: tuple[str, ...], errors: ArgumentErrors
) -> Mapping[str, Any]:
    at = f"tokens[{name!r}]"
    given = options(at, value, GatewayTokensArgs, errors)
    object_name(at, name, errors)
    if given.get("audiences") is not None:
        audiences = errors.texts(f"{at}.audiences", given["audiences"])
        if not audiences:
            errors.add(f"{at}.audiences", given["audiences"], "at least one",
                         "without, tokens for any other service are taken")  # fmt: skip
    uri, keys = given.get("jwks_uri"), given.get("jwks")
    if (uri is None) == (keys is None):
        errors.say(f"{at}.jwks_uri", "give either jwks_uri or jwks")
    elif uri is not None:
        _own_address(f"{at}.jwks_uri", uri, domains, "use jwks instead", errors)
    else:
        _key_set(f"{at}.jwks", keys, errors)
    for claim, values in by_name(f"{at}.claims", given.get("claims", {}), errors).items():
        errors.texts(f"{at}.claims[{claim!r}]", values)
    if given.get("headers") is not None:
        errors.mapping(f"{at}.headers", given["headers"])
    return given


def _key_set(at: str, value: object, errors: ArgumentErrors) -> None:
    """Public keys: a private one in a gateway's settings would sign tokens for everybody."""
    try:
        keys = json.loads(value) if isinstance(value, str) else None
        listed: Any = keys["keys"] if is_mapping(keys) else None
    except (ValueError, KeyError):
        listed = None
    if not is_sequence(listed) or not listed:
        errors.say(at, 'is no JSON Web Key Set; allowed: {"keys": [{"kty": "RSA", …}]}')
    elif any(not is_mapping(each) or {"d", "k", "p"} & each.keys() for each in listed):
        errors.say(at, "has a private or symmetric key; allowed: public keys only")


def _login(
    value: object, domains: tuple[str, ...], errors: ArgumentErrors
) -> Mapping[str, Any] | None:
    if value is None:
        return None
    given = options("login", value, GatewayLoginArgs, errors)
    if given.get("issuer") is not None:
        _own_address("login.issuer", given["issuer"], domains, "use tokens instead", errors)
    if given.get("client_secret") is not None:
        object_name("login.client_secret", given["client_secret"], errors)
    return given


def _own_address(
    at: str, value: object, domains: tuple[str, ...], instead: str, errors: ArgumentErrors
) -> None:
    """Refuse a URL whose host is neither in the cluster, nor private, nor one's own."""
    parts = urlsplit(value) if isinstance(value, str) else None
    host = (parts.hostname or "") if parts else ""
    if not parts or parts.scheme != "https" or not host:
        errors.add(at, value, "an address that begins with https://")
        return
    try:
        address = ipaddress.ip_address(host)
        own = any(address in each for each in PRIVATE if address.version == each.version)
    except ValueError:
        in_cluster = host.endswith((".svc", ".svc.cluster.local"))
        own = in_cluster or any(host == each or host.endswith(f".{each}") for each in domains)
    if not own:
        errors.add(
            at, value, "servers in the cluster, at private addresses, or below own_domains",
            f"name the domain there if its servers are in the country; else {instead}",
        )  # fmt: skip


def _rates(
    given: tuple[object, ...] | None, errors: ArgumentErrors
) -> tuple[tuple[int, str, str], ...]:
    if given is None:
        given = tuple({"requests": _USUAL_RATE, "source": each} for each in _OWN)
    found: list[tuple[int, str, str]] = []
    for position, one in enumerate(given):
        at = f"rates[{position}]"
        asked = options(at, one, GatewayRateArgs, errors)
        rate = errors.checked_only(asked, GatewayRateArgs, at=f"{at}.")
        if rate["source"] is not None:
            cidr(f"{at}.source", rate["source"], errors)
        found.append((rate["requests"], rate["unit"], rate["source"] or ""))
    return tuple(found)


def _grants(
    value: tuple[object, ...], tenants: tuple[str, ...], errors: ArgumentErrors
) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for position, one in enumerate(value):
        at = f"grants[{position}]"
        given = options(at, one, GatewayGrantArgs, errors)
        grant = errors.checked_only(given, GatewayGrantArgs, at=f"{at}.")
        routes, services = str(grant["routes_in"]), str(grant["services_in"])
        if not any(routes.startswith(f"{t}-") and services.startswith(f"{t}-") for t in tenants):
            errors.add(
                at, f"{routes} to {services}", "namespaces of the same tenant",
                f"one of {', '.join(tenants)}",
            )  # fmt: skip
        names: tuple[str, ...] = grant["services"] or ()
        if not names:
            errors.add(f"{at}.services", given.get("services"), "at least one name")
        found.append((routes, services, names))
    return tuple(found)
