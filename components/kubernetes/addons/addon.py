"""What an add-on of the platform is: charts, their values, and the objects around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from falaj.components.catalogue import clusters
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.bill_of_materials import Chart, charts
from falaj.components.specification.called_ports import CALLED_PORTS

COMPONENT: Final = "platform"
PRIORITY_CLASS: Final = "falaj-platform"
"""Of the add-ons' pods: above every tenant's, below the cluster's own."""
ISSUER: Final = clusters.CERTIFICATE_ISSUER
"""The `ClusterIssuer` of the private CA."""
TRUST: Final = "falaj-ca"
"""The secret with its certificate and key."""
#: https://prometheus-operator.dev/docs/api-reference/api/
MONITORING_API: Final = "monitoring.coreos.com/v1"
MONITORING: Final = clusters.MONITORING
MESH_LABELS: Final = {"istio.io/dataplane-mode": "ambient"}
"""Of pods outside of the serving namespaces that call into them: they get an identity."""
MESH_ANNOTATIONS: Final = {"ambient.istio.io/bypass-inbound-capture": "true"}
"""Their own callers aren't in the mesh, which would turn them away."""
Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Namespace:
    """A namespace of an add-on."""

    name: str
    level: str = "restricted"
    """Pod security standard that it enforces."""
    why: str = ""
    """What needs more than ``restricted``."""


@dataclass(frozen=True)
class Release:
    """A chart that is installed."""

    chart: str
    """Its name in the bill of materials."""
    name: str
    """Of the release: prefix of most of its objects' names."""
    namespace: str

    @property
    def pinned(self) -> Chart:
        """Version, source and licence."""
        return charts()[self.chart]


@dataclass(frozen=True)
class Traffic:
    """What a namespace may be reached by and may reach, beside itself and names of services."""

    api_server: bool = True
    """May call the API server."""
    webhooks: tuple[int, ...] = ()
    """Ports that the API server calls, of `called_ports.CALLED_PORTS`: clouds' networks let these
    in and no others."""
    scrapes: tuple[int, ...] = ()
    """Ports that Prometheus reads."""
    endpoints: bool = False
    """May call the private endpoints of the cloud's, or the site's, own services."""
    callers: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Namespaces that may call it, with the ports."""
    calls: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Namespaces that it may call, with the ports; ``*`` is every namespace of the cluster."""

    def __post_init__(self) -> None:
        """Refuse a port that clouds' networks drop. Raises ValueError."""
        for port in self.webhooks:
            if port not in CALLED_PORTS:
                raise ValueError(
                    f"webhooks: given {port}, which networks of clouds drop; allowed: "
                    f"{', '.join(map(str, CALLED_PORTS))}; add it to CALLED_PORTS of "
                    "components/specification/called_ports.py with what it is for"
                )


@dataclass(frozen=True)
class Scrape:
    """Metrics of an add-on, which Prometheus reads.

    Charts' own monitors look for the definition of `ServiceMonitor` while they are rendered, and
    change or fail with what is in the cluster just then: they are switched off.
    """

    namespace: str
    labels: Mapping[str, str]
    """Of its pods; of its service where ``certificate`` is set."""
    port: int | str
    certificate: str = ""
    """Secret with the certificate of metrics over TLS, which take the token of Prometheus."""
    server: str = ""
    """Name in that certificate."""
    path: str = "/metrics"


@dataclass(frozen=True, kw_only=True)
class PlatformSpec:
    """The arguments of `Platform`, checked: what add-ons render their values from."""

    placed: InCluster
    name: str
    addons: Mapping[str, Mapping[str, Any]]
    """Options of each add-on that is installed, in the order of installation."""
    images: Mapping[str, str]
    """``registry/repository:tag@sha256:…`` by short name."""
    control_plane_cidrs: tuple[str, ...]
    endpoint_cidrs: tuple[str, ...]
    storage_class: str
    allowed_domains: Any = ()
    """Domains that pods may reach anyway, plain or as an output."""
    cluster_name: Any = ""
    """The cloud's name of the cluster, plain or as an output."""
    network_id: Any = ""
    """The cloud's id of the cluster's network, plain or as an output."""
    serving_namespaces: str = "serving"

    def has(self, addon: str) -> bool:
        """Whether the add-on is installed."""
        return addon in self.addons

    def options(self, addon: str) -> Mapping[str, Any]:
        """Its options with their defaults; none where it isn't installed."""
        return self.addons.get(addon, {})

    def repository(self, image: str) -> str:
        """Registry and repository of an image, without tag."""
        return self.images[image].partition("@")[0].rpartition(":")[0]

    def tag(self, image: str) -> str:
        """``tag@sha256:…``: what charts take that write ``repository:tag``."""
        return self.images[image].removeprefix(self.repository(image) + ":")

    def parts(self, image: str) -> tuple[str, str, str, str]:
        """Registry with path and the upstream's host, repository below, tag, digest in hex."""
        tag, _, digest = self.tag(image).partition("@sha256:")
        below = self.repository(image).removeprefix(self.placed.registry + "/")
        host, _, repository = below.partition("/")
        return f"{self.placed.registry}/{host}", repository, tag, digest

    def image_parts(self, image: str) -> Values:
        """An image as charts of the Prometheus community write it."""
        registry, repository, tag, digest = self.parts(image)
        return {"registry": registry, "repository": repository, "tag": tag, "sha": digest}

    @property
    def node_selector(self) -> dict[str, str]:
        """Pins a pod to the region."""
        return {**self.placed.node_selector, "kubernetes.io/os": "linux"}

    def metadata(self, name: str, namespace: str = "", **labels: str) -> dict[str, Any]:
        """``metadata`` of an object of the platform."""
        return metadata(self.placed, COMPONENT, name, namespace, labels=labels)


def _nothing(_: PlatformSpec) -> Sequence[Manifest]:
    return ()


def _no_namespaces(_: PlatformSpec) -> Sequence[Namespace]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Addon:
    """An add-on: data, and pure functions of what was asked."""

    name: str
    summary: str
    namespaces: tuple[Namespace, ...]
    releases: tuple[Release, ...]
    options: type
    """TypedDict of its options."""
    images: Callable[[PlatformSpec], Sequence[str]]
    """Short names of the images that its pods run."""
    values: Callable[[PlatformSpec], Mapping[str, Values]]
    """Values of each release, by its name."""
    traffic: Callable[[PlatformSpec], Mapping[str, Traffic]]
    """By namespace."""
    scrapes: tuple[Scrape, ...] = ()
    asked_namespaces: Callable[[PlatformSpec], Sequence[Namespace]] = _no_namespaces
    """Further namespaces, which its options ask for."""
    before: Callable[[PlatformSpec], Sequence[Manifest]] = _nothing
    """Objects that its charts need."""
    after: Callable[[PlatformSpec], Sequence[Manifest]] = _nothing
    """Objects of kinds that its charts define, or that its controllers act on."""
    needs: tuple[str, ...] = ()
    """Add-ons without which it doesn't work."""
    follows: tuple[str, ...] = ()
    """Add-ons that come first where they are installed."""
    distributions: tuple[str, ...] = ("eks", "aks", "existing")
    """Where it can be installed."""
    default: bool = True
    """Whether it is installed without being asked for."""
    asked_on: tuple[str, ...] = ()
    """Where it is not, whatever the default."""
    asks: tuple[str, ...] = ()
    """Arguments of `Platform` that it can't do without, beside those that are always needed."""
    check: Callable[[OptionsChecker, InCluster], None] = lambda options, placed: None
    """Refuses what can't be of options that are each as their annotations say."""


def resources(cpu: str, memory: str) -> dict[str, dict[str, str]]:
    """Requests, and a limit of memory: CPU isn't capped, so that controllers aren't throttled."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
