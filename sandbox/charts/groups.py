"""What a chart or a file of manifests is made of, and its registration with the engine."""

from __future__ import annotations

import asyncio
import dataclasses
import glob
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import grpc.aio
from google.protobuf import struct_pb2

from falaj.engine.errors import EngineError
from falaj.engine.oci import ensure
from falaj.sandbox.charts import library
from falaj.sandbox.charts.library import Rendering
from falaj.sandbox.clouds.kubernetes import has_namespace
from falaj.sandbox.clouds.vendor import secret_outputs
from falaj.sandbox.cluster.objects import SKIP_AWAIT
from falaj.wire import ASSET, SIGNATURE, UNKNOWN, Values, decode, encode, has_unknown
from falaj.wire.documents import is_mapping, mapping
from falaj.wire.protocol import MESSAGE_OPTIONS, resource_pb2, resource_pb2_grpc
from falaj.wire.protocol import provider_pb2 as proto
from falaj.wire.values import REFERENCE

_DEFINITION: Final = "CustomResourceDefinition"


@dataclass(frozen=True)
class Declared:
    """One object of a group as a resource."""

    token: str
    name: str
    manifest: Mapping[str, Any]
    after: tuple[int, ...]
    """Places in the list of those that have to be there first: all before this one."""

    @property
    def is_kept(self) -> bool:
        """Whether it stays when the chart goes (``helm.sh/resource-policy: keep``)."""
        annotations = mapping(self.manifest["metadata"].get("annotations"))
        return annotations.get("helm.sh/resource-policy") == "keep"


def token_of(manifest: Mapping[str, Any]) -> str:
    """The type of the resource; the core group is written out."""
    version = str(manifest["apiVersion"])
    return f"kubernetes:{version if '/' in version else f'core/{version}'}:{manifest['kind']}"


def declared(
    manifests: Sequence[Mapping[str, Any]],
    prefix: str,
    namespace: str,
    *,
    skip_await: bool = False,
) -> list[Declared]:
    """The objects in an order in which they can be made: definitions and namespaces first.

    Args:
        prefix: before each resource's name, with a colon; none when empty.
        namespace: of those that live in one and don't say which.
        skip_await: let none of them be waited for.
    """
    scopes = {
        (m["spec"]["group"], m["spec"]["names"]["kind"]): m["spec"].get("scope") == "Namespaced"
        for m in manifests
        if m["kind"] == _DEFINITION
    }
    found: list[Declared] = []
    definitions: dict[tuple[str, str], int] = {}
    namespaces: dict[str, int] = {}
    for given in sorted(manifests, key=_rank):
        manifest = _placed(given, scopes, namespace, skip_await)
        metadata, key = manifest["metadata"], _kind_key(manifest)
        places = (definitions.get(key), namespaces.get(str(metadata.get("namespace"))))
        own = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else None
        name = own or str(metadata["name"])
        found.append(
            Declared(
                token_of(manifest),
                f"{prefix}:{name}" if prefix else name,
                manifest,
                tuple(place for place in places if place is not None),
            )
        )
        if manifest["kind"] == _DEFINITION:
            spec = manifest["spec"]
            definitions[spec["group"], spec["names"]["kind"]] = len(found) - 1
        elif manifest["kind"] == "Namespace" and manifest["apiVersion"] == "v1":
            namespaces[name] = len(found) - 1
    return found


def _placed(
    manifest: Mapping[str, Any],
    scopes: Mapping[tuple[str, str], bool],
    namespace: str,
    skip_await: bool,
) -> dict[str, Any]:
    metadata = {key: value for key, value in manifest["metadata"].items() if value is not None}
    lives = scopes.get(_kind_key(manifest))
    lives = has_namespace(token_of(manifest)) if lives is None else lives
    if lives and not metadata.get("namespace"):
        metadata["namespace"] = namespace
    if skip_await:
        metadata["annotations"] = {**mapping(metadata.get("annotations")), SKIP_AWAIT: "true"}
    return {**manifest, "metadata": metadata}


def _kind_key(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return str(manifest["apiVersion"]).rpartition("/")[0], str(manifest["kind"])


def _rank(manifest: Mapping[str, Any]) -> int:
    order = (_DEFINITION, "Namespace")
    kind = str(manifest["kind"])
    return order.index(kind) if kind in order else len(order)


CHART: Final = "kubernetes:helm.sh/v4:Chart"
CONFIG_GROUP: Final = "kubernetes:yaml/v2:ConfigGroup"
CONFIG_FILE: Final = "kubernetes:yaml/v2:ConfigFile"

# What charts are told where there is no cluster to ask: the version of the test control plane.
# Helm built from source would say 1.20, which charts of today refuse.
_KUBERNETES: Final = "v1.36.1"

# Arguments of a chart that need a network or a program of the person's, or check a signature.
_REFUSED: Final = ("postRenderer", "verify", "keyring")


@dataclass(frozen=True)
class Capabilities:
    """What templates and manifests are made for: Helm's ``Capabilities``, and the namespace."""

    namespace: str = "default"
    kube_version: str = _KUBERNETES
    api_versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """The objects of a component, and what there is to say loudly about them."""

    objects: list[Declared]
    warnings: list[str]
    is_secret: bool = False
    """Whether secret values went into them."""


def build(token: str, name: str, inputs: Mapping[str, Any], capabilities: Capabilities) -> Group:
    """The objects of a component.

    Raises:
        EngineError: the component isn't known, an argument is wrong, or something can't be
            rendered or read.
    """
    require_known(token)
    return _RULES[token](name, inputs, capabilities)


def require_known(token: str) -> None:
    """Refuse a component that the sandbox doesn't know. Raises EngineError."""
    if token not in _RULES:
        raise EngineError(
            f"{token} is a component that runs inside the vendor's provider, and the sandbox "
            f"doesn't know it (it knows {', '.join(_RULES)}); declare its resources themselves, "
            "or run this stack without the sandbox"
        )


def _chart(name: str, inputs: Mapping[str, Any], capabilities: Capabilities) -> Group:
    for key in _REFUSED:
        if inputs.get(key):
            raise EngineError(f"{name}: {key} isn't supported in the sandbox; leave it out there")
    reference, version = str(inputs.get("chart") or ""), str(inputs.get("version") or "")
    if not reference:
        raise EngineError(f"{name}: missing argument 'chart'")
    charts = library.folder()
    found = library.find(reference, version, charts)
    if found is None:
        short = library.short_name(reference)
        wanted = f"{short}-{version or 'VERSION'}"
        return Group(
            [],
            [
                f"{name}: the chart {short} {version or '(any version)'} isn't on this machine, "
                "so NOTHING OF IT IS MADE OR CHECKED here; put its archive in "
                f"{charts / wanted}.tgz (`helm pull {reference}`), or see "
                "`falaj sandbox charts --help`"
            ],
        )
    namespace = str(inputs.get("namespace") or capabilities.namespace)
    rendering = Rendering(
        release=str(inputs.get("name") or name),
        namespace=namespace,
        values=_mapping(name, "values", inputs.get("values")),
        value_files=[_text(name, each) for each in inputs.get("valueYamlFiles") or ()],
        skip_crds=bool(inputs.get("skipCrds")),
        kube_version=capabilities.kube_version,
        api_versions=capabilities.api_versions,
    )
    text = library.render(ensure("helm"), found, rendering, charts)
    manifests = library.read_manifests(text, f"what chart {found.name} renders")
    warnings: list[str] = []
    if library.metadata(found.path).get("deprecated"):
        warnings.append(f"{name}: the chart {found.name} is deprecated, as it says itself")
    return Group(_declared(name, inputs, manifests, namespace), warnings)


def _config_group(name: str, inputs: Mapping[str, Any], capabilities: Capabilities) -> Group:
    manifests: list[dict[str, Any]] = []
    for each in inputs.get("objs") or ():
        manifests += library.expanded(each, f"{name}: objs")
    for pattern in inputs.get("files") or ():
        for path in sorted(glob.glob(str(pattern))) or [str(pattern)]:  # noqa: PTH207 - as given
            manifests += _file(path)
    if inputs.get("yaml"):
        manifests += library.read_manifests(str(inputs["yaml"]), f"{name}: yaml")
    return Group(_declared(name, inputs, manifests, capabilities.namespace), [])


def _config_file(name: str, inputs: Mapping[str, Any], capabilities: Capabilities) -> Group:
    if not inputs.get("file"):
        raise EngineError(f"{name}: missing argument 'file'")
    return Group(_declared(name, inputs, _file(str(inputs["file"])), capabilities.namespace), [])


def _declared(
    name: str, inputs: Mapping[str, Any], manifests: list[dict[str, Any]], namespace: str
) -> list[Declared]:
    prefix = inputs.get("resourcePrefix")
    return declared(
        manifests,
        name if prefix is None else str(prefix),
        namespace,
        skip_await=bool(inputs.get("skipAwait")),
    )


def _file(path: str) -> list[dict[str, Any]]:
    if "://" in path:
        raise EngineError(f"{path}: the sandbox reads no manifests from a network; keep the file")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EngineError(f"the manifests in {path} can't be read: {error}") from error
    return library.read_manifests(text, path)


def _text(name: str, asset: Any) -> str:
    """The text of an asset that holds a chart's values."""
    given: Mapping[str, Any] = mapping(asset)
    if given.get(SIGNATURE) == ASSET and isinstance(given.get("text"), str):
        return str(given["text"])
    if given.get(SIGNATURE) == ASSET and given.get("path"):
        try:
            return Path(str(given["path"])).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise EngineError(f"{name}: values in {given['path']}: {error}") from error
    raise EngineError(f"{name}: valueYamlFiles takes assets of a file or a text, of no network")


def _mapping(name: str, key: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not is_mapping(value):
        raise EngineError(f"{name}: {key}: expected a mapping, given {type(value).__name__}")
    return value


_RULES: Final[Mapping[str, Callable[[str, Mapping[str, Any], Capabilities], Group]]] = {
    CHART: _chart,
    CONFIG_GROUP: _config_group,
    CONFIG_FILE: _config_file,
}


# Registration of a component and its objects with the engine, as the vendor's provider does it.

# What the engine tells of the component's options, by its own names; the children inherit the
# rest from the component.
_OPTIONS: Final = ("protect", "retainOnDelete", "deletedWith")

Warn = Callable[[str, str], None]
"""Shows a warning beside a resource, given its URN."""


async def construct(
    request: proto.ConstructRequest,
    version: str,
    build: Callable[[Mapping[str, Any]], Awaitable[Group]],
    warn: Warn,
) -> proto.ConstructResponse:
    """Make a component with all its objects.

    Args:
        version: of the provider, for objects without one of their own.
        build: the objects, from the component's arguments.
        warn: shows a warning.

    Raises:
        EngineError: the engine refuses the component or one of its objects.
    """
    require_known(request.type)
    inputs, secrets = decode(request.inputs, assets=True)
    async with _monitor_of(request) as monitor:
        urn = await _register_component(monitor, request, inputs, secrets)
        made: list[tuple[str, str]] = []
        if has_unknown(inputs):
            warn(
                f"{request.name}: arguments aren't known before the update; the preview shows "
                "none of its objects",
                urn,
            )
        else:
            group = await build(inputs)
            for text in group.warnings:
                warn(text, urn)
            # What a secret value became can't be told apart in what was rendered.
            group = dataclasses.replace(group, is_secret=bool(secrets))
            made = await _register_all(monitor, request, urn, version, group)
        references = [{SIGNATURE: REFERENCE, "urn": u, "id": i} for u, i in made]
        outputs = encode({"resources": references})
        await _register_outputs(monitor, request, urn, outputs)
    return proto.ConstructResponse(urn=urn, state=outputs)


async def construct_unmodelled(
    request: proto.ConstructRequest, outputs: Iterable[str]
) -> proto.ConstructResponse:
    """Register a vendor's component of which there is no model: what it is made of isn't known.

    Args:
        request: the engine's.
        outputs: the names of what it gives, each of which is unknown.

    Raises:
        EngineError: the engine refuses the component.
    """
    inputs, secrets = decode(request.inputs, assets=True)
    async with _monitor_of(request) as monitor:
        urn = await _register_component(monitor, request, inputs, secrets)
        given = encode({**inputs, **dict.fromkeys(set(outputs) - set(inputs), UNKNOWN)}, secrets)
        await _register_outputs(monitor, request, urn, given)
    return proto.ConstructResponse(urn=urn, state=given)


@asynccontextmanager
async def _monitor_of(request: proto.ConstructRequest) -> AsyncGenerator[Any]:
    """The engine that asks for a component, to register it with."""
    async with grpc.aio.insecure_channel(
        request.monitorEndpoint, options=MESSAGE_OPTIONS
    ) as channel:
        yield resource_pb2_grpc.ResourceMonitorStub(channel)


async def _register_component(
    monitor: Any, request: proto.ConstructRequest, inputs: Values, secrets: frozenset[str]
) -> str:
    """Register the component itself: its URN. Raises EngineError where the engine refuses it."""
    asked = resource_pb2.RegisterResourceRequest(
        type=request.type,
        name=request.name,
        parent=request.parent,
        custom=False,
        object=encode(inputs, secrets),
        dependencies=list(request.dependencies),
        providers=dict(request.providers),
        aliases=list(cast("Any", request).aliases),
        acceptSecrets=True,
        acceptResources=True,
        supportsPartialValues=True,
    )
    for name in _OPTIONS:
        if request.HasField(name) if name != "deletedWith" else request.deletedWith:
            setattr(asked, name, getattr(request, name))
    return (await _call(monitor.RegisterResource, asked, request.name)).urn


async def _register_outputs(
    monitor: Any, request: proto.ConstructRequest, urn: str, outputs: struct_pb2.Struct
) -> None:
    """Tell what the component gives. Raises EngineError where the engine refuses it."""
    asked = resource_pb2.RegisterResourceOutputsRequest(urn=urn, outputs=outputs)
    await _call(monitor.RegisterResourceOutputs, asked, request.name)


async def _register_all(
    monitor: Any,
    request: proto.ConstructRequest,
    parent: str,
    version: str,
    group: Group,
) -> list[tuple[str, str]]:
    """URNs and ids of all objects; each is registered when those it waits for are there."""
    provider = request.providers.get("kubernetes", "")
    tasks: list[asyncio.Task[tuple[str, str]]] = []

    async def register(each: Declared) -> tuple[str, str]:
        waited = [(await tasks[place])[0] for place in each.after]
        hidden = secret_outputs(each.token) & frozenset(each.manifest)
        if group.is_secret:
            hidden = frozenset(each.manifest) - {"apiVersion", "kind", "metadata"}
        asked = resource_pb2.RegisterResourceRequest(
            type=each.token,
            name=each.name,
            parent=parent,
            custom=True,
            object=encode(dict(each.manifest), hidden),
            dependencies=waited,
            provider=provider,
            version=version,
            acceptSecrets=True,
            supportsPartialValues=True,
        )
        if each.is_kept or (request.HasField("retainOnDelete") and request.retainOnDelete):
            asked.retainOnDelete = True
        answer = await _call(monitor.RegisterResource, asked, each.name)
        return answer.urn, answer.id

    for each in group.objects:
        tasks.append(asyncio.create_task(register(each)))
    done = await asyncio.gather(*tasks, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [each for each in done if not isinstance(each, BaseException)]


async def _call(method: Any, asked: Any, name: str) -> Any:
    try:
        return await method(asked)
    except grpc.aio.AioRpcError as error:
        # The engine has said why, beside the resource itself.
        raise EngineError(f"{name} wasn't made: {error.details() or 'see above'}") from error
