"""Objects of a cluster: where each is, what the control plane knows of its kind."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from falaj.engine.errors import EngineError
from falaj.sandbox.clouds.kubernetes import has_namespace
from falaj.sandbox.cluster.connection import ApiError, Connection, retried
from falaj.wire import has_unknown
from falaj.wire.documents import is_mapping, is_sequence, mapping

_DEFINITION: Final = "CustomResourceDefinition"


class Addresses:
    """Finds addresses, and knows the definitions that the running program declares."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._discovery = Discovery(connection)
        self._alone = threading.Lock()
        self._declared: dict[tuple[str, str], bool] = {}
        self._changing: set[tuple[str, str]] = set()

    def declare(self, token: str, inputs: Mapping[str, Any], *, changing: bool = False) -> None:
        """Remember what a definition of the program defines, and whether the run changes it."""
        if not token.endswith(f":{_DEFINITION}") or has_unknown(inputs.get("spec")):
            return
        spec = mapping(inputs.get("spec"))
        defined = (str(spec.get("group")), str(mapping(spec.get("names")).get("kind")))
        with self._alone:
            self._declared[defined] = spec.get("scope") == "Namespaced"
            if changing:
                self._changing.add(defined)

    def changed(self, found: Object) -> None:
        """An object was made, changed or deleted: a definition changes what is served."""
        if found.get("kind") != _DEFINITION:
            return
        spec = found["spec"]
        for version in spec.get("versions") or ():
            self._discovery.forget(f"{spec['group']}/{version['name']}")
        with self._alone:
            self._changing.discard((spec["group"], spec["names"]["kind"]))

    def served(self) -> tuple[str, tuple[str, ...]]:
        """Kubernetes' version, and what the API server serves as charts ask for it."""
        return self._discovery.served()

    def is_changing(self, token: str) -> bool:
        """Whether the same run changes the kind's definition, so that nothing can be judged."""
        return self._key(token) in self._changing

    def is_namespaced(self, token: str) -> bool:
        """Whether objects of the type live in a namespace, as far as anybody knows."""
        version, kind, _ = group_version_kind(token)
        if self._key(token) in self._declared:
            return self._declared[self._key(token)]
        found = self._discovery.find(version, kind)
        return has_namespace(token) if found is None else found.namespaced

    def of_id(self, token: str, id: str) -> Address | None:
        """The address of an object that was made; None where its kind is no longer served."""
        version, kind, _ = group_version_kind(token)
        found = self._discovery.find(version, kind)
        if found is None:
            return None
        namespace, _, name = id.rpartition("/")
        return _address(found, namespace, name)

    def of_inputs(self, token: str, inputs: Mapping[str, Any], name: str) -> Address | None:
        """The address of an object that is to be made; None where its kind isn't served.

        Raises:
            EngineError: the kind isn't served, and no definition of the program changes that.
        """
        version, kind, _ = group_version_kind(token)
        found = self._discovery.find(version, kind)
        if found is None:
            if self._key(token) in self._declared:
                return None
            raise EngineError(
                f"{name}: the control plane serves no {kind} of {version}, and no "
                "CustomResourceDefinition of this program defines it; install what defines it "
                "first, and let this resource depend on it"
            )
        metadata = mapping(inputs.get("metadata"))
        own = metadata.get("name") or f"{metadata.get('generateName') or ''}{secrets.token_hex(3)}"
        return _address(found, metadata.get("namespace"), str(own))

    def wait_for(self, token: str, inputs: Mapping[str, Any], name: str) -> Address:
        """The address of an object that is made now; its kind may take a moment to be served.

        Raises:
            EngineError: it isn't served.
        """

        def work() -> Address:
            try:
                found = self.of_inputs(token, inputs, name)
            except ApiError:
                raise
            except EngineError as error:
                raise ApiError(404, "NotFound", str(error)) from error
            if found is None:
                kind = ":".join(token.split(":")[1:])
                raise ApiError(404, "NotFound", f"{name}: {kind} isn't served yet")
            return found

        return retried(self._connection, work, missing=True)

    def _key(self, token: str) -> tuple[str, str]:
        version, kind, _ = group_version_kind(token)
        return version.rpartition("/")[0], kind


def _address(kind: ServedKind, namespace: str | None, name: str) -> Address:
    """The address; a namespace of what lives in none is ignored, as everywhere in Kubernetes."""
    return Address(kind, (namespace or "default") if kind.namespaced else None, name)


SKIP_AWAIT: Final = "pulumi.com/skipAwait"
TIMEOUT: Final = "pulumi.com/timeoutSeconds"
WAIT_FOR: Final = "pulumi.com/waitFor"
FORCE: Final = "pulumi.com/patchForce"
MANAGER: Final = "pulumi.com/patchFieldManager"
PROPAGATION: Final = "pulumi.com/deletionPropagationPolicy"
AUTONAMED: Final = "pulumi.com/autonamed"
"""Annotations of the vendor's provider:
https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply/
"""

# What the API server adds by itself, and no program writes.
_SERVERS_OWN: Final = (
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
    "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid",
)  # fmt: skip

Object = Mapping[str, Any]
"""An object as the API server gives it."""


@dataclass(frozen=True)
class Address:
    """Where an object is."""

    kind: ServedKind
    namespace: str | None
    name: str

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return self.kind.path(self.namespace, self.name)

    @property
    def id(self) -> str:
        """The engine's id: ``namespace/name``, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.id}"


def group_version_kind(token: str) -> tuple[str, str, bool]:
    """API version and kind of a resource's type, and whether it patches what others made."""
    _, version, kind = token.split(":", 2)
    version = version.removeprefix("core/")
    is_patch = kind.endswith("Patch") and "." not in kind
    return version, kind.removesuffix("Patch") if is_patch else kind, is_patch


def annotation(values: Mapping[str, Any], name: str) -> str:
    """An annotation's value; empty where there is none."""
    metadata = values.get("metadata")
    annotations = metadata.get("annotations") if is_mapping(metadata) else None
    value = annotations.get(name) if is_mapping(annotations) else None
    return value if isinstance(value, str) else ""


def manifest(token: str, inputs: Mapping[str, Any], address: Address) -> dict[str, Any]:
    """What is sent to the API server: inputs without the engine's own, with type and name."""
    version, kind, _ = group_version_kind(token)
    metadata = dict(inputs.get("metadata") or {})
    metadata.pop("generateName", None)
    metadata["name"] = address.name
    metadata.pop("namespace", None)
    if address.namespace:
        metadata["namespace"] = address.namespace
    own = {key: value for key, value in inputs.items() if not key.startswith("__")}
    if kind == "CustomResourceDefinition":
        own["spec"] = _with_own_names(own.get("spec"))
    return {**own, "apiVersion": version, "kind": kind, "metadata": metadata}


def _with_own_names(value: Any) -> Any:
    """Kubernetes' x-kubernetes-… in the place of what the SDKs write with underscores."""
    if is_mapping(value):
        return {
            str(key).replace("_", "-") if str(key).startswith("x_kubernetes_") else key: (
                _with_own_names(each)
            )
            for key, each in value.items()
        }
    return [_with_own_names(each) for each in value] if is_sequence(value) else value


def live_outputs(found: Object, inputs: Mapping[str, Any], token: str) -> dict[str, Any]:
    """An object as the resource's outputs, in the shape of the vendor's provider.

    Who manages which field is left out: it changes with each of them, and nobody reads it here.
    """
    outputs = dict(found)
    outputs["metadata"] = {
        key: value for key, value in found["metadata"].items() if key != "managedFields"
    }
    outputs["kind"] = group_version_kind(token)[1]
    # Sent to the API server and never given back by it.
    if "stringData" in inputs:
        outputs["stringData"] = inputs["stringData"]
    return outputs


def importable(found: Object) -> dict[str, Any]:
    """An object as the inputs that would make it."""
    metadata = {k: v for k, v in found["metadata"].items() if k not in _SERVERS_OWN}
    return {**{k: v for k, v in found.items() if k != "status"}, "metadata": metadata}


def managers(found: Object) -> list[str]:
    """Who manages fields of an object."""
    fields = found["metadata"].get("managedFields") or ()
    return list(dict.fromkeys(str(each.get("manager", "")) for each in fields))


# A kind that isn't there may be there in a moment, when its definition was just made.
_ASK_AGAIN_SECONDS: Final = 0.25


@dataclass(frozen=True)
class ServedKind:
    """One kind as it is served."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "") -> str:
        """The path of an object, or of the list of them."""
        below = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        own = f"/{quote(name, safe=':')}" if name else ""
        return f"{_root(self.api_version)}{below}/{self.plural}{own}"


class Discovery:
    """Kinds by API version; asked again for one that was missing."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, dict[str, ServedKind]] = {}
        self._asked: dict[str, float] = {}
        self._alone = threading.Lock()

    def find(self, api_version: str, kind: str) -> ServedKind | None:
        """The kind as it is served now; None where it isn't.

        Raises:
            ApiError: the API server doesn't answer.
        """
        found = self._known.get(api_version, {}).get(kind)
        if found is not None:
            return found
        with self._alone:
            asked = self._asked.get(api_version, 0.0)
            if time.monotonic() - asked > _ASK_AGAIN_SECONDS:
                self._known[api_version] = self._ask(api_version)
                self._asked[api_version] = time.monotonic()
            return self._known[api_version].get(kind)

    def forget(self, api_version: str) -> None:
        """Ask again next time: a kind of this version has gone, or its definition changed."""
        with self._alone:
            self._known.pop(api_version, None)
            self._asked.pop(api_version, None)

    def served(self) -> tuple[str, tuple[str, ...]]:
        """Kubernetes' version, and every version of a group with its kinds, as Helm names them.

        Raises:
            ApiError: the API server doesn't answer.
        """
        version = str(self._connection.get("/version").get("gitVersion", ""))
        found: list[str] = []
        for group in self._connection.get("/apis").get("groups") or ():
            for each in group.get("versions") or ():
                name = str(each["groupVersion"])
                found.append(name)
                # Charts ask for single kinds of others' groups only.
                if "." in name and not group["name"].endswith(".k8s.io"):
                    found += [f"{name}/{kind}" for kind in sorted(self._offered(name))]
        return version, tuple(found)

    def _offered(self, api_version: str) -> dict[str, ServedKind]:
        """Kinds of a version; none where another server answers for it and doesn't, as Helm does:
        pods of the servers that charts add to the API are simulated here."""
        try:
            return self._kinds(self._connection.get(_root(api_version)), api_version)
        except ApiError as error:
            if error.is_missing or error.is_passing:
                return {}
            raise

    def _ask(self, api_version: str) -> dict[str, ServedKind]:
        try:
            # A version whose definition was made just now is served in a moment.
            answer = retried(self._connection, lambda: self._connection.get(_root(api_version)))
        except ApiError as error:
            if error.is_missing:
                return {}
            raise
        return self._kinds(answer, api_version)

    @staticmethod
    def _kinds(answer: Mapping[str, Any], api_version: str) -> dict[str, ServedKind]:
        return {
            str(each["kind"]): ServedKind(
                api_version, str(each["kind"]), str(each["name"]), bool(each["namespaced"])
            )
            for each in answer.get("resources") or ()
            if "/" not in str(each["name"])  # parts of objects: pods/log, deployments/scale
        }


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
