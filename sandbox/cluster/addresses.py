"""Where the objects of resources are, also those whose kind is about to be defined."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import Any, Final

from falaj.engine.errors import EngineError
from falaj.sandbox.clouds.kubernetes import has_namespace
from falaj.sandbox.cluster.connection import Connection
from falaj.sandbox.cluster.discovery import Discovery, Kind
from falaj.sandbox.cluster.errors import ApiError
from falaj.sandbox.cluster.objects import Address, Object, group_version_kind
from falaj.sandbox.cluster.retrying import retried
from falaj.wire import has_unknown

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
        spec = inputs.get("spec") or {}
        defined = (str(spec.get("group")), str((spec.get("names") or {}).get("kind")))
        with self._alone:
            self._declared[defined] = spec.get("scope") == "Namespaced"
            if changing:
                self._changing.add(defined)

    def changed(self, found: Object) -> None:
        """An object was made, changed or deleted: a definition changes what is served."""
        if found.get("kind") != _DEFINITION:
            return
        spec = found["spec"]
        for version in spec.get("versions") or []:
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
        metadata = inputs.get("metadata") or {}
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


def _address(kind: Kind, namespace: str | None, name: str) -> Address:
    """The address; a namespace of what lives in none is ignored, as everywhere in Kubernetes."""
    return Address(kind, (namespace or "default") if kind.namespaced else None, name)
