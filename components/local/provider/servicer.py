"""The plugin's process: finds the handler of a resource's type and runs it in a thread.

It ends when the engine is gone, shows messages beside the resource that they are about, and writes
internal errors down in the site's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc

from falaj import __version__
from falaj.components.local import machine
from falaj.components.local.machine import InvalidInput, InvalidInputsError, LocalError
from falaj.components.local.provider import fields
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.components.specification.described import explained
from falaj.components.specification.property_names import camel
from falaj.wire import servicer as wire
from falaj.wire.protocol import engine_pb2, engine_pb2_grpc
from falaj.wire.servicer import Failure, Servicer
from falaj.wire.values import ChangeKind, PropertyChange, Values

# Claims: when a resource is replaced by one that comes to the same folder (the same digest, the
# same name), the engine first makes the new one, which takes the folder over, and then deletes the
# old one, which must leave the folder alone. Each creation therefore writes a claim; a deletion
# acts only for the holder of the last one.

_CLAIMS_FOLDER: Final = ".claims"
CLAIM: Final = "claim"


def take_claim(site: Path, type_name: str, resource_id: str) -> str:
    """Claim what a resource has made; earlier claims end.

    Raises:
        LocalError: the claim can't be written.
    """
    claim = secrets.token_hex(8)
    path = _claim_file(site, type_name, resource_id)
    machine.make_folder(path.parent)
    machine.write_file(path, claim.encode())
    return claim


def is_claim_lost(site: Path, type_name: str, resource_id: str, claim: object) -> bool:
    """Whether a later incarnation has claimed the same things."""
    try:
        return _claim_file(site, type_name, resource_id).read_text(encoding="utf-8") != claim
    except OSError:
        return False


def give_up_claim(site: Path, type_name: str, resource_id: str) -> None:
    """Remove a claim after the deletion."""
    _claim_file(site, type_name, resource_id).unlink(missing_ok=True)


def _claim_file(site: Path, type_name: str, resource_id: str) -> Path:
    name = hashlib.sha256(f"{type_name}\0{resource_id}".encode()).hexdigest()[:24]
    return site / _CLAIMS_FOLDER / name


# Where internal errors are written down.

_FAULT_LOG_NAME: Final = "provider.log"
_FAULT_LOG_LIMIT: Final = 1 << 20


def record_fault(site: Path | None, trace: str) -> str:
    """Append a trace to the site's log and return where it went; at most one MiB is kept.

    Without a site folder (before it is made, after it is removed) the trace goes to the standard
    error output, which the engine keeps in its own log.
    """
    entry = f"{datetime.now(UTC).isoformat(timespec='seconds')}\n{trace}\n"
    if site is None or not site.is_dir():
        sys.stderr.write(entry)
        return "the engine's log (run with --logtostderr -v=9)"
    path = site / _FAULT_LOG_NAME
    try:
        if path.exists() and path.stat().st_size > _FAULT_LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))
        with path.open("a", encoding="utf-8") as log:
            log.write(entry)
    except OSError:
        sys.stderr.write(entry)
        return "the engine's log (run with --logtostderr -v=9)"
    return str(path)


# The package's schema for other Pulumi languages and for ``pulumi package get-schema``.

_JSON_TEXT = {"type": "string"}
_JSON_TYPES: Mapping[fields.FieldType, Mapping[str, Any]] = {
    "text": _JSON_TEXT,
    "path": _JSON_TEXT,
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "texts": {"type": "array", "items": _JSON_TEXT},
    "wholes": {"type": "array", "items": {"type": "integer"}},
    "lists": {
        "type": "object",
        "additionalProperties": {"type": "array", "items": _JSON_TEXT},
    },
    "maps": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": {"$ref": "pulumi.json#/Any"},
        },
    },
    "plain": {"type": "object", "additionalProperties": {"$ref": "pulumi.json#/Any"}},
}


def schema_document(
    package: str, version: str, configuration: fields.Table, handlers: Sequence[Handler]
) -> dict[str, Any]:
    """The schema as JSON-ready values; see https://www.pulumi.com/docs/iac/guides/building-extending/packages/schema/."""
    return {
        "name": package,
        "version": version,
        "provider": {"inputProperties": {"site": _input_schema(configuration["site"], _SITE)}},
        "resources": {
            f"{package}:index:{handler.type_name}": _resource_schema(handler)
            for handler in handlers
        },
    }


def _resource_schema(handler: Handler) -> dict[str, Any]:
    texts = {camel(name): text for name, text in explained(handler.arguments).items()}
    texts |= {key: f"Filled in: {text}" for key, text in handler.filled.items()}
    inputs = {key: _input_schema(entry, texts[key]) for key, entry in handler.table.items()}
    outputs = {
        key: {"$ref": "pulumi.json#/Any", "description": summary}
        for key, summary in handler.outputs.items()
    }
    return {
        "description": handler.summary,
        "inputProperties": inputs,
        "requiredInputs": [key for key, entry in handler.table.items() if entry.required],
        "properties": {**inputs, **outputs},
    }


def _input_schema(entry: fields.Field, text: str) -> dict[str, Any]:
    described = {**_JSON_TYPES[entry.kind], "description": text}
    if isinstance(entry.default, str | int | float | bool):
        described["default"] = entry.default
    return described


PACKAGE = "falaj-local"
_SITE: Final = "Folder that holds everything of the stack; internal errors are logged below it."

CONFIGURATION: fields.Table = {
    "site": fields.Field("path"),
    # The engine adds these two by itself.
    "version": fields.Field("text"),
    "pluginDownloadURL": fields.Field("text"),
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
        return json.dumps(schema_document(PACKAGE, self._version, CONFIGURATION, handlers))

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
        return {**changed, CLAIM: state.get(CLAIM)}

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
    claim = take_claim(handler.site_of(inputs).path, handler.type_name, resource_id)
    return resource_id, {**outputs, CLAIM: claim}


def _delete(handler: Handler, context: Context, resource_id: str, state: Values) -> None:
    site = handler.site_of(state).path
    if is_claim_lost(site, handler.type_name, resource_id, state.get(CLAIM)):
        return
    handler.delete(context, resource_id, state)
    give_up_claim(site, handler.type_name, resource_id)


# Messages to the engine, shown beside the resource that they are about.


class EngineLog:
    """Sends messages over the engine's Log call; a message that can't be sent is dropped.

    Args:
        address: the engine's address, as given on the plugin's command line.
    """

    def __init__(self, address: str) -> None:
        # The SDK's types of it name a module that the SDK hasn't.
        self._engine: Any = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address))

    def __call__(self, urn: str, message: str, passing: bool) -> None:
        """Show `message` beside the resource; a passing one is replaced by the next."""
        request = engine_pb2.LogRequest(
            severity=engine_pb2.INFO, message=message, urn=urn, ephemeral=passing
        )
        # Progress must never make work fail: the engine may be on its way out.
        with contextlib.suppress(grpc.RpcError):
            self._engine.Log(request, timeout=5)


# Runs the provider as a plugin process, and ends it when the engine is gone.

_ALIVE_EVERY_S: Final = 2.0
_MISSED_LIMIT: Final = 3


async def serve(engine_address: str, handlers: Sequence[Handler]) -> None:
    """Serve until the engine ends the process, is gone itself, or a signal comes."""
    servicer = LocalServicer(handlers, EngineLog(engine_address), __version__)
    # Work in threads sees the cancellation, stops its processes and keeps what it has.
    await wire.serve(servicer, _wait_until_alone(engine_address), grace_s=60)


async def _wait_until_alone(engine_address: str) -> None:
    """Return when the engine no longer answers, or the parent process is gone.

    An engine that was killed sends no Cancel; without this the training would go on unseen.
    """
    parent = os.getppid()
    host, _, port = engine_address.rpartition(":")
    missed = 0
    while missed < _MISSED_LIMIT:
        await asyncio.sleep(_ALIVE_EVERY_S)
        if os.getppid() != parent:
            return
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 5)
        except (OSError, TimeoutError):
            missed += 1
            continue
        missed = 0
        writer.close()
