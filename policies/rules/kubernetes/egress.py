"""Data and models that programs are told to send or fetch: nowhere abroad, from no hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Path,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    is_list,
    is_true,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.destinations import is_known, is_made_here
from falaj.policies.reading.encoded import plain_of, texts_in
from falaj.policies.reading.hosts import (
    BUCKET_SCHEMES,
    foreign_service,
    host_of,
    is_listed,
    region_of_host,
)
from falaj.policies.reading.kubernetes import (
    ANY_OBJECT,
    Manifest,
    documents,
    is_bundle,
    is_object,
    manifests,
)
from falaj.policies.reading.pods import Container, each_container, pods
from falaj.policies.reading.program_hosts import (
    NO_HOSTS,
    URL,
    far_ends,
    in_pieces,
    is_link,
    without_scheme,
)
from falaj.policies.reading.services import may_reach_from_pods
from falaj.wire.documents import is_mapping

# Where programs in a cluster are told to send or fetch data: settings, arguments, exporters.
#
# A destination is *stated* where its key says that it is one (an exporter's endpoint, a URL in a
# container's settings); then any host that isn't allowed counts. In other texts (configuration
# files) only hosts that are known to be abroad count, for such texts hold links of every kind.

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
#: Keys of configurations whose content are destinations.
_EXPORTERS: Final = frozenset({
    "remotewrite", "remote_write", "exporters", "sinks", "outputs", "remoteread", "remote_read",
    "clusteroutput", "alertmanagers", "webhook_configs", "slack_configs", "webhookconfigs",
    "slackconfigs",
})  # fmt: skip
_CALLED: Final = frozenset({
    "url", "uri", "endpoint", "endpoints", "brokers", "bootstrapservers", "serverurl",
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
_NOT_SEARCHED: Final = frozenset({"openAPIV3Schema", "caBundle", "image"})
#: What every object has, and templates of objects have: marks, and what a controller reports.
_OF_OBJECTS: Final = frozenset({"status", "metadata"})
#: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
_METADATA: Final = frozenset({
    "annotations", "creationTimestamp", "finalizers", "generateName", "labels", "name",
    "namespace", "ownerReferences",
})  # fmt: skip
#: Where Fluent Bit sends what it reads, in its own format of files.
_FLUENT_HOST: Final = re.compile(r"(?mi)^\s*(?:Host|Endpoint|Upstream_Host)\s+(\S+)\s*$")
#: Keys that become variables of a program (``envFrom``), rather than files.
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]+")
_LONGEST: Final = 500_000


@dataclass(frozen=True)
class Destination:
    """One place that data may go to or come from."""

    manifest: Manifest
    at: str
    """Path in the object."""
    value: Any
    """The URL or host, or an Unknown."""
    is_stated: bool
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


#: Definitions, and policies, which name hosts to refuse them: neither sends anything.
_ONLY_NAMED: Final = frozenset({"CustomResourceDefinition", "ValidatingAdmissionPolicy"})


@remembered(256)
def destinations(resource: Resource) -> tuple[Destination, ...]:
    """Every destination that a resource names."""
    return tuple(_destinations(resource))


def _destinations(resource: Resource) -> Iterator[Destination]:
    if resource.package == "kubernetes" and is_bundle(resource):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        yield from _custom(chart, get(resource.properties, "values"), ("values",), stated=False)
    for manifest in manifests(resource):
        for pod in pods(manifest):
            for container in pod.containers:
                yield from _of_container(container)
        if manifest.kind in {"ConfigMap", "Secret"} and not manifest.group:
            yield from _of_files(manifest)
        elif manifest.is_searched and manifest.kind not in _ONLY_NAMED:
            stated = manifest.kind in _OUTPUT_KINDS
            yield from _custom(manifest, manifest.body, (), stated=stated)


def _of_container(container: Container) -> Iterator[Destination]:
    manifest = container.pod.manifest
    for index, each in enumerate(items(container.get("env"))):
        name, value = text(get(each, "name")), get(each, "value")
        at = f"{container.at}.env[{index}].value"
        if is_link(name, text(value)):
            continue
        if _HOST_SETTINGS.fullmatch(name):
            if is_unknown(value) or text(value):
                yield Destination(manifest, at, value, is_stated=True)
        else:
            yield from _in_text(manifest, at, value, stated=True)
    for key in ("args", "command", *_HOOKS):
        for index, each in enumerate(items(container.get(key))):
            option, _, value = text(each).partition("=")
            if not is_link(option.lstrip("-").replace("-", "_"), value):
                yield from _in_text(manifest, f"{container.at}.{key}[{index}]", each, stated=True)
        # A command is told in pieces: ``[ssh, ops@host]``.
        whole = " ".join(text(each) for each in items(container.get(key)))
        yield from _far_ends(manifest, f"{container.at}.{key}", in_pieces(whole))


def _far_ends(manifest: Manifest, at: str, ends: Iterable[str]) -> Iterator[Destination]:
    for each in ends:
        host = each if "://" in each else f"//{each}"
        yield Destination(manifest, at, host, is_stated=True)


def _in_text(manifest: Manifest, at: str, value: Any, *, stated: bool) -> Iterator[Destination]:
    """URLs within a text, and names of hosts, also in what it holds in base64; names are told
    only with a port."""
    given = text(value)
    if not given or len(given) > _LONGEST:
        return
    yield from _in_plain(manifest, at, given, stated=stated)
    for plain in texts_in(given):
        yield from _in_plain(manifest, at, _COMMENT.sub(" ", plain), stated=stated)


def _in_plain(manifest: Manifest, at: str, given: str, *, stated: bool) -> Iterator[Destination]:
    rest = given
    for found in URL.finditer(given):
        yield Destination(manifest, at, found[0].rstrip("."), is_stated=stated)
        rest = rest.replace(found[0], " ")
    if stated:
        for host in without_scheme(rest):
            yield Destination(manifest, at, host, is_stated=True)
    for found in _NAME.finditer(rest):
        yield Destination(manifest, at, found[0], is_stated=False)


def _of_files(manifest: Manifest) -> Iterator[Destination]:
    """What the files of a ConfigMap, or the texts of a Secret, name."""
    if manifest.kind == "Secret" and text(manifest.get("type")).startswith("kubernetes.io/docker"):
        return  # Registries, of which images tell.
    is_map = manifest.kind == "ConfigMap"
    for key in ("data", "binaryData") if is_map else ("stringData", "data"):
        data = manifest.get(key)
        decode = key == ("binaryData" if is_map else "data")
        for name, value in data.items() if is_mapping(data) else ():
            at = format_path((key, str(name)))
            if is_link(str(name), text(value)):
                continue
            if not decode and _HOST_SETTINGS.fullmatch(str(name)) and "\n" not in text(value):
                if is_unknown(value) or text(value):
                    yield Destination(manifest, at, value, is_stated=True)
                continue
            content = plain_of(text(value)) if decode else text(value)
            if _VARIABLE.fullmatch(str(name)) and "\n" not in content:
                yield from _in_text(manifest, at, content, stated=True)
            else:
                yield from _of_file(manifest, at, content)


def _of_file(manifest: Manifest, at: str, content: str) -> Iterator[Destination]:
    if len(content) > _LONGEST:
        return
    plain = _COMMENT.sub(" ", content)
    yield from _in_text(manifest, at, plain, stated=False)
    for each in (plain, *texts_in(content)):
        yield from _far_ends(manifest, at, far_ends(each))
    if "[OUTPUT]" in content.upper():
        for found in _FLUENT_HOST.finditer(content):
            yield Destination(manifest, at, found[1], is_stated=True)
    if any(f"{each}:" in content for each in ("exporters", "remote_write", "sinks", "outputs")):
        for found in _custom(manifest, documents(content), (), stated=False):
            if found.is_stated:
                yield Destination(manifest, at, found.value, is_stated=True)


def _custom(manifest: Manifest, value: Any, path: Path, *, stated: bool) -> Iterator[Destination]:
    """Destinations in custom objects, values of charts, and configuration files."""
    if is_mapping(value):
        if path and path != ("values",) and is_object(value):
            return
        for key, each in value.items():
            name, at = str(key), (*path, str(key))
            if name in _NOT_SEARCHED or name in {"containers", "initContainers"}:
                continue
            if name in _OF_OBJECTS and (not path or _is_metadata(each)):
                continue
            is_endpoint = name == "storageUri" or (stated and name.lower() in _ENDPOINTS)
            # In any object of an operator these mean what is called, wherever they stand.
            calls = manifest.is_searched and not is_known(manifest) and name.lower() in _CALLED
            if (is_endpoint or calls) and not _holds_more(each):
                yield from _listed_destinations(manifest, each, at)
            else:
                # Where the catalogue tells the fields, `destinations` judges them.
                within = stated or (name.lower() in _EXPORTERS and not is_known(manifest))
                yield from _custom(manifest, each, at, stated=within)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _custom(manifest, each, (*path, index), stated=stated)
    elif isinstance(value, str):
        if "\n" in value:
            yield from _of_file(manifest, format_path(path), value)
        else:
            yield from _in_text(manifest, format_path(path), value, stated=False)


def _holds_more(value: Any) -> bool:
    """Whether it is no text, nor a list of texts."""
    return any(is_mapping(each) or is_list(each) for each in items(value))


def _is_metadata(value: Any) -> bool:
    return is_mapping(value) and _METADATA.issuperset(value)


def _listed_destinations(manifest: Manifest, value: Any, path: Path) -> Iterator[Destination]:
    for index, each in enumerate(items(value)):
        at = format_path((*path, index) if is_list(value) else path)
        if is_unknown(each) or text(each):
            yield Destination(manifest, at, each, is_stated=True)


_CONTROLS: Final = (
    "pdpl:22", "pdpl:23", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.14",
    "iso27001:A.8.12",
)  # fmt: skip
#: Schemes of stores that have no place in the country.
_FOREIGN_SCHEMES: Final = {
    "gs": "Google Cloud Storage", "hf": "Hugging Face", "wandb": "Weights & Biases",
    "wandb-artifact": "Weights & Biases", "b2": "Backblaze B2", "r2": "Cloudflare R2",
    "oss": "Alibaba OSS", "oci-storage": "Oracle Object Storage",
}  # fmt: skip


def _abroad(found: Destination, context: Context) -> str:
    """Why a destination is known to be abroad; empty where it isn't known to be."""
    if is_listed(found.host, context.settings):
        return ""
    if service := _FOREIGN_SCHEMES.get(found.scheme):
        return f"{service} has no place in the country"
    if found.scheme in NO_HOSTS | BUCKET_SCHEMES:
        return ""
    if service := foreign_service(found.host):
        return f"{found.host} is {service}, which keeps data abroad"
    region = region_of_host(found.host)
    if region and region not in context.settings.allowed_places:
        return f"{found.host} is in {region.partition('/')[2]}"
    return ""


@rule(
    "kubernetes-foreign-service",
    "Programs aren't told to use services or regions abroad",
    Severity.CRITICAL,
    ANY_OBJECT,
    _CONTROLS,
    "Use a service in an allowed region or in the cluster: an OpenTelemetry collector, a model "
    "server, a bucket of your own.",
)
def foreign_service_used(resource: Resource, context: Context) -> Iterator[Finding]:
    """No setting, argument, file or exporter names a host that is known to be abroad."""
    for found in destinations(resource):
        if is_unknown(found.value):
            if found.is_stated and not is_made_here(found.manifest, found.at, context):
                yield found.manifest.indeterminate(
                    found.at, f"where data is sent or fetched {found.value.reason}"
                )
        elif reason := _abroad(found, context):
            yield found.manifest.violation(found.at, f"{reason}; it isn't one of allowedHosts")


@rule(
    "kubernetes-egress-host",
    "Programs are told to reach hosts of the cluster, allowed regions or the list only",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Name the host in allowedHosts where data may go to it; else use one in the cluster or in an "
    "allowed region.",
)
def egress_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """URLs in settings, arguments and exporters are private, of an allowed region, or listed."""
    for found in destinations(resource):
        if not found.is_stated:
            continue
        if is_unknown(found.value):
            if not is_made_here(found.manifest, found.at, context):
                yield found.manifest.indeterminate(
                    found.at, f"where data is sent or fetched {found.value.reason}"
                )
        elif not _abroad(found, context):
            yield from _off_list(found, context)


def _off_list(found: Destination, context: Context) -> Iterator[Finding]:
    if found.scheme in NO_HOSTS | frozenset(_FOREIGN_SCHEMES):
        return
    if found.scheme in BUCKET_SCHEMES:
        if not _is_of_stack(found.host, context) and not is_listed(found.host, context.settings):
            yield found.manifest.indeterminate(
                found.at, f"where the bucket {found.host} is isn't said: it is neither of this "
                "stack nor one of allowedHosts"
            )  # fmt: skip
    elif found.host and "$" not in found.host:
        yield from _unlisted_host(found, context)


def _unlisted_host(found: Destination, context: Context) -> Iterator[Finding]:
    allowed = may_reach_from_pods(found.host, found.manifest, context)
    if allowed is None:
        yield found.manifest.indeterminate(
            found.at, f"whether {found.host} is a service and its namespace is seen in the whole "
            "stack only"
        )  # fmt: skip
    elif allowed:
        return
    elif not found.host.endswith(_PLACELESS):
        yield found.manifest.violation(
            found.at, f"{found.host} is neither in an allowed region nor one of allowedHosts"
        )
    elif not _is_of_stack(found.host.split(".")[0], context):
        yield found.manifest.indeterminate(
            found.at, f"where {found.host} is isn't said by its name, and this stack doesn't make "
            "it"
        )  # fmt: skip


#: Hosts of Azure whose first label is a resource that is somewhere.
_PLACELESS: Final = (
    ".core.windows.net", ".vault.azure.net", ".openai.azure.com", ".database.windows.net",
    ".servicebus.windows.net", ".cognitiveservices.azure.com", ".azurecr.io",
    ".s3.amazonaws.com", ".search.windows.net", ".documents.azure.com",
)  # fmt: skip


def _is_of_stack(name: str, context: Context) -> bool:
    return bool(context.stack and context.stack.called(name))


#: Keys of services, with the settings that give them another host than their own.
_KEYS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "OPENAI_API_KEY": ("OpenAI", ("OPENAI_BASE_URL", "OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT")),
    "ANTHROPIC_API_KEY": ("Anthropic", ("ANTHROPIC_BASE_URL",)),
    "COHERE_API_KEY": ("Cohere", ("CO_API_URL", "COHERE_BASE_URL")),
    "MISTRAL_API_KEY": ("Mistral", ("MISTRAL_BASE_URL", "MISTRAL_API_BASE")),
    "GROQ_API_KEY": ("Groq", ("GROQ_BASE_URL",)),
    "REPLICATE_API_TOKEN": ("Replicate", ("REPLICATE_API_BASE_URL",)),
    "WANDB_API_KEY": ("Weights & Biases", ("WANDB_BASE_URL",)),
    "COMET_API_KEY": ("Comet", ("COMET_URL_OVERRIDE",)),
    "LANGCHAIN_API_KEY": ("LangSmith", ("LANGCHAIN_ENDPOINT", "LANGSMITH_ENDPOINT")),
    "LANGSMITH_API_KEY": ("LangSmith", ("LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT")),
    "DD_API_KEY": ("Datadog", ("DD_SITE", "DD_URL", "DD_DD_URL")),
    "NEW_RELIC_LICENSE_KEY": ("New Relic", ("NEW_RELIC_HOST",)),
}  # fmt: skip
_OFF: Final = {"WANDB_MODE": {"offline", "disabled", "dryrun"}, "WANDB_DISABLED": {"true", "1"}}


@rule(
    "kubernetes-default-exporter",
    "Keys of services abroad come with a host in the country",
    Severity.CRITICAL,
    ANY_OBJECT,
    _CONTROLS,
    "Set the service's endpoint to one in the cluster or an allowed region, or remove the key.",
)
@each_container()
def default_exporter(container: Container, context: Context) -> Iterator[Finding]:
    """A library that is given a key and no endpoint talks to its maker's, which is abroad."""
    entries = [each for each in items(container.get("env")) if is_mapping(each)]
    env = {text(each.get("name")): each.get("value") for each in entries}
    is_off = any(text(env.get(key)).lower() in values for key, values in _OFF.items())
    for index, each in enumerate(items(container.get("env"))):
        name = text(get(each, "name"))
        service, endpoints = _KEYS.get(name, ("", ()))
        if service and not any(one in env for one in endpoints) and not is_off:
            path = f"env[{index}].name"
            reason = f"{name} without {' or '.join(endpoints)} is for {service}'s own host"
            if container.get("envFrom") is not ABSENT:
                yield container.indeterminate(path, f"{reason}, unless envFrom gives another")
            else:
                yield container.violation(path, f"{reason}, which is abroad")


@rule(
    "kubernetes-tracing-default",
    "Tracing that is switched on names where traces go",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Set LANGSMITH_ENDPOINT to a server in the cluster, or switch tracing off.",
)
@each_container()
def tracing_default(container: Container, context: Context) -> Iterator[Finding]:
    """LangChain's tracing sends prompts and answers to its maker by default."""
    env: dict[str, Any] = {
        text(each.get("name")): (index, each.get("value"))
        for index, each in enumerate(items(container.get("env")))
        if is_mapping(each)
    }
    if any(key in env for key in ("LANGCHAIN_ENDPOINT", "LANGSMITH_ENDPOINT")):
        return
    for key in ("LANGCHAIN_TRACING_V2", "LANGSMITH_TRACING"):
        index, value = env.get(key, (0, None))
        path = f"env[{index}].value"
        if is_unknown(value):
            yield container.indeterminate(path, f"whether {key} is on {value.reason}")
        elif is_true(value):
            yield container.violation(path, f"{key} is on, and no endpoint in the country is set")


_OPTION: Final = re.compile(
    r"--?(?:hf-|served-)?(?:model|tokenizer|draft-model|speculative-model|lora-modules)"
    r"(?:[-_](?:id|name|path|name-or-path|name_or_path|repo))?(?:=(.*))?",
    re.I,
)
#: Options that name a model for its users only.
_SHOWN: Final = re.compile(r"--?(?:served-model-name|model[-_]name)(?:=.*)?", re.I)
#: A model of a hub: an organisation and a name.
_OF_HUB: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FOLDERS: Final = frozenset({
    "model", "models", "mnt", "data", "weights", "checkpoints", "checkpoint", "opt", "srv", "var",
    "tmp", "home", "workspace", "cache", "artifacts",
})  # fmt: skip
_ELSEWHERE: Final = frozenset({
    "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_USE_MODELSCOPE",
})  # fmt: skip
_SETTINGS: Final = frozenset(
    {"MODEL_ID", "HF_MODEL_ID", "MODEL_NAME_OR_PATH", "HF_MODEL", "LLM_MODEL_ID"}
)


@rule(
    "kubernetes-model-hub",
    "Models aren't fetched from a hub abroad",
    Severity.MEDIUM,
    ANY_OBJECT,
    ("iso27001:A.5.21", "iso27001:A.8.12", "uae-ia:T6.3.1", "nist-800-207:5"),
    "Mount the model as an image volume or a claim and name its folder, or set HF_ENDPOINT to a "
    "mirror of your own.",
)
@each_container()
def model_hub(container: Container, context: Context) -> Iterator[Finding]:
    """A model named by organisation and name is fetched from Hugging Face by default.

    What is fetched isn't pinned, and the hub learns what runs here.
    """
    env = items(container.get("env"))
    names = {text(get(each, "name")) for each in env if is_mapping(each)}
    if names & _ELSEWHERE or is_unknown(container.get("env")):
        return
    for path, value in (*_arguments(container, "command"), *_arguments(container, "args")):
        yield from _judge(container, path, value)
    for index, each in enumerate(env):
        if text(get(each, "name")) in _SETTINGS:
            value = get(each, "value")
            path = f"env[{index}].value"
            if is_unknown(value):
                yield container.indeterminate(path, f"which model it is {value.reason}")
            yield from _judge(container, path, value)


def _arguments(container: Container, key: str) -> Iterator[tuple[str, Any]]:
    """Values of options that name a model, with their paths."""
    given = items(container.get(key))
    for index, each in enumerate(given):
        found = _OPTION.fullmatch(text(each))
        if found is None or _SHOWN.fullmatch(text(each)):
            continue
        if found[1] is not None:
            yield f"{key}[{index}]", found[1]
        elif index + 1 < len(given):
            yield f"{key}[{index + 1}]", given[index + 1]


def _judge(container: Container, path: str, value: Any) -> Iterator[Finding]:
    given = text(value) if value is not ABSENT else ""
    if _OF_HUB.fullmatch(given) and given.partition("/")[0].lower() not in _FOLDERS:
        yield container.violation(
            path,
            f"{format_value(given)} is fetched from huggingface.co, for HF_ENDPOINT isn't set",
        )


RULES: tuple[Rule, ...] = (
    foreign_service_used,
    egress_host,
    default_exporter,
    tracing_default,
    model_hub,
)
