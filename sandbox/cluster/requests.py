"""Applies, rehearses and removes one object, with errors that say what to do."""

from __future__ import annotations

from typing import Any

from falaj.sandbox import diff
from falaj.sandbox.clouds.model import Properties
from falaj.sandbox.cluster import objects, waiting
from falaj.sandbox.cluster.connection import Connection
from falaj.sandbox.cluster.drift import drifted, with_texts
from falaj.sandbox.cluster.errors import ApiError
from falaj.sandbox.cluster.objects import Address, Object
from falaj.sandbox.cluster.retrying import retried
from falaj.wire.changes import PropertyChange


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
            raise _told(error, address) from error

    def rehearse(
        self, token: str, inputs: Properties, address: Address, manager: str
    ) -> dict[str, Any]:
        """The object as applying the inputs would make it. Raises ApiError."""
        body = objects.manifest(token, inputs, address)
        try:
            return self._connection.apply(address.path, body, manager, force=True, dry_run=True)
        except ApiError as error:
            raise _told(error, address) from error

    def judge(self, token: str, inputs: Properties, address: Address, manager: str) -> None:
        """Refuse what the API server would refuse; what can't be judged yet is let be.

        A namespace of the same run is missing still. What is forbidden often is something missing
        by another name (a priority class, a service account). An immutable field is replaced.

        Raises:
            ApiError: it would be refused.
        """
        try:
            self.rehearse(token, inputs, address, manager)
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
                raise _told(error, address) from error
        waiting.until_gone(self._connection, address, uid, seconds)

    def drifted_inputs(
        self, token: str, last: Properties, address: Address, found: Object, manager: str
    ) -> dict[str, Any]:
        """The last inputs with what is true now in the place of what has changed."""
        try:
            wanted = self.rehearse(token, last, address, manager)
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
        wanted = self.rehearse(token, inputs, address, manager)
        now = drifted(inputs, with_texts(inputs, wanted), with_texts(inputs, found))
        return diff.compare(now, inputs)

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
            self.rehearse(token, inputs, address, manager)
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


def _told(error: ApiError, address: Address) -> ApiError:
    """The same error, with the object that it is about and what to do."""
    text = f"{address}: {error}"
    if any(reason == "FieldManagerConflict" for _, reason, _ in error.causes):
        text += (
            "; another manager has set these fields: leave them to it with `ignore_changes`, or "
            f'take them over with the annotation {objects.FORCE}: "true"'
        )
    told = ApiError(error.status, error.reason, text)
    told.causes = error.causes
    return told
