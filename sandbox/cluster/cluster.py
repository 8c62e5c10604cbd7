"""The Kubernetes provider on a real API server: what is declared is applied there.

It does what the vendor's provider does, with the same inputs and outputs, so that a program that
works here works with the vendor's: server-side apply with a field manager for each resource, names
that are filled in, replacement of what never changes, waiting for readiness.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import Any, Final

from falaj.engine.errors import EngineError
from falaj.sandbox import faults, urns
from falaj.sandbox.charts.groups import Capabilities
from falaj.sandbox.cloud import MADE_IN, MARK, Cloud
from falaj.sandbox.clouds.model import CloudModel, Made, Problem, Properties
from falaj.sandbox.clouds.vendor import RELEASE
from falaj.sandbox.cluster import objects, readiness
from falaj.sandbox.cluster.connection import Connection, NotReadyError
from falaj.sandbox.cluster.objects import Address, Addresses, Object
from falaj.sandbox.cluster.requests import Requests
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.properties import filled
from falaj.sandbox.store import Store
from falaj.wire import Unknown, has_unknown
from falaj.wire.documents import mapping
from falaj.wire.values import PropertyChange

_MANAGER: Final = "__fieldManager"
_IMPORTED: Final = "__imported"


class Cluster(Cloud):
    """Objects of a test control plane.

    Args:
        model: what is known of Kubernetes without a cluster.
        store: faults that were asked for; objects are in the cluster alone.
        connection: to the test control plane.
    """

    waits = True

    def __init__(self, model: CloudModel, store: Store, connection: Connection) -> None:
        super().__init__(model, store)
        self.banner = (
            f"SANDBOX: Kubernetes objects go to the test control plane at {connection.server}"
        )
        self._connection = connection
        self._mark = f"{MADE_IN} {connection.identity}"
        self._addresses = Addresses(connection)
        self._requests = Requests(connection)
        self._made_up = Cloud(model, store)
        # Ids that the engine knows already, by URN: a creation then replaces that object.
        self._known: dict[str, str] = {}
        self._alone = threading.Lock()

    def configure(self, given: Properties) -> None:
        """Take over the provider's own settings."""
        super().configure(given)
        self._made_up.configure(given)

    def of(self, token: str) -> Cloud:
        """This one; what no API server knows is only made up."""
        return self._made_up if token == RELEASE else self

    def capabilities(self) -> Capabilities:
        """What charts are told of the control plane."""
        version, served = self._addresses.served()
        return Capabilities(super().capabilities().namespace, version, served)

    def cancel(self) -> None:
        """Stop waiting for objects."""
        self._connection.cancelled.set()

    def refuse_foreign(self, urn: str, id: str, state: Properties) -> None:
        """Refuse a state of another cloud, or of a control plane that is gone."""
        if not self._is_mine(urns.token(urn), id, state):
            raise EngineError(
                f"{urns.token(urn)} {id!r} was made in another control plane (or only made up), "
                f"not in the one at {self._connection.server}; refresh the stack "
                "(`falaj refresh --sandbox`), which drops what is gone, and bring it up again"
            )

    def difference(
        self, urn: str, old: Properties, new: Properties, id: str, ignored: list[str]
    ) -> tuple[list[PropertyChange], bool]:
        """What differs from the last inputs; the API server says what can't be changed."""
        token = urns.token(urn)
        with self._alone:
            self._known[urn] = id
        changes, _ = super().difference(urn, old, new, id, ignored)
        if has_unknown(new):
            return changes, False
        address = self._addresses.of_id(token, id)
        if address is not None and not self._addresses.is_changing(token):
            manager = _manager(urn, new)
            if old.get(_IMPORTED):
                changes = self._requests.import_changes(token, new, address, manager)
            elif changes and not any(change.replaces for change in changes):
                changes = self._requests.replacing(token, new, address, manager, changes)
        same = self._identity(token, urns.name(urn), new, urn)
        return changes, address is not None and self._addresses.of_id(token, same) == address

    def preview_create(self, urn: str, inputs: Properties) -> dict[str, Any]:
        """The outputs as far as they are known. Raises EngineError for what is refused."""
        token = urns.token(urn)
        self._addresses.declare(token, inputs, changing=True)
        if not has_unknown(inputs):
            address = self._addresses.of_inputs(token, inputs, urns.name(urn))
            if address is not None and not self._addresses.is_changing(token):
                found = self._requests.get(address)
                self._refuse_taken(urn, address, found)
                # What a patch is for may come with another object (a namespace brings its service
                # account); the part of it that a patch says can't be judged alone.
                if found is not None or not _is_patch(token):
                    self._requests.judge(token, inputs, address, _manager(urn, inputs))
        return super().preview_create(urn, inputs)

    def create(
        self, urn: str, inputs: Properties, *, seconds: float = 0.0
    ) -> tuple[str, dict[str, Any]]:
        """Apply a new object and wait until it is ready: its id and outputs.

        Raises:
            EngineError: the API server refuses it, or something else made it before.
            NotReadyError: it is there, but isn't ready in time.
            FaultError: a fault was asked for.
        """
        token, name = urns.token(urn), urns.name(urn)
        limit = readiness.limit(inputs, seconds)
        fault = faults.meet(self.store, "create", token, name)
        if fault is not None and not fault.timed_out:
            raise fault
        address = self._addresses.wait_for(token, inputs, name)
        found = self._requests.get(address)
        if found is not None and found["metadata"].get("deletionTimestamp"):
            readiness.until_gone(self._connection, address, found["metadata"]["uid"], limit)
            found = None
        self._refuse_taken(urn, address, found)
        if found is not None and self._known.get(urn) == address.id and not _is_patch(token):
            # The engine deletes the old object by its uid later, and finds it gone.
            self._requests.remove(address, found, inputs, limit)
        outputs = self._applied(token, inputs, address, _manager(urn, inputs), limit)
        if fault is not None:
            raise fault.with_state(address.id, outputs, inputs)
        return address.id, outputs

    def read(
        self, urn: str, id: str, state: Properties, inputs: Properties | None = None
    ) -> Made | None:
        """The object as it is now; inputs say what has drifted. None when it is gone."""
        token, name = urns.token(urn), urns.name(urn)
        fault = faults.meet(self.store, "read", token, name)
        if fault is not None:
            raise fault
        address = self._addresses.of_id(token, id) if self._is_mine(token, id, state) else None
        found = None if address is None else self._requests.get(address)
        if address is None or found is None:
            return None
        manager = str(state.get(_MANAGER) or _manager(urn, {}))
        if inputs:
            now = self._requests.drifted_inputs(token, inputs, address, found, manager)
        else:
            now = {**objects.importable(found), _IMPORTED: True}
        outputs = self._outputs(token, now, found, manager)
        return Made(urn, token, address.id, now, outputs, "", urns.stack(urn))

    def preview_update(
        self, urn: str, id: str, state: Properties, old: Properties, new: Properties
    ) -> dict[str, Any]:
        """The outputs as far as they are known. Raises EngineError for what is refused."""
        token = urns.token(urn)
        self._addresses.declare(token, new, changing=True)
        address = self._addresses.of_id(token, id)
        if address and not has_unknown(new) and not self._addresses.is_changing(token):
            manager = str(state.get(_MANAGER) or _manager(urn, new))
            self._requests.judge(token, new, address, manager)
        return super().preview_update(urn, id, state, old, new)

    def update(
        self, urn: str, id: str, state: Properties, inputs: Properties, *, seconds: float = 0.0
    ) -> dict[str, Any]:
        """Apply an object again and wait until it is ready. Raises as `create` does."""
        token, name = urns.token(urn), urns.name(urn)
        limit = readiness.limit(inputs, seconds)
        fault = faults.meet(self.store, "update", token, name)
        if fault is not None and not fault.timed_out:
            raise fault
        address = self._addresses.of_id(token, id) if self._is_mine(token, id, state) else None
        if address is None or self._requests.get(address) is None:
            raise SandboxError(
                [Problem("", f"{token} {id!r} no longer exists; run `pulumi refresh`")],
                f"{name} can't be changed",
            )
        manager = str(state.get(_MANAGER) or _manager(urn, inputs))
        outputs = self._applied(token, inputs, address, manager, limit)
        if fault is not None:
            raise fault.with_state(id, outputs, inputs)
        return outputs

    def delete(self, urn: str, id: str, state: Properties, *, seconds: float = 0.0) -> None:
        """Delete an object and wait until it is gone. Raises EngineError, FaultError."""
        token, name = urns.token(urn), urns.name(urn)
        fault = faults.meet(self.store, "delete", token, name)
        if fault is not None and not fault.timed_out:
            raise fault
        address = self._addresses.of_id(token, id) if self._is_mine(token, id, state) else None
        found = None if address is None else self._requests.get(address)
        uid = mapping(state.get("metadata")).get("uid")
        if address is not None and found is not None and found["metadata"]["uid"] == uid:
            if _is_patch(token):
                # Applying nothing gives up all that it has set.
                manager = str(state.get(_MANAGER) or _manager(urn, {}))
                self._requests.apply(token, {}, address, manager)
            else:
                self._requests.remove(address, found, state, readiness.limit(state, seconds))
                self._addresses.changed(found)
        if fault is not None:
            raise fault

    # Parts of the above

    def _filled(
        self, token: str, name: str, urn: str, given: Properties, old: Properties
    ) -> dict[str, Any]:
        """A name with a random end, kept while the resource lives, and a namespace."""
        self._addresses.declare(token, given)
        found = given.get("metadata")
        if isinstance(found, Unknown):
            return dict(given)
        metadata = mapping(found)
        added: dict[str, Any] = {}
        if metadata.get("name") is None and metadata.get("generateName") is None:
            kept: Properties = old if objects.annotation(old, objects.AUTONAMED) else {}
            added["name"] = mapping(kept.get("metadata")).get("name") or _autoname(name)
            added["annotations"] = {objects.AUTONAMED: "true"}
        if metadata.get("namespace") is None and self._addresses.is_namespaced(token):
            added["namespace"] = self.config.get("namespace") or "default"
        found = filled(given, {"metadata": added} if added else {})
        if old and not has_unknown(old):
            with self._alone:
                self._known[urn] = self._identity(token, name, old, urn)
        return found

    def _replacements(self, token: str) -> frozenset[str]:
        found = super()._replacements(token)
        for kind, setting in (
            ("ConfigMap", "enableConfigMapMutable"),
            ("Secret", "enableSecretMutable"),
        ):
            if token == f"kubernetes:core/v1:{kind}" and self.config.get(setting):
                found -= {"data", "binaryData", "stringData"}
        return found

    def _refuse_taken(self, urn: str, address: Address, found: Object | None) -> None:
        """Refuse to take over what this resource didn't make; a patch does so by its nature."""
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        if _is_patch(urns.token(urn)):
            return
        managers = objects.managers(found)
        if _manager(urn, {}) in managers:
            return  # made by a run of this stack that was ended before it could say so
        raise EngineError(
            f"{address} is already there and wasn't made by this resource (its fields are managed "
            f"by {', '.join(managers) or 'nobody'}); choose another name, delete it, or take it "
            f"over with the option import_={address.id!r}"
        )

    def _applied(
        self, token: str, inputs: Properties, address: Address, manager: str, seconds: float
    ) -> dict[str, Any]:
        """Apply an object: its outputs once it is ready. Raises EngineError, NotReadyError."""
        found: Object = self._requests.apply(token, inputs, address, manager)
        self._addresses.changed(found)
        try:
            found, why = readiness.until_ready(self._connection, address, found, seconds)
        except EngineError as error:
            why = str(error)
        self._addresses.changed(found)
        outputs = self._outputs(token, inputs, found, manager)
        if why:
            raise NotReadyError(f"{address}: {why}").with_state(address.id, outputs, inputs)
        return outputs

    def _outputs(
        self, token: str, inputs: Properties, found: Object, manager: str
    ) -> dict[str, Any]:
        live = objects.live_outputs(found, inputs, token)
        return {**live, _MANAGER: manager, MARK: self._mark}

    def _is_mine(self, token: str, id: str, state: Properties) -> bool:
        """Whether a state is of this control plane; False for one that is gone with another.

        Raises:
            EngineError: the state wasn't written by the sandbox at all.
        """
        if state and MARK not in state:
            self._own(token, id, state)  # raises, with what to do
        return not state or state[MARK] == self._mark


def _manager(urn: str, inputs: Properties) -> str:
    """The field manager of a resource: the same in each run, another for each resource."""
    given = objects.annotation(inputs, objects.MANAGER)
    return given or f"falaj-{hashlib.sha256(urn.encode()).hexdigest()[:16]}"


def _is_patch(token: str) -> bool:
    return objects.group_version_kind(token)[2]


def _autoname(name: str) -> str:
    base = "".join(each if each.isalnum() and each.isascii() else "-" for each in name.lower())
    return f"{base.strip('-')[:53] or 'object'}-{secrets.token_hex(4)}"
