"""The provider itself: finds the handler of a resource's type and runs it in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pulumi.provider.experimental.provider import GetSchemaRequest, GetSchemaResponse, Provider

from falaj.components.local.machine.errors import InputsError, LocalError, Refusal
from falaj.components.local.provider import claims, fields, schema
from falaj.components.local.provider.handler import Change, Context, Handler
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


@dataclass(frozen=True)
class Difference:
    """Changes by property, and in which order a replacement happens."""

    changes: Mapping[str, Change]
    delete_before_replace: bool


class LocalProvider(Provider):
    """Dispatches by resource type; work runs in threads, so that a cancellation gets through."""

    def __init__(self, handlers: Sequence[Handler], reporter: Reporter, version: str) -> None:
        self._handlers = {f"{PACKAGE}:index:{handler.type_name}": handler for handler in handlers}
        self._reporter = reporter
        self._version = version
        self._cancelled = threading.Event()
        # More than the engine's default of parallel resources would ever need at once here.
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="resource")
        self.site: Path | None = None

    async def get_schema(self, request: GetSchemaRequest) -> GetSchemaResponse:
        """The package's schema, made from the handlers' tables of inputs and outputs."""
        del request
        document = schema.document(
            PACKAGE, self._version, CONFIGURATION, list(self._handlers.values())
        )
        return GetSchemaResponse(schema=json.dumps(document))

    async def cancel(self) -> None:
        """Ask everything that runs to stop and keep what it has."""
        self._cancelled.set()

    def check_configuration(self, given: Values) -> Values:
        """The provider's own settings, checked.

        Raises:
            InputsError: a setting is unknown or of a wrong type.
        """
        return fields.check(CONFIGURATION, given)

    def configure_site(self, given: Values) -> None:
        """Take over the provider's own settings; an unknown folder is set by a later call."""
        site = given.get("site")
        if isinstance(site, str):
            self.site = Path(site)

    async def check_inputs(self, urn: str, given: Values, old: Values) -> Values:
        """Checked inputs of a resource.

        Raises:
            InputsError: an input was refused.
        """
        handler = self._handler(urn)
        return await self._in_thread(lambda: handler.check(given, old))

    async def difference(self, urn: str, state: Values, inputs: Values) -> Difference:
        """What differs between a resource's state and its wanted inputs."""
        handler = self._handler(urn)
        changes = await self._in_thread(lambda: handler.diff(state, inputs))
        return Difference(changes, handler.delete_before_replace)

    async def make(self, urn: str, inputs: Values, *, preview: bool) -> tuple[str, Values]:
        """Create a resource; in a preview the id is empty and outputs are as far as known."""
        handler = self._handler(urn)
        if preview:
            return "", await self._in_thread(lambda: handler.preview(inputs, None))
        context = self._context(urn)
        context.stop_if_cancelled(f"the creation of {context.name}")
        return await self._in_thread(lambda: _create(handler, context, inputs))

    async def look(
        self, urn: str, resource_id: str, state: Values
    ) -> tuple[Values, Values] | None:
        """State and inputs as they are on the machine; None when the resource is gone."""
        handler = self._handler(urn)
        if not state:
            raise LocalError(
                f"{handler.type_name} can't be imported: it is made by `pulumi up`, which adopts "
                "what is already there"
            )
        found = await self._in_thread(lambda: handler.read(resource_id, state))
        return None if found is None else (found, handler.after_read(found))

    async def change(
        self, urn: str, resource_id: str, state: Values, inputs: Values, *, preview: bool
    ) -> Values:
        """Update a resource; in a preview outputs are as far as known."""
        handler = self._handler(urn)
        if preview:
            return await self._in_thread(lambda: handler.preview(inputs, state))
        context = self._context(urn)
        context.stop_if_cancelled(f"the update of {context.name}")
        changed = await self._in_thread(
            lambda: handler.update(context, resource_id, state, inputs)
        )
        return {**changed, claims.CLAIM: state.get(claims.CLAIM)}

    async def remove(self, urn: str, resource_id: str, state: Values) -> None:
        """Delete a resource."""
        handler = self._handler(urn)
        context = self._context(urn)
        await self._in_thread(lambda: _delete(handler, context, resource_id, state))

    def _handler(self, urn: str) -> Handler:
        # A URN reads urn:pulumi:stack::project::parent$type::name.
        token = urn.split("::")[2].rsplit("$", 1)[-1]
        handler = self._handlers.get(token)
        if handler is None:
            raise InputsError(
                [
                    Refusal(
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
