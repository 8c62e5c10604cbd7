"""Data and models that programs are told to send or fetch: nowhere abroad, from no hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_true,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.destinations import Destination, destinations
from falaj.policies.reading.hosts import foreign_service, is_listed, region_of_host
from falaj.policies.reading.kubernetes import ANY_OBJECT
from falaj.policies.reading.pods import Container, each_container
from falaj.policies.reading.services import may_reach

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
_BUCKETS: Final = frozenset({"s3", "s3a", "s3n"})
#: Schemes of what is no host: files, images (which have rules of their own), claims.
_NO_HOSTS: Final = frozenset({
    "file", "pvc", "oci", "oci+native", "docker", "unix", "unixgram", "vsock", "jdbc:sqlite",
    "sqlite", "env", "secret", "config", "spiffe", "urn", "model", "runs", "models", "dir",
    "containerd",
})  # fmt: skip


def _abroad(found: Destination, context: Context) -> str:
    """Why a destination is known to be abroad; empty where it isn't known to be."""
    if is_listed(found.host, context.settings):
        return ""
    if service := _FOREIGN_SCHEMES.get(found.scheme):
        return f"{service} has no place in the country"
    if found.scheme in _NO_HOSTS | _BUCKETS:
        return ""
    if service := foreign_service(found.host):
        return f"{found.host} is {service}, which keeps data abroad"
    region = region_of_host(found.host)
    if region and region not in context.settings.allowed_places:
        return f"{found.host} is in {region.partition('/')[2]}"
    return ""


def _is_made_here(resource: Resource, found: Destination, context: Context) -> bool:
    """Whether an unknown value was made from resources of this stack, which are judged.

    Random values and most objects of a cluster have no host, so that it can't be theirs.
    """
    made_of = context.referred(resource, found.manifest.path(found.at))
    return any(
        each.package not in _HOSTLESS or each.kind.endswith((":Service", ":Ingress", ":Gateway"))
        for each in made_of
    )


_HOSTLESS: Final = frozenset({"kubernetes", "random", "pulumi", "tls", "time", "command"})


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
            if found.is_told and not _is_made_here(resource, found, context):
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
        if not found.is_told:
            continue
        if is_unknown(found.value):
            if not _is_made_here(resource, found, context):
                yield found.manifest.indeterminate(
                    found.at, f"where data is sent or fetched {found.value.reason}"
                )
        elif not _abroad(found, context):
            yield from _off_list(found, context)


def _off_list(found: Destination, context: Context) -> Iterator[Finding]:
    if found.scheme in _NO_HOSTS | frozenset(_FOREIGN_SCHEMES):
        return
    if found.scheme in _BUCKETS:
        if not _is_of_stack(found.host, context) and not is_listed(found.host, context.settings):
            yield found.manifest.indeterminate(
                found.at, f"where the bucket {found.host} is isn't said: it is neither of this "
                "stack nor one of allowedHosts"
            )  # fmt: skip
    elif found.host and "$" not in found.host and not may_reach(found.host, context.settings):
        if found.host.endswith(_PLACELESS) and not _is_of_stack(found.host.split(".")[0], context):
            yield found.manifest.indeterminate(
                found.at, f"where {found.host} is isn't said by its name, and this stack doesn't "
                "make it"
            )  # fmt: skip
        elif not found.host.endswith(_PLACELESS):
            yield found.manifest.violation(
                found.at, f"{found.host} is neither in an allowed region nor one of allowedHosts"
            )


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
    entries = [each for each in items(container.get("env")) if isinstance(each, Mapping)]
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
        if isinstance(each, Mapping)
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
    names = {text(get(each, "name")) for each in env if isinstance(each, Mapping)}
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
