"""Where objects of the platform's operators say that data goes, each field stated once.

Operators act on what their objects say, past what a pod may do: a store of backups, a service of
the mesh, a receiver of alerts. A `Sender` is read by two: the policy packs judge objects by it
before they are deployed (`policies/reading/destinations.py`), and `Residency` renders it to the
CEL of ValidatingAdmissionPolicies (`components/kubernetes/admission/destinations.py`), which judge
what reaches the cluster another way.

Fields are those of the kinds' definitions: Istio 1.30, Envoy Gateway 1.9, Prometheus Operator
0.93, External Secrets 1.3, cert-manager 1.21. A test reads the definitions themselves and fails
where one has a field that looks like a destination and that nobody decided about
(`tests/cluster/test_destinations.py`).
"""

from dataclasses import dataclass
from typing import Final, Literal

Form = Literal["host", "code", "range", "region"]
"""``host`` is a URL, a host or an address, with a port or without; ``code`` is that or an image,
which is Docker's without a host; ``range`` a range of addresses, or one; ``region`` a region of a
cloud."""


@dataclass(frozen=True)
class Field:
    """A field that names where data goes. Absent it is fine, unless it has a default."""

    path: str
    """Keys with dots; ``[]`` behind each list."""
    form: Form = "host"
    default: str = ""
    """The host that is reached where what holds the field is there without it."""
    instead: tuple[str, ...] = ()
    """Keys beside it: with one of them the field isn't a destination."""
    cluster: str = ""
    """A service of the cluster that may be said shortly: the definition itself fills it in."""


@dataclass(frozen=True)
class Choice:
    """A map of which some keys may be there: what the others stand for is abroad, or nobody
    judges where it is."""

    path: str
    """Of the map, as in `Field`."""
    keys: tuple[str, ...]
    """Keys that may be there."""
    ending: str = ""
    """Only keys that end so are looked at."""


@dataclass(frozen=True)
class Sender:
    """A kind of objects, and where they send data or fetch it from."""

    group: str
    name: str
    resource: str
    """What the API calls it: in the plural, in small letters."""
    fields: tuple[Field, ...]
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Topic:
    """Kinds that are judged together: by one rule of the packs and one policy of admission."""

    name: str
    """What the policy of admission is called."""
    rule: str
    """Id of the rule that judges them."""
    kinds: tuple[Sender, ...]


EXTERNAL_HOST: Final = "kubernetes-external-host"
DESTINATION_HOST: Final = "kubernetes-destination-host"
_ISTIO: Final = "networking.istio.io"
_ENVOY: Final = "gateway.envoyproxy.io"
_PROMETHEUS: Final = "monitoring.coreos.com"
_SECRETS: Final = "external-secrets.io"
_GENERATORS: Final = "generators.external-secrets.io"


def _hosts(*paths: str) -> tuple[Field, ...]:
    return tuple(Field(each) for each in paths)


def _code(*paths: str) -> tuple[Field, ...]:
    return tuple(Field(each, "code") for each in paths)


def _client(*holders: str) -> tuple[Field, ...]:
    """What clients of Prometheus's library have beside their URL: proxies, issuers of tokens."""
    inner = ("proxyUrl", "oauth2.tokenUrl", "oauth2.proxyUrl")
    return tuple(Field(f"{each}.{key}" if each else key) for each in holders for key in inner)


# The mesh and the gateways.
#
# A host that no ServiceEntry names isn't reached (REGISTRY_ONLY), and a route alone leads nowhere.
# What a route, a tunnel or a redirect names is judged all the same: another's entry may be there.
# `hosts` of a DestinationRule, a Gateway or a route are whom it is for, not where anything goes.

_MESH: Final = (
    Sender(
        _ISTIO, "ServiceEntry", "serviceentries",
        (
            *_hosts("spec.hosts[]", "spec.endpoints[].address"),
            Field("spec.addresses[]", "range"),
        ),
    ),
    Sender(_ISTIO, "WorkloadEntry", "workloadentries", _hosts("spec.address")),
    Sender(
        _ISTIO, "WorkloadGroup", "workloadgroups",
        _hosts(
            "spec.template.address", "spec.probe.httpGet.host", "spec.probe.tcpSocket.host",
        ),
    ),
    Sender(
        _ISTIO, "VirtualService", "virtualservices",
        _hosts(
            *(f"spec.{each}[].route[].destination.host" for each in ("http", "tcp", "tls")),
            "spec.http[].mirror.host", "spec.http[].mirrors[].destination.host",
            "spec.http[].redirect.authority", "spec.http[].rewrite.authority",
        ),
    ),
    Sender(
        _ISTIO, "DestinationRule", "destinationrules",
        _hosts(
            "spec.trafficPolicy.tunnel.targetHost",
            "spec.subsets[].trafficPolicy.tunnel.targetHost",
        ),
    ),
    Sender(
        _ISTIO, "Sidecar", "sidecars", _hosts("spec.outboundTrafficPolicy.egressProxy.host"),
    ),
    Sender(
        "security.istio.io", "RequestAuthentication", "requestauthentications",
        (
            *_hosts("spec.jwtRules[].jwksUri", "spec.jwtRules[].jwks_uri"),
            # Without keys the mesh asks the issuer where they are.
            Field("spec.jwtRules[].issuer", instead=("jwksUri", "jwks_uri", "jwks")),
        ),
    ),
)  # fmt: skip
_GATEWAYS: Final = (
    Sender(
        _ENVOY, "Backend", "backends",
        _hosts(
            "spec.endpoints[].fqdn.hostname", "spec.endpoints[].hostname",
            "spec.endpoints[].ip.address",
        ),
    ),
    Sender(
        _ENVOY, "EnvoyProxy", "envoyproxies",
        _hosts(
            # Deprecated for backendRefs, and still taken.
            "spec.telemetry.accessLog.settings[].sinks[].openTelemetry.host",
            "spec.telemetry.metrics.sinks[].openTelemetry.host",
            "spec.telemetry.tracing.provider.host",
        ),
    ),
    Sender(
        _ENVOY, "SecurityPolicy", "securitypolicies",
        _hosts(
            "spec.jwt.providers[].remoteJWKS.uri",
            *(
                f"spec.oidc.provider.{each}"
                for each in (
                    "issuer", "authorizationEndpoint", "tokenEndpoint", "endSessionEndpoint",
                )
            ),
        ),
    ),
    Sender(
        _ENVOY, "BackendTrafficPolicy", "backendtrafficpolicies",
        _hosts("spec.responseOverride[].redirect.hostname"),
    ),
)  # fmt: skip
#: Where proxies fetch code from that they run.
_CODE: Final = (
    Sender("extensions.istio.io", "WasmPlugin", "wasmplugins", _code("spec.url")),
    Sender("extensions.istio.io", "TrafficExtension", "trafficextensions", _code("spec.wasm.url")),
    Sender(
        _ENVOY, "EnvoyExtensionPolicy", "envoyextensionpolicies",
        _code("spec.wasm[].code.http.url", "spec.wasm[].code.image.url"),
    ),
    Sender(
        _ENVOY, "EnvoyProxy", "envoyproxies", _code("spec.dynamicModules[].source.remote.url"),
    ),
)  # fmt: skip


# Monitoring. What stands in a secret (an object store of Thanos, a whole configuration of
# Alertmanager) nobody sees who judges objects.

_SCRAPED: Final = (
    "spec.apiserverConfig.host", "spec.apiserverConfig.proxyUrl", "spec.tracingConfig.endpoint",
)  # fmt: skip
#: Ways to find targets whose server is told, or is the cluster's own.
_FOUND_BY: Final = (
    "azureSDConfigs", "consulSDConfigs", "dnsSDConfigs", "dockerSDConfigs", "dockerSwarmSDConfigs",
    "ec2SDConfigs", "eurekaSDConfigs", "fileSDConfigs", "httpSDConfigs", "kubernetesSDConfigs",
    "kumaSDConfigs", "nomadSDConfigs", "openstackSDConfigs", "puppetDBSDConfigs",
)  # fmt: skip
#: Receivers whose address is told, with the host that they have without one
#: (https://prometheus.io/docs/alerting/latest/configuration/); those that are left out (Slack,
#: Discord, Teams, Pushover) have it in a secret, or none but their maker's.
_RECEIVERS: Final = {
    "opsgenieConfigs": ("apiURL", "api.opsgenie.com"),
    "pagerdutyConfigs": ("url", "events.pagerduty.com"),
    "rocketchatConfigs": ("apiURL", "open.rocket.chat"),
    "telegramConfigs": ("apiURL", "api.telegram.org"),
    "victoropsConfigs": ("apiUrl", "alert.victorops.com"),
    "webexConfigs": ("apiURL", "webexapis.com"),
    "wechatConfigs": ("apiURL", "qyapi.weixin.qq.com"),
    "webhookConfigs": ("url", ""),
    "emailConfigs": ("smarthost", ""),
    "snsConfigs": ("apiURL", ""),
}
_GLOBAL: Final = "spec.alertmanagerConfiguration.global"
_WRITTEN: Final = (
    Field("spec.remoteWrite[].url"),
    Field("spec.remoteWrite[].sigv4.region", "region"),
    *_client("spec.remoteWrite[]"),
)
_MONITORING: Final = (
    Sender(
        _PROMETHEUS, "Prometheus", "prometheuses",
        (
            *_hosts(*_SCRAPED), *_WRITTEN,
            Field("spec.remoteRead[].url"), *_client("spec.remoteRead[]"),
            Field("spec.alerting.alertmanagers[].proxyUrl"),
            Field("spec.alerting.alertmanagers[].sigv4.region", "region"),
        ),
    ),
    Sender(
        _PROMETHEUS, "PrometheusAgent", "prometheusagents",
        (*_hosts(*_SCRAPED), *_WRITTEN),
    ),
    Sender(
        _PROMETHEUS, "ThanosRuler", "thanosrulers",
        (*_hosts("spec.alertmanagersUrl[]", "spec.queryEndpoints[]"), *_WRITTEN),
    ),
)  # fmt: skip
_SCRAPES: Final = (
    Sender(
        _PROMETHEUS, "Probe", "probes",
        (
            *_hosts(
                "spec.prober.url", "spec.prober.proxyUrl", "spec.oauth2.tokenUrl",
                "spec.oauth2.proxyUrl", "spec.targets.staticConfig.static[]",
            ),
        ),
    ),
    Sender(_PROMETHEUS, "ServiceMonitor", "servicemonitors", _client("spec.endpoints[]")),
    Sender(_PROMETHEUS, "PodMonitor", "podmonitors", _client("spec.podMetricsEndpoints[]")),
    Sender(
        _PROMETHEUS, "ScrapeConfig", "scrapeconfigs",
        (
            *_hosts(
                "spec.staticConfigs[].targets[]", "spec.httpSDConfigs[].url",
                "spec.dnsSDConfigs[].names[]", "spec.kubernetesSDConfigs[].apiServer",
                "spec.openstackSDConfigs[].identityEndpoint", "spec.puppetDBSDConfigs[].url",
                *(
                    f"spec.{each}SDConfigs[].server"
                    for each in ("consul", "eureka", "kuma", "nomad")
                ),
                *(f"spec.{each}SDConfigs[].host" for each in ("docker", "dockerSwarm")),
            ),
            Field("spec.ec2SDConfigs[].proxyUrl"), Field("spec.ec2SDConfigs[].region", "region"),
            *_client(
                "spec", *(f"spec.{each}[]" for each in _FOUND_BY if each not in {
                    "dnsSDConfigs", "ec2SDConfigs", "fileSDConfigs", "openstackSDConfigs",
                }),
            ),
        ),
        (Choice("spec", _FOUND_BY, "SDConfigs"),),
    ),
)  # fmt: skip
_ALERTS: Final = (
    Sender(
        _PROMETHEUS, "AlertmanagerConfig", "alertmanagerconfigs",
        (
            *(
                Field(f"spec.receivers[].{each}[].{key}", default=default)
                for each, (key, default) in _RECEIVERS.items()
            ),
            Field("spec.receivers[].snsConfigs[].sigv4.region", "region"),
            *_client(
                *(
                    f"spec.receivers[].{each}[].httpConfig"
                    for each in _RECEIVERS if each != "emailConfigs"
                ),
            ),
            *(
                Field(f"spec.receivers[].{each}[].httpConfig.proxyURL")
                for each in _RECEIVERS if each != "emailConfigs"
            ),
        ),
        (Choice("spec.receivers[]", tuple(_RECEIVERS), "Configs"),),
    ),
    Sender(
        _PROMETHEUS, "Alertmanager", "alertmanagers",
        (
            *_hosts(
                f"{_GLOBAL}.smtp.smartHost.host", f"{_GLOBAL}.pagerdutyUrl",
                *(
                    f"{_GLOBAL}.{each}.apiURL"
                    for each in ("jira", "rocketChat", "telegram", "victorops", "webex", "wechat")
                ),
            ),
            *_client(f"{_GLOBAL}.httpConfig"),
        ),
    ),
)  # fmt: skip


# Secrets: stores that they are read from and pushed to, and what makes them.

_VAULT: Final = ("aws", "azurekv", "barbican", "beyondtrust", "chef", "conjur", "device42", "dvls",
                 "fake", "gitlab", "infisical", "kubernetes", "onepassword", "passbolt",
                 "passworddepot", "secretserver", "senhasegura", "vault", "webhook")  # fmt: skip
_PROVIDER: Final = "spec.provider"
#: https://external-secrets.io/latest/api/spec/
_STORE: Final = (
    Field(f"{_PROVIDER}.aws.region", "region"),
    Field(f"{_PROVIDER}.vault.auth.iam.region", "region"),
    Field(f"{_PROVIDER}.gitlab.url", default="gitlab.com"),
    Field(f"{_PROVIDER}.infisical.hostAPI", default="app.infisical.com"),
    Field(f"{_PROVIDER}.kubernetes.server.url", cluster="kubernetes.default"),
    *_hosts(*(f"{_PROVIDER}.{each}" for each in (
        "azurekv.vaultUrl", "azurekv.customCloudConfig.activeDirectoryEndpoint",
        "azurekv.customCloudConfig.keyVaultEndpoint",
        "azurekv.customCloudConfig.resourceManagerEndpoint", "barbican.authURL",
        "beyondtrust.server.apiUrl", "chef.serverUrl", "conjur.url", "device42.host",
        "dvls.serverUrl", "onepassword.connectHost", "passbolt.host",
        "passworddepot.host", "secretserver.serverURL", "senhasegura.url", "vault.server",
        "webhook.url",
    ))),
)  # fmt: skip
_STORE_CHOICE: Final = (Choice(_PROVIDER, _VAULT),)
_INLINE: Final = "spec.generator"
_SECRET_STORES: Final = (
    Sender(_SECRETS, "SecretStore", "secretstores", _STORE, _STORE_CHOICE),
    Sender(_SECRETS, "ClusterSecretStore", "clustersecretstores", _STORE, _STORE_CHOICE),
)  # fmt: skip
_SECRET_GENERATORS: Final = (
    Sender(_GENERATORS, "Webhook", "webhooks", _hosts("spec.url")),
    Sender(
        _GENERATORS, "VaultDynamicSecret", "vaultdynamicsecrets",
        (*_hosts("spec.provider.server"), Field("spec.provider.auth.iam.region", "region")),
    ),
    Sender(
        _GENERATORS, "ECRAuthorizationToken", "ecrauthorizationtokens",
        (Field("spec.region", "region"),),
    ),
    Sender(_GENERATORS, "STSSessionToken", "stssessiontokens", (Field("spec.region", "region"),)),
    Sender(_GENERATORS, "ACRAccessToken", "acraccesstokens", _hosts("spec.registry")),
    Sender(_GENERATORS, "Grafana", "grafanas", _hosts("spec.url")),
    Sender(
        _GENERATORS, "QuayAccessToken", "quayaccesstokens", (Field("spec.url", default="quay.io"),)
    ),
    Sender(
        _GENERATORS, "GithubAccessToken", "githubaccesstokens",
        (Field("spec.url", default="api.github.com"),),
    ),
    Sender(
        _GENERATORS, "ClusterGenerator", "clustergenerators",
        (
            *_hosts(*(f"{_INLINE}.{each}" for each in (
                "webhookSpec.url", "grafanaSpec.url", "vaultDynamicSecretSpec.provider.server",
                "acrAccessTokenSpec.registry",
            ))),
            Field(f"{_INLINE}.quayAccessTokenSpec.url", default="quay.io"),
            Field(f"{_INLINE}.githubAccessTokenSpec.url", default="api.github.com"),
            *(
                Field(f"{_INLINE}.{each}.region", "region")
                for each in ("ecrAuthorizationTokenSpec", "stsSessionTokenSpec",
                             "vaultDynamicSecretSpec.provider.auth.iam")
            ),
        ),
        (
            Choice(_INLINE, (
                "acrAccessTokenSpec", "ecrAuthorizationTokenSpec", "fakeSpec",
                "githubAccessTokenSpec", "grafanaSpec", "mfaSpec", "passwordSpec",
                "quayAccessTokenSpec", "sshKeySpec", "stsSessionTokenSpec", "uuidSpec",
                "vaultDynamicSecretSpec", "webhookSpec",
            )),
        ),
    ),
    # Their makers offer them abroad alone.
    *(
        Sender(_GENERATORS, name, resource, (), (Choice("spec", ()),))
        for name, resource in (
            ("GCRAccessToken", "gcraccesstokens"),
            ("CloudsmithAccessToken", "cloudsmithaccesstokens"),
        )
    ),
)  # fmt: skip


# Certificates: who signs them learns every name, and may refuse to.
# https://cert-manager.io/docs/reference/api-docs/

_SOLVER: Final = "spec.acme.solvers[].dns01"
_ISSUER: Final = (
    *_hosts(
        "spec.acme.server",
        f"{_SOLVER}.acmeDNS.host",
        f"{_SOLVER}.rfc2136.nameserver",
        "spec.vault.server",
        "spec.venafi.tpp.url",
        "spec.venafi.ngts.tokenEndpoint",
        "spec.venafi.ngts.url",
    ),
    Field("spec.venafi.cloud.url", default="api.venafi.cloud"),
    Field("spec.vault.auth.aws.region", "region"),
)
#: Names are proved in DNS by what is told where it is; Route 53 and Azure's DNS have no place, and
#: hold names alone.
_ISSUER_CHOICES: Final = (
    Choice("spec", ("acme", "ca", "selfSigned", "vault", "venafi")),
    Choice(_SOLVER, ("acmeDNS", "azureDNS", "cnameStrategy", "rfc2136", "route53", "webhook")),
)
_CERTIFICATES: Final = (
    Sender("cert-manager.io", "Issuer", "issuers", _ISSUER, _ISSUER_CHOICES),
    Sender("cert-manager.io", "ClusterIssuer", "clusterissuers", _ISSUER, _ISSUER_CHOICES),
)

TOPICS: Final = (
    Topic("mesh-destinations", EXTERNAL_HOST, _MESH),
    Topic("gateway-destinations", EXTERNAL_HOST, _GATEWAYS),
    Topic("proxy-code", DESTINATION_HOST, _CODE),
    Topic("monitoring-destinations", DESTINATION_HOST, _MONITORING),
    Topic("scrape-targets", DESTINATION_HOST, _SCRAPES),
    Topic("alert-receivers", DESTINATION_HOST, _ALERTS),
    Topic("secret-stores", DESTINATION_HOST, _SECRET_STORES),
    Topic("secret-generators", DESTINATION_HOST, _SECRET_GENERATORS),
    Topic("issuers", DESTINATION_HOST, _CERTIFICATES),
)


# Volumes that somebody describes: the servers, places and stores that drivers are told of.

#: Attributes of CSI drivers that name a server, in small letters: of NFS and SMB (server, source),
#: FSx (dnsname), EFS (mounttargetip), Azure's files and blobs (server), and of stores that are
#: mounted (endpoint, url).
VOLUME_SERVERS: Final = frozenset({
    "server", "source", "dnsname", "mounttargetip", "endpoint", "endpointurl", "url", "host",
    "address",
})  # fmt: skip
#: Options of mounting that name one, before ``=`` or a blank, and those that name a region.
MOUNT_SERVERS: Final = ("addr", "mounttargetip", "endpoint-url", "endpoint_url", "url")
MOUNT_REGIONS: Final = ("region", "endpoint_region")


# Backups, whose place hangs on the plugin.
#
# https://velero.io/docs/main/api-types/backupstoragelocation/

#: Where plugins are told a store's own address, and the places of a cloud.
BACKUP_STORES: Final = ("s3Url", "publicUrl", "storageAccountURI")
#: Plugins of clouds that have no region in the country, in small letters.
BACKUP_ABROAD: Final = ("alibabacloud", "digitalocean", "gcp", "velero.io/gcp")
BACKUP_AWS: Final = ("aws", "velero.io/aws")
BACKUP_AZURE: Final = ("azure", "velero.io/azure")
