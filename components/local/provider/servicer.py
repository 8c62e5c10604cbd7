"""The local provider: finds the handler of a resource's type and runs it in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from falaj.components.local.machine.errors import InvalidInput, InvalidInputsError, LocalError
from falaj.components.local.provider import claims, fields, schema
from falaj.components.local.provider.faults import record_fault
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.wire.changes import ChangeKind, PropertyChange
from falaj.wire.servicer import Failure, Servicer
from falaj.wire.values import Values

PACKAGE = "falaj-local"

CONFIGURATION: fields.Table = {
    "site": fields.Field(
        "path", "Folder that holds everything of the stack; internal errors are logged below it."
    ),
    # The engine adds these two by itself.
    "version": fields.Field("text", "Version of the provider."),
    "pluginDownloadURL": fields.Field("text", "Not used: the provider ships with the project."),
}

Reporter = Callable[[str, str, bool], None]
"""Sends a message to the engine: the resource's URN, the text, whether it is only passing."""

Result = TypeVar("Result")


class LocalServicer(Servicer):
    """Dispatches by resource type; work runs in threads, so that a cancellation gets through."""

    def __init__(self, handlers: Sequence[Handler], reporter: Reporter, version: str) -> None:
        super().__init__(version)
        self._handlers = {f"{PACKAGE}:index:{handler.type_name}": handler for handler in handlers}
        self._reporter = reporter
        self._cancelled = threading.Event()
        # More than the engine's default of parallel resources would ever need at once here.
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="resource")
        self._site: Path | None = None

    def schema(self) -> str:
        """The package's schema, made from the handlers' tables of inputs and outputs."""
        handlers = list(self._handlers.values())
        return json.dumps(schema.document(PACKAGE, self._version, CONFIGURATION, handlers))

    def cancel(self) -> None:
        """Ask everything that runs to stop and keep what it has."""
        self._cancelled.set()

    async def check_settings(self, given: Values) -> tuple[Values, Sequence[Failure]]:
        """The provider's own settings, checked."""
        return _checked(lambda: fields.check(CONFIGURATION, given))

    async def diff_settings(self, old: Values, new: Values) -> list[PropertyChange]:
        """The provider's settings never replace a resource: they only say where logs go."""
        return [
            PropertyChange(key, _kind(old, new, key), replaces=False)
            for key in sorted({*old, *new})
            if old.get(key) != new.get(key)
        ]

    async def configure(self, given: Values) -> None:
        """Take over the provider's own settings; an unknown folder is set by a later call."""
        site = given.get("site")
        if isinstance(site, str):
            self._site = Path(site)

    async def check(
        self, urn: str, given: Values, old: Values
    ) -> tuple[Values, Sequence[Failure]]:
        """Checked inputs of a resource."""
        return await self._in_thread(
            lambda: _checked(lambda: self._handler(urn).check(given, old))
        )

    async def diff(
        self, urn: str, id: str, state: Values, old: Values, new: Values,
        *, ignored: Sequence[str],
    ) -> tuple[list[PropertyChange], bool]:  # fmt: skip
        """What differs between a resource's state and its wanted inputs."""
        del id, old
        handler = self._handler(urn)
        changes = await self._in_thread(lambda: handler.diff(state, new))
        found = [
            _property_change(key, change, state, new)
            for key, change in changes.items()
            if key not in ignored
        ]
        return found, handler.delete_before_replace

    async def create(
        self, urn: str, inputs: Values, *, preview: bool, seconds: float
    ) -> tuple[str, Values]:
        """Create a resource; in a preview the id is empty and outputs are as far as known."""
        del seconds
        handler = self._handler(urn)
        if preview:
            return "", await self._in_thread(lambda: handler.preview(inputs, None))
        context = self._context(urn)
        context.stop_if_cancelled(f"the creation of {context.name}")
        return await self._in_thread(lambda: _create(handler, context, inputs))

    async def read(
        self, urn: str, id: str, state: Values, inputs: Values
    ) -> tuple[Values, Values] | None:
        """State and inputs as they are on the machine; None when the resource is gone."""
        del inputs
        handler = self._handler(urn)
        if not state:
            raise LocalError(
                f"{handler.type_name} can't be imported: it is made by `pulumi up`, which adopts "
                "what is already there"
            )
        found = await self._in_thread(lambda: handler.read(id, state))
        return None if found is None else (found, handler.after_read(found))

    async def update(
        self, urn: str, id: str, state: Values, old: Values, new: Values,
        *, preview: bool, seconds: float,
    ) -> Values:  # fmt: skip
        """Update a resource; in a preview outputs are as far as known."""
        del old, seconds
        handler = self._handler(urn)
        if preview:
            return await self._in_thread(lambda: handler.preview(new, state))
        context = self._context(urn)
        context.stop_if_cancelled(f"the update of {context.name}")
        changed = await self._in_thread(lambda: handler.update(context, id, state, new))
        return {**changed, claims.CLAIM: state.get(claims.CLAIM)}

    async def delete(self, urn: str, id: str, state: Values, *, seconds: float) -> None:
        """Delete a resource."""
        del seconds
        handler = self._handler(urn)
        context = self._context(urn)
        await self._in_thread(lambda: _delete(handler, context, id, state))

    def explained(self, error: Exception) -> str:
        """A mistake's own words; traces of internal errors go to a log file."""
        if isinstance(error, LocalError | InvalidInputsError):
            if isinstance(error, LocalError) and error.details:
                return f"{error}\nthe details are in {record_fault(self._site, error.details)}"
            return str(error)
        place = record_fault(self._site, traceback.format_exc())
        return (
            f"an internal error of Falaj's local provider: {type(error).__name__}: {error}\n"
            f"this is a bug; the details are in {place}"
        )

    def _handler(self, urn: str) -> Handler:
        # A URN reads urn:pulumi:stack::project::parent$type::name.
        token = urn.split("::")[2].rsplit("$", 1)[-1]
        handler = self._handlers.get(token)
        if handler is None:
            raise InvalidInputsError(
                [
                    InvalidInput(
                        "",
                        f"unknown resource type {token!r}; allowed: "
                        f"{', '.join(sorted(self._handlers))}",
                    )
                ]
            )
        return handler

    def _context(self, urn: str) -> Context:
        return Context(
            name=urn.rsplit("::", 1)[-1],
            report=lambda message, passing: self._reporter(urn, message, passing),
            cancelled=self._cancelled,
        )

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _checked(work: Callable[[], Values]) -> tuple[Values, Sequence[Failure]]:
    """Turn refused inputs into the engine's list of failures."""
    try:
        return work(), ()
    except InvalidInputsError as error:
        return {}, [(refusal.property, refusal.reason) for refusal in error.errors]


def _property_change(key: str, change: Change, state: Values, inputs: Values) -> PropertyChange:
    if not change.is_input:
        kind: ChangeKind = "add" if state.get(key) is None else "update"
        return PropertyChange(key, kind, change.replaces, is_input=False)
    return PropertyChange(key, _kind(state, inputs, key), change.replaces)


def _kind(before: Values, now: Values, key: str) -> ChangeKind:
    if (before.get(key) is None) == (now.get(key) is None):
        return "update"
    return "add" if before.get(key) is None else "delete"


def _create(handler: Handler, context: Context, inputs: Values) -> tuple[str, Values]:
    resource_id, outputs = handler.create(context, inputs)
    claim = claims.take(handler.site_of(inputs).path, handler.type_name, resource_id)
    return resource_id, {**outputs, claims.CLAIM: claim}


def _delete(handler: Handler, context: Context, resource_id: str, state: Values) -> None:
    site = handler.site_of(state).path
    if claims.is_lost(site, handler.type_name, resource_id, state.get(claims.CLAIM)):
        return
    handler.delete(context, resource_id, state)
    claims.give_up(site, handler.type_name, resource_id)
