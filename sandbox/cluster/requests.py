"""Requests for objects, and what they found changed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.sandbox import properties
from falaj.sandbox.clouds.model import Properties
from falaj.sandbox.cluster import objects, readiness
from falaj.sandbox.cluster.connection import ApiError, Connection, retried
from falaj.sandbox.cluster.objects import Address, Object
from falaj.wire.documents import is_mapping
from falaj.wire.values import PropertyChange


class Requests:
    """What is asked of the API server about one object."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, address: Address) -> dict[str, Any] | None:
        """The object; None where it isn't there. Raises ApiError."""
        try:
            return retried(self._connection, lambda: self._connection.get(address.path))
        except ApiError as error:
            if error.is_missing:
                return None
            raise

    def apply(
        self, token: str, inputs: Properties, address: Address, manager: str
    ) -> dict[str, Any]:
        """Apply an object server-side, when its namespace and webhooks are there.

        Raises:
            ApiError: it is refused; the text names conflicting fields and what to do.
        """
        body = objects.manifest(token, inputs, address)
        force = objects.annotation(inputs, objects.FORCE).lower() == "true"

        def work() -> dict[str, Any]:
            return self._connection.apply(address.path, body, manager, force=force, dry_run=False)

        try:
            return retried(self._connection, work, missing=True)
        except ApiError as error:
            raise _explained(error, address) from error

    def dry_run(
        self, token: str, inputs: Properties, address: Address, manager: str
    ) -> dict[str, Any]:
        """The object as applying the inputs would make it. Raises ApiError."""
        body = objects.manifest(token, inputs, address)
        try:
            return self._connection.apply(address.path, body, manager, force=True, dry_run=True)
        except ApiError as error:
            raise _explained(error, address) from error

    def judge(self, token: str, inputs: Properties, address: Address, manager: str) -> None:
        """Refuse what the API server would refuse; what can't be judged yet is let be.

        A namespace of the same run is missing still. What is forbidden often is something missing
        by another name (a priority class, a service account). An immutable field is replaced.

        Raises:
            ApiError: it would be refused.
        """
        try:
            self.dry_run(token, inputs, address, manager)
        except ApiError as error:
            if error.is_refusal:
                raise

    def remove(self, address: Address, found: Object, about: Properties, seconds: float) -> None:
        """Delete an object and wait until it is gone.

        Args:
            about: says how its dependents go (annotation); in the foreground unless told.

        Raises:
            EngineError: it is refused, or something holds it.
        """
        uid = found["metadata"]["uid"]
        policy = objects.annotation(about, objects.PROPAGATION) or "foreground"
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy[:1].upper() + policy[1:],
            "preconditions": {"uid": uid},
        }
        try:
            retried(self._connection, lambda: self._connection.delete(address.path, options))
        except ApiError as error:
            if error.is_missing:
                return
            if error.status != 409:  # else another of that name is there by now
                raise _explained(error, address) from error
        readiness.until_gone(self._connection, address, uid, seconds)

    def drifted_inputs(
        self, token: str, last: Properties, address: Address, found: Object, manager: str
    ) -> dict[str, Any]:
        """The last inputs with what is true now in the place of what has changed."""
        try:
            wanted = self.dry_run(token, last, address, manager)
        except ApiError as error:
            if error.status in (0, 401):
                raise
            wanted = dict(found)  # can't be told: such as a webhook that refuses dry runs
        return dict(drifted(last, with_texts(last, wanted), with_texts(last, found)))

    def import_changes(
        self, token: str, inputs: Properties, address: Address, manager: str
    ) -> list[PropertyChange]:
        """What the inputs would change of an object that is taken over. Raises ApiError."""
        found = self.get(address)
        if found is None:
            return []
        wanted = self.dry_run(token, inputs, address, manager)
        now = drifted(inputs, with_texts(inputs, wanted), with_texts(inputs, found))
        return properties.compare(now, inputs)

    def replacing(
        self,
        token: str,
        inputs: Properties,
        address: Address,
        manager: str,
        changes: list[PropertyChange],
    ) -> list[PropertyChange]:
        """The same changes, those as replacements that the API server can't make."""
        try:
            self.dry_run(token, inputs, address, manager)
        except ApiError as error:
            if error.is_immutable:
                return _replacing(changes, [field for field, _, _ in error.causes])
        return changes


def _replacing(changes: list[PropertyChange], fields: list[str]) -> list[PropertyChange]:
    """Changes at, above or below the fields replace; all outside the metadata if none is."""
    hit = {each.path for each in changes if any(_overlap(each.path, field) for field in fields)}
    hit = hit or {each.path for each in changes if not each.path.startswith("metadata")}
    return [PropertyChange(each.path, each.kind, each.path in hit) for each in changes]


def _overlap(one: str, other: str) -> bool:
    """Whether one path is the other, or inside it."""
    if one == other:
        return True
    return one.startswith((f"{other}.", f"{other}[")) or other.startswith((f"{one}.", f"{one}["))


def _explained(error: ApiError, address: Address) -> ApiError:
    """The same error, with the object that it is about and what to do."""
    text = f"{address}: {error}"
    if any(reason == "FieldManagerConflict" for _, reason, _ in error.causes):
        text += (
            "; another manager has set these fields: leave them to it with `ignore_changes`, or "
            f'take them over with the annotation {objects.FORCE}: "true"'
        )
    explained = ApiError(error.status, error.reason, text)
    explained.causes = error.causes
    return explained


# Keys by which the entries of a list are told apart, the first that all of them have:
# https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
_KEYS: Final = ("name", "key", "mountPath", "containerPort", "port", "ip", "type", "uid")


_TEXTS: Final = "stringData"


def with_texts(inputs: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Secret with its values where the inputs have them; any other object as it is.

    The API server takes texts in ``stringData``, writes them into ``data``, and never gives them
    back as they were. https://kubernetes.io/docs/concepts/configuration/secret/
    """
    texts = inputs.get(_TEXTS)
    if not is_mapping(texts):
        return found
    data = dict(found.get("data") or {})
    decoded = {key: _decoded(data.pop(key)) for key in texts if key in data}
    return {**found, "data": data, _TEXTS: decoded}


def _decoded(value: object) -> object:
    """A value of ``data`` as a text; what isn't one is shown as near as can be."""
    try:
        return base64.b64decode(str(value), validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        return value


def drifted(inputs: Any, wanted: Any, live: Any) -> Any:
    """The inputs with what is true now in the place of what has changed.

    Args:
        inputs: as the program gave them.
        wanted: the object as applying the inputs would make it (a dry run). The API server writes
            many values in another way than they were given (``1000m`` is ``1``), and adds others;
            both are no drift.
        live: the object as it is.
    """
    if wanted == live:
        return inputs
    if is_mapping(inputs) and is_mapping(wanted) and is_mapping(live):
        return {
            key: drifted(value, wanted.get(key), live.get(key))
            for key, value in inputs.items()
            if key in live or key not in wanted
        }
    if properties.is_list(inputs) and properties.is_list(wanted) and properties.is_list(live):
        return _entries(inputs, wanted, live)
    return live


def _entries(inputs: Sequence[Any], wanted: Sequence[Any], live: Sequence[Any]) -> list[Any]:
    key = _key(inputs, live)
    if key is None:
        if len(inputs) == len(wanted) == len(live):
            return [drifted(*each) for each in zip(inputs, wanted, live, strict=True)]
        return list(live)
    wants = {each.get(key): each for each in wanted if is_mapping(each)}
    lives = {each.get(key): each for each in live}
    kept = [
        drifted(each, wants.get(each[key]), lives[each[key]])
        for each in inputs
        if each[key] in lives
    ]
    # What others have added isn't ours, unless applying the inputs would take it away.
    own = {each[key] for each in inputs}
    return kept + [each for name, each in lives.items() if name not in own and name not in wants]


def _key(inputs: Sequence[Any], live: Sequence[Any]) -> str | None:
    for key in _KEYS:
        for entries in (inputs, live):
            if not all(is_mapping(each) and key in each for each in entries):
                break
            values = [each[key] for each in entries]
            if any(not isinstance(value, str | int) for value in values):
                break
            if len(set(values)) != len(values):
                break
        else:
            return key
    return None
