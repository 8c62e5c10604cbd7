"""Where programs in a cluster are told to send or fetch data: settings, arguments, exporters.

A destination is *told* where its key says that it is one (an exporter's endpoint, a URL in a
container's settings); then any host that isn't allowed counts. In other texts (configuration
files) only hosts that are known to be abroad count, for such texts hold links of every kind.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import Path, Resource, format_path, get, is_list, is_unknown, items, text
from falaj.policies.reading.hosts import host_of
from falaj.policies.reading.kubernetes import Manifest, documents, is_bundle, is_object, manifests
from falaj.policies.reading.pods import Container, pods
from falaj.policies.reading.remembered import remembered

_URL: Final = re.compile(r"\b([a-z][a-z0-9+.-]{1,20})://[^\s\"'<>|,;()`{}\\]+", re.I)
_NAME: Final = re.compile(r"(?<![\w./@-])(?:[a-z0-9][a-z0-9-]*\.)+[a-z]{2,18}(?![\w-])", re.I)
_HOST: Final = re.compile(r"[a-z0-9_*-]+(?:\.[a-z0-9_-]+)*\.?")
_COMMENT: Final = re.compile(r"(?m)(?:^|\s)(?:#|//|;)\s.*$")
#: Settings that name a host without a scheme.
_HOST_SETTINGS: Final = re.compile(
    r"OTEL_EXPORTER_\w*ENDPOINT|DD_SITE|DD_(?:DD_)?URL|NEW_RELIC_HOST|\w*_BASE_URL|\w*_ENDPOINT|"
    r"\w*_ENDPOINT_URL|\w*_API_BASE|SENTRY_DSN|\w*_TRACKING_URI|(?:HTTPS?|ALL)_PROXY|"
    r"(?:\w*_)?UR[IL]",
    re.I,
)
#: Settings whose URLs are shown or compared, not called.
_LINKS: Final = re.compile(
    r"\w*(?:DOC|HELP|SUPPORT|SCHEMA|LICEN[CS]E|HOMEPAGE|LOGO|TERMS|PRIVACY|REFERENCE|README|"
    r"AUDIENCE|NAMESPACE_URI|CORS|ALLOWED_ORIGIN|ROOT_URL|PUBLIC_URL|EXTERNAL_URL|FRONTEND_URL|"
    r"SELF_URL)\w*",
    re.I,
)
#: Keys of configurations whose content are destinations.
_EXPORTERS: Final = frozenset({
    "remotewrite", "remote_write", "exporters", "sinks", "outputs", "remoteread", "remote_read",
    "clusteroutput", "alertmanagers", "webhook_configs", "slack_configs", "webhookconfigs",
    "slackconfigs",
})  # fmt: skip
_ENDPOINTS: Final = frozenset({
    "url", "uri", "endpoint", "endpoints", "host", "api_url", "address", "traces_endpoint",
    "metrics_endpoint", "logs_endpoint", "site", "brokers",
})  # fmt: skip
#: Commands that are run beside the program.
_HOOKS: Final = tuple(
    f"{each}.exec.command"
    for each in (
        "lifecycle.postStart", "lifecycle.preStop", "livenessProbe", "readinessProbe",
        "startupProbe",
    )
)  # fmt: skip
_OUTPUT_KINDS: Final = frozenset({"Output", "ClusterOutput"})
_NOT_SEARCHED: Final = frozenset({"status", "metadata", "openAPIV3Schema", "caBundle", "image"})
#: Where Fluent Bit sends what it reads, in its own format of files.
_FLUENT_HOST: Final = re.compile(r"(?mi)^\s*(?:Host|Endpoint|Upstream_Host)\s+(\S+)\s*$")
_LONGEST: Final = 500_000


@dataclass(frozen=True)
class Destination:
    """One place that data may go to or come from."""

    manifest: Manifest
    at: str
    """Path in the object."""
    value: Any
    """The URL or host, or an Unknown."""
    is_told: bool
    """Whether its key says that it is one."""

    @property
    def host(self) -> str:
        """Its host; empty where it has none."""
        found = host_of(self.value)
        bare = text(self.value).lower().partition(":")[0]
        return found or (bare if _HOST.fullmatch(bare) else "")

    @property
    def scheme(self) -> str:
        """Its scheme in small letters; empty where it has none."""
        before, sign, _ = text(self.value).partition("://")
        return before.lower() if sign else ""


@remembered(256)
def destinations(resource: Resource) -> tuple[Destination, ...]:
    """Every destination that a resource names."""
    return tuple(_destinations(resource))


def _destinations(resource: Resource) -> Iterator[Destination]:
    if resource.package == "kubernetes" and is_bundle(resource):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        yield from _custom(chart, get(resource.properties, "values"), ("values",), told=False)
    for manifest in manifests(resource):
        for pod in pods(manifest):
            for container in pod.containers:
                yield from _of_container(container)
        if manifest.kind in {"ConfigMap", "Secret"} and not manifest.group:
            yield from _of_files(manifest)
        elif manifest.is_searched and manifest.kind != "CustomResourceDefinition":
            told = manifest.kind in _OUTPUT_KINDS
            yield from _custom(manifest, manifest.body, (), told=told)


def _of_container(container: Container) -> Iterator[Destination]:
    manifest = container.pod.manifest
    for index, each in enumerate(items(container.get("env"))):
        name, value = text(get(each, "name")), get(each, "value")
        at = f"{container.at}.env[{index}].value"
        if _LINKS.fullmatch(name):
            continue
        if _HOST_SETTINGS.fullmatch(name):
            if is_unknown(value) or text(value):
                yield Destination(manifest, at, value, is_told=True)
        else:
            yield from _in_text(manifest, at, value, told=True)
    for key in ("args", "command", *_HOOKS):
        for index, each in enumerate(items(container.get(key))):
            option = text(each).partition("=")[0].lstrip("-").replace("-", "_")
            if not _LINKS.fullmatch(option):
                yield from _in_text(manifest, f"{container.at}.{key}[{index}]", each, told=True)


def _in_text(manifest: Manifest, at: str, value: Any, *, told: bool) -> Iterator[Destination]:
    """URLs within a text, and names of hosts; only URLs are told."""
    given = text(value)
    if not given or len(given) > _LONGEST:
        return
    rest = given
    for found in _URL.finditer(given):
        yield Destination(manifest, at, found[0].rstrip("."), is_told=told)
        rest = rest.replace(found[0], " ")
    for found in _NAME.finditer(rest):
        yield Destination(manifest, at, found[0], is_told=False)


def _of_files(manifest: Manifest) -> Iterator[Destination]:
    """What the files of a ConfigMap, or the texts of a Secret, name."""
    if manifest.kind == "Secret" and text(manifest.get("type")).startswith("kubernetes.io/docker"):
        return  # Registries, of which images tell.
    for key in ("data",) if manifest.kind == "ConfigMap" else ("stringData", "data"):
        data = manifest.get(key)
        decode = key == "data" and manifest.kind == "Secret"
        for name, value in data.items() if isinstance(data, Mapping) else ():
            at = format_path((key, str(name)))
            if _LINKS.fullmatch(str(name)):
                continue
            if not decode and _HOST_SETTINGS.fullmatch(str(name)) and "\n" not in text(value):
                if is_unknown(value) or text(value):
                    yield Destination(manifest, at, value, is_told=True)
                continue
            content = _decoded(text(value)) if decode else text(value)
            yield from _of_file(manifest, at, content)


def _decoded(value: str) -> str:
    """The text behind base64; empty where there is none."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except ValueError:
        return ""


def _of_file(manifest: Manifest, at: str, content: str) -> Iterator[Destination]:
    if len(content) > _LONGEST:
        return
    yield from _in_text(manifest, at, _COMMENT.sub(" ", content), told=False)
    if "[OUTPUT]" in content.upper():
        for found in _FLUENT_HOST.finditer(content):
            yield Destination(manifest, at, found[1], is_told=True)
    if any(f"{each}:" in content for each in ("exporters", "remote_write", "sinks", "outputs")):
        for found in _custom(manifest, documents(content), (), told=False):
            if found.is_told:
                yield Destination(manifest, at, found.value, is_told=True)


def _custom(manifest: Manifest, value: Any, path: Path, *, told: bool) -> Iterator[Destination]:
    """Destinations in custom objects, values of charts, and configuration files."""
    if isinstance(value, Mapping):
        if path and path != ("values",) and is_object(value):
            return
        for key, each in value.items():
            name, at = str(key), (*path, str(key))
            if name in _NOT_SEARCHED or name in {"containers", "initContainers"}:
                continue
            if name == "storageUri" or (told and name.lower() in _ENDPOINTS):
                yield from _told(manifest, each, at)
            else:
                within = told or name.lower() in _EXPORTERS
                yield from _custom(manifest, each, at, told=within)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _custom(manifest, each, (*path, index), told=told)
    elif isinstance(value, str):
        if "\n" in value:
            yield from _of_file(manifest, format_path(path), value)
        else:
            yield from _in_text(manifest, format_path(path), value, told=False)


def _told(manifest: Manifest, value: Any, path: Path) -> Iterator[Destination]:
    for index, each in enumerate(items(value)):
        at = format_path((*path, index) if is_list(value) else path)
        if is_unknown(each) or text(each):
            yield Destination(manifest, at, each, is_told=True)
