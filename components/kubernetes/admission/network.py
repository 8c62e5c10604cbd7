"""What comes in, goes out and is asked: services, gateways, network policies, webhooks.

Services and gateways are inside the network only, and stand for no host abroad. Network policies
undo no default. What extends the API server is in the cluster or in the country, and verified:
policies and their bindings are no part of it, since the API server asks no policy of this kind
about them, so that nobody can lock everybody out; rights on them protect them (`access`).
"""

from falaj.components.catalogue.clusters import (
    AWS_SWITCH,
    AWS_TYPE,
    AZURE_SWITCH,
    GATEWAY_SCHEMES,
    INTERNAL_CLASSES,
    INTERNAL_TYPES,
    LOAD_BALANCER_ADDRESSES,
    LOAD_BALANCER_KINDS,
    LOAD_BALANCER_SCHEMES,
    LOAD_BALANCER_SWITCHES,
)
from falaj.components.catalogue.destinations import EXTERNAL_HOST
from falaj.components.kubernetes.admission.policy import (
    CLUSTER,
    NON_EMPTY,
    Check,
    ClusterScope,
    Policy,
    Target,
    is_own_address,
    is_own_host,
    joined,
    literal,
    texts,
    when,
)

_HOST = "kubernetes-ingress-host"
_REACH = "hosts of one's own networks, of the country's regions, or listed in allowed_hosts"


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Services and gateways, network policies, and what extends the API server."""
    return (*_exposure(scope), *_network_policies(scope), *_extensions(scope))


def _exposure(scope: ClusterScope) -> tuple[Policy, ...]:
    """Services, what stands behind them, and ways in by HTTP."""
    return (
        _services(scope),
        *_endpoints(scope),
        _ingresses(),
        *_gateways(),
        _routes(scope),
    )


def _switched(keys: tuple[str, ...], value: str) -> str:
    return (
        f"{texts(keys)}.exists(k, k in variables.annotations && "
        f'variables.annotations[k].trim().lowerAscii() == "{value}")'
    )


def _is_internal(scope: ClusterScope) -> str:
    """Whether a balancer is internal by what the platform's own controllers read."""
    annotation = "variables.annotations"
    distribution = scope.placed.distribution
    addresses = (
        f'([object.spec.?loadBalancerIP.orValue("")] + {texts(LOAD_BALANCER_ADDRESSES)}'
        f'.map(k, {annotation}[?k].orValue("")))'
    )
    parts = f'{addresses}.map(a, a.split(",")).exists(l, l.exists(a, a.trim() != ""))'
    own = is_own_address("a.trim()", scope.networks)
    private = f'({parts} && {addresses}.all(l, l.split(",").all(a, a.trim() == "" || {own})))'
    load_balancer_class = 'object.spec.?loadBalancerClass.orValue("")'
    aws = (
        f'{annotation}[?{literal(AWS_SWITCH)}].orValue("") == "0.0.0.0/0" || '
        f'{annotation}[?{literal(AWS_TYPE)}].orValue("").trim() in {texts(INTERNAL_TYPES)} || '
        f"{load_balancer_class} in {texts(INTERNAL_CLASSES)}"
    )
    if distribution == "eks":
        return f"{_switched((AWS_SWITCH,), 'true')} || {aws}"
    if distribution == "aks":
        return _switched((AZURE_SWITCH,), "true")
    kinds = " || ".join(
        f'{annotation}[?{literal(key)}].orValue("").lowerAscii() == {literal(word)}'
        for key, word in LOAD_BALANCER_KINDS.items()
    )
    return f"{_switched(LOAD_BALANCER_SWITCHES, 'true')} || {kinds} || {aws} || {private}"


def _services(scope: ClusterScope) -> Policy:
    annotation = "variables.annotations"
    kind = 'object.spec.?type.orValue("ClusterIP")'
    scheme = LOAD_BALANCER_SCHEMES[0]
    # The scheme decides where it is given; only AWS' controller reads it.
    by_scheme = (
        f'{literal(scheme)} in {annotation} ? {annotation}[{literal(scheme)}] == "internal" : '
    )
    internal = f"({by_scheme}({_is_internal(scope)}))"
    if scope.placed.distribution == "aks":
        internal = f"({_is_internal(scope)})"
    name = 'object.spec.?externalName.orValue("")'
    ways = {
        "eks": f"annotation {scheme}: internal",
        "aks": f'annotation {AZURE_SWITCH}: "true"',
        "existing": "an address of one's own networks, or the annotation of the platform for it",
    }
    return Policy(
        "services",
        (Target("", "v1", ("services",)),),
        (
            Check(
                "kubernetes-public-load-balancer",
                when(
                    f'{kind} == "LoadBalancer" && '
                    f"({_switched(LOAD_BALANCER_SWITCHES, 'false')} || !{internal})", kind,
                ),
                "the load balancer would be public", ways[scope.placed.distribution],
                "make it internal, and publish through a guarded gateway",
            ),
            Check(
                "kubernetes-node-port", when(f'{kind} == "NodePort"', kind),
                "the service opens a port on every node", "ClusterIP",
                "reach it through the gateway",
            ),
            Check(
                "kubernetes-external-ips", "object.spec.?externalIPs.orValue([])",
                "the service claims addresses of others", "no externalIPs", "remove them",
            ),
            Check(
                EXTERNAL_HOST,
                when(
                    f'{kind} == "ExternalName" && '
                    f"!{is_own_host(name, scope.hosts_pattern, scope.networks)}", name,
                ),
                "the service stands for a host elsewhere", _REACH, "point it at one of these",
            ),
        ),
        {"annotations": "object.metadata.?annotations.orValue({})"},
    )  # fmt: skip


def _endpoints(scope: ClusterScope) -> tuple[Policy, ...]:
    own = is_own_address("a", scope.networks)
    name = is_own_host("a", scope.hosts_pattern, scope.networks)
    slices = (
        "object.?endpoints.orValue([]).map(e, e.addresses.filter(a, "
        f'!(object.addressType == "FQDN" ? {name} : {own})).join(", ")){NON_EMPTY}'
    )
    each = ".map(a, a.ip)".join
    subsets = joined(
        "object.?subsets.orValue([]).map(s, "
        + each((f"s.?{key}.orValue([])", f'.filter(a, !{own}).join(", ")){NON_EMPTY}'))
        for key in ("addresses", "notReadyAddresses")
    )
    check = ("addresses behind the service are elsewhere", _REACH, "name one's own addresses")
    return (
        Policy(
            "endpoint-slices",
            (Target("discovery.k8s.io", "v1", ("endpointslices",)),),
            (Check(EXTERNAL_HOST, slices, *check),),
        ),
        Policy(
            "endpoints",
            (Target("", "v1", ("endpoints",)),),
            (Check(EXTERNAL_HOST, subsets, *check),),
        ),
    )


def _is_of_others(host: str) -> str:
    """Whether a host is none, which is any, or all below a domain."""
    return f'{host} == "" || {host}.contains("*")'


def _facing(annotations: str) -> str:
    return (
        f"{texts(GATEWAY_SCHEMES)}.filter(k, k in {annotations} && "
        f'{annotations}[k].trim() == "internet-facing")'
    )


def _ingresses() -> Policy:
    rules = "object.spec.?rules.orValue([])"
    host = 'r.?host.orValue("")'
    certificate = "alb.ingress.kubernetes.io/certificate-arn"
    application_gateway = "appgw.ingress.kubernetes.io/appgw-ssl-certificate"
    return Policy(
        "ingresses",
        (Target("networking.k8s.io", "v1", ("ingresses",)),),
        (
            Check(
                "kubernetes-public-gateway", _facing("variables.annotations"),
                "the ingress faces the internet", "scheme internal", "set it to internal",
            ),
            Check(
                "kubernetes-gateway-tls",
                when(
                    "size(object.spec.?tls.orValue([])) == 0 && "
                    f"!{texts((certificate, application_gateway))}"
                    ".exists(k, k in variables.annotations)",
                    '"no certificate"',
                ),
                "the ingress is plain HTTP", "spec.tls", "add a certificate for its hosts",
            ),
            Check(
                _HOST,
                f"{rules}.filter(r, {_is_of_others(host)})"
                f'.map(r, {host} == "" ? "any host" : {host})',
                "the ingress serves hosts of others", "full names", "name every host",
            ),
            Check(
                "kubernetes-ingress-snippet",
                "variables.annotations.filter(k, k.matches("
                r'"^nginx[.](?:ingress[.]kubernetes[.]io|org)/[A-Za-z0-9_-]+-snippets?$"))',
                "the ingress changes the gateway's own configuration", "annotations for a purpose",
                "remove the snippet (CVE-2021-25742)",
            ),
        ),
        {"annotations": "object.metadata.?annotations.orValue({})"},
    )  # fmt: skip


def _gateways() -> tuple[Policy, ...]:
    """Gateways, and the listeners that others add to them."""
    api = "gateway.networking.k8s.io"
    facing = Check(
        "kubernetes-public-gateway",
        joined((_facing("variables.annotations"), _facing("variables.infrastructure"))),
        "the gateway faces the internet", "scheme internal", "set it to internal",
    )  # fmt: skip
    annotations = {
        "annotations": "object.metadata.?annotations.orValue({})",
        "infrastructure": "object.spec.?infrastructure.?annotations.orValue({})",
    }
    return (
        Policy(
            "gateways", (Target(api, "v1", ("gateways",)),), (facing, *_listeners()), annotations
        ),
        Policy("listener-sets", (Target(api, "v1", ("listenersets",)),), _listeners()),
    )


def _listeners() -> tuple[Check, ...]:
    listeners = "object.spec.listeners"
    host = 'l.?hostname.orValue("")'
    encrypted = f'{listeners}.exists(l, l.protocol in ["HTTPS", "TLS"])'
    return (
        Check(
            "kubernetes-gateway-tls",
            f'{listeners}.filter(l, l.protocol == "HTTP" && '
            f"!({encrypted} && l.port == 80)).map(l, l.name)",
            "listeners without TLS", "HTTPS, TLS; HTTP on port 80 beside them",
            "give the listener a certificate",
        ),
        Check(
            _HOST,
            f'{listeners}.filter(l, l.protocol in ["HTTP", "HTTPS", "TLS"] && '
            f"({_is_of_others(host)})).map(l, l.name)",
            "listeners for hosts of others", "a full name each", "name the listener's host",
        ),
    )  # fmt: skip


def _routes(scope: ClusterScope) -> Policy:
    """Without a name a route has those of its gateway's listeners, which are judged there."""
    return Policy(
        "routes",
        (Target("gateway.networking.k8s.io", "v1", ("httproutes", "grpcroutes", "tlsroutes")),),
        (
            Check(
                _HOST,
                'variables.hosts.filter(h, h.contains("*"))',
                "the route serves hosts of others", "full names, or none: those of its gateway",
                "name every host",
            ),
            Check(
                "kubernetes-route-host",
                _each_filter(
                    f"{_led_to('requestRedirect')} + {_led_to('urlRewrite')}",
                    _elsewhere(scope, "h"),
                ),
                "callers are sent elsewhere", f"the route's own hosts, {_REACH}",
                "name one of these, or no host",
            ),
            Check(
                "kubernetes-route-origins",
                _each_filter(
                    "f.?cors.?allowOrigins.orValue([])",
                    'h.contains("*") || !isURL(h) || '
                    f"({_elsewhere(scope, 'url(h).getHostname()')})",
                ),
                "pages of others may read the answers", f"origins in full, of {_REACH}",
                "name the origins, as https://app.example.ae",
            ),
        ),
        {
            "hosts": "object.spec.?hostnames.orValue([])",
            "rules": "object.spec.?rules.orValue([])",
        },
    )  # fmt: skip


def _led_to(kind: str) -> str:
    """The host that a filter ``f`` of a kind leads to, as a list."""
    return f'(f.?{kind}.?hostname.orValue("") == "" ? [] : [f.{kind}.hostname])'


def _elsewhere(scope: ClusterScope, host: str) -> str:
    own = is_own_host(host, scope.hosts_pattern, scope.networks)
    return f"!({host} in variables.hosts) && !{own}"


def _each_filter(found: str, wrong: str) -> str:
    """What is wrong with texts ``h`` that filters ``f`` of a route have, as a list of texts.

    Args:
        found: the texts of a filter, a list.
        wrong: whether text ``h`` is one to name.
    """
    listed = f'.?filters.orValue([]).map(f, ({found}).filter(h, {wrong}).join(", ")){NON_EMPTY}'
    return (
        f'variables.rules.map(r, r{listed}.join(", ")){NON_EMPTY} + '
        f"variables.rules.map(r, r.?backendRefs.orValue([]).map(b, "
        f'b{listed}.join(", ")){NON_EMPTY}.join(", ")){NON_EMPTY}'
    )


_NETWORK_POLICIES = (Target("networking.k8s.io", "v1", ("networkpolicies",)),)
#: A range this large, or larger, is the world: nobody but a registry of addresses holds more.
_MOST_V4, _MOST_V6 = 7, 15


def _network_policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Ways out everywhere; ways in outside of the platform's own namespaces."""
    without_effect = when(
        "size(object.spec.?egress.orValue([])) > 0 && size(object.spec.?policyTypes.orValue([])) "
        '> 0 && !("Egress" in object.spec.policyTypes)',
        '"policyTypes lacks Egress, so the rules have no effect"',
    )
    return (
        Policy(
            "egress",
            _NETWORK_POLICIES,
            (
                Check(
                    "kubernetes-open-egress", f"{_open('egress', 'to')} + {without_effect}",
                    "the policy opens a way out to the world",
                    "pods, namespaces and ranges that are named", "name what may be reached",
                ),
            ),
            exempt=CLUSTER,
        ),
        Policy(
            "ingress-policies",
            _NETWORK_POLICIES,
            (
                Check(
                    "kubernetes-open-ingress", _open("ingress", "from"),
                    "the policy lets everyone in", "pods, namespaces and ranges that are named",
                    "name who may come in",
                ),
            ),
            exempt=scope.platform,
        ),
    )  # fmt: skip


def _open(direction: str, peers: str) -> str:
    rules = f"object.spec.?{direction}.orValue([])"
    given = f"r.?{peers}.orValue([])"
    size = "cidr(p.ipBlock.cidr).prefixLength()"
    world = (
        "has(p.ipBlock) && isCIDR(p.ipBlock.cidr) && "
        f"(cidr(p.ipBlock.cidr).ip().family() == 4 ? {size} <= {_MOST_V4} : {size} <= {_MOST_V6})"
    )
    return (
        f'{rules}.filter(r, size({given}) == 0).map(r, "a rule without {peers}") + '
        f'{rules}.map(r, {given}.filter(p, {world}).map(p, p.ipBlock.cidr).join(", ")){NON_EMPTY}'
    )


_SENT_TO = "services of the cluster, hosts of one's own networks or of the country's regions"


def _extensions(scope: ClusterScope) -> tuple[Policy, ...]:
    """Webhooks, conversions of custom kinds, and servers of further APIs."""
    hosts = 'w.?clientConfig.?url.orValue("")'
    return (
        Policy(
            "webhooks",
            (
                Target(
                    "admissionregistration.k8s.io", "v1",
                    ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
                ),
            ),
            (_sent(scope, f"object.?webhooks.orValue([]).map(w, {hosts})"),),
        ),
        Policy(
            "conversions",
            (Target("apiextensions.k8s.io", "v1", ("customresourcedefinitions",)),),
            (_sent(
                scope,
                '[object.spec.?conversion.?webhook.?clientConfig.?url.orValue("")]',
            ),),
        ),
        Policy(
            "api-services",
            (Target("apiregistration.k8s.io", "v1", ("apiservices",)),),
            (
                Check(
                    "kubernetes-api-service-tls",
                    # The metrics server of the clouds has a certificate of its own making.
                    when(
                        "object.spec.?insecureSkipTLSVerify.orValue(false) && "
                        'object.spec.?service.?namespace.orValue("") != "kube-system"',
                        "object.metadata.name",
                    ),
                    "the server of an API isn't verified", "caBundle",
                    "set caBundle and remove insecureSkipTLSVerify",
                ),
            ),
        ),
    )  # fmt: skip


def _sent(scope: ClusterScope, urls: str) -> Check:
    host = "url(u).getHostname()"
    return Check(
        "kubernetes-webhook-host",
        f'{urls}.filter(u, u != "" && !(isURL(u) && '
        f"{is_own_host(host, scope.hosts_pattern, scope.networks)}))",
        "objects, secrets among them, would be sent to",
        _SENT_TO,
        "name a service of the cluster in clientConfig",
    )
