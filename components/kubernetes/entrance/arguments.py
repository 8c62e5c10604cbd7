"""Arguments of `Gateway`."""

from typing import NotRequired, TypedDict

from falaj.components.kubernetes._placed import InClusterArgs
from falaj.components.specification.described import described


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

    requests: int
    """Most requests in the time."""
    unit: NotRequired[str]
    """``Second``, ``Minute`` or ``Hour``. Default: ``Second``."""
    source: NotRequired[str]
    """Range of addresses that it is for, each address counted alone. Default: all together."""


class GatewayGrantArgs(TypedDict):
    """Routes of one namespace to services of another of the same tenant."""

    routes_in: str
    """Namespace of the routes."""
    services_in: str
    """Namespace of the services."""
    services: list[str]
    """Names of the services."""


@described
class GatewayArgs(InClusterArgs):
    """Arguments of `Gateway`."""

    hosts: list[str]
    """Names that it serves: ``api.acme.ae``, ``*.models.acme.ae``."""
    certificate_issuer: str
    """cert-manager's issuer of the certificate."""
    certificate_issuer_kind: NotRequired[str]
    """``ClusterIssuer`` or ``Issuer``. Default: ``ClusterIssuer``."""
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
    allowed_cidrs: NotRequired[list[str]]
    """Ranges of clients. Default: the private ones of RFC 1918."""
    address: NotRequired[str]
    """Private address of the load balancer. Needed on an ``existing`` cluster."""
    subnet: NotRequired[str]
    """Subnet of the load balancer: an id (EKS) or a name (AKS). Default: the controller's
    choice."""
    rates: NotRequired[list[GatewayRateArgs]]
    """How often clients may ask. Default: 100 a second from each private address."""
    largest_request: NotRequired[str]
    """Largest body: ``10Mi``. Default: ``10Mi``."""
    request_seconds: NotRequired[int]
    """Most seconds for an answer. Default: 60."""
    client_ca_secret: NotRequired[str]
    """Secret in the gateway's namespace with ``ca.crt``: clients need a certificate of it.
    Default: none."""
    grants: NotRequired[list[GatewayGrantArgs]]
    """Routes to services of other namespaces. Default: none."""
    replicas: NotRequired[int]
    """Fewest proxies, 2 to 50. Default: 2."""
    most_replicas: NotRequired[int]
    """Most proxies. Default: 10."""
    namespace: NotRequired[str]
    """Where it is. Default: ``envoy-gateway-system``."""
    images: NotRequired[dict[str, str]]
    """Digests by short name. Default: the bill of materials'."""
