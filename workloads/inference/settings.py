"""`service.json`, read strictly: unknown keys, wrong types and impossible values are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from workloads.inference.errors import InferenceError

FORMAT = "falaj.service/1"
SCOPES = ("predict", "observe", "admin")


@dataclass(frozen=True)
class TlsSettings:
    """The server's certificate and, for mutual TLS, the authority of client certificates."""

    certificate: Path
    private_key: Path
    client_ca: Path | None


@dataclass(frozen=True)
class AuthSettings:
    """Who signs bearer tokens, for whom, and what each client certificate may do."""

    issuer: str
    audience: str
    jwks: Path
    clients: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Limits:
    """Bounds on what a client may send and on how long it may take (sizes in bytes)."""

    max_body_bytes: int = 8 * 1024 * 1024
    max_rows: int = 1024
    drain_seconds: float = 10
    header_timeout_seconds: float = 10
    idle_timeout_seconds: float = 75


@dataclass(frozen=True)
class Settings:
    """One service: what it serves, where, and by which rules."""

    name: str
    host: str
    port: int
    workers: int
    threads: int
    registry: Path
    model: str
    alias: str
    keyring: Path
    tls: TlsSettings
    auth: AuthSettings
    limits: Limits
    logs: Path
    state: Path
    digest: str
    """SHA-256 of the file's bytes: a change of it is a change of the service."""
    content: bytes
    """The file's bytes, for the workers: all of a generation read the same ones."""


class _Section:
    """One JSON object of the file: takes keys out one by one and refuses what is left."""

    def __init__(self, path: Path, where: str, value: object) -> None:
        self.path = path
        self.where = where
        if not isinstance(value, dict):
            raise self.error("", value, "an object")
        self.values = dict(cast("dict[str, object]", value))

    def error(self, key: str, given: object, allowed: str) -> InferenceError:
        place = ".".join(part for part in (self.where, key) if part) or "the whole file"
        shown = orjson.dumps(given, default=str).decode()[:80]
        return InferenceError(f"{self.path}: {place}: got {shown}, allowed is {allowed}")

    def take(self, key: str, default: object = None) -> object:
        if key not in self.values and default is None:
            place = ".".join(part for part in (self.where, key) if part)
            raise InferenceError(f"{self.path}: {place} is missing")
        return self.values.pop(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.take(key, default)
        if not isinstance(value, str) or not value:
            raise self.error(key, value, "a text that isn't empty")
        return value

    def file(self, key: str) -> Path:
        return Path(self.text(key))

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, value, f"a whole number from {low} to {high}")
        return value

    def seconds(self, key: str, low: float, high: float, default: float) -> float:
        value = self.take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, value, "a number of seconds")
        if not low <= value <= high:
            raise self.error(key, value, f"a number of seconds from {low:g} to {high:g}")
        return float(value)

    def section(self, key: str, default: object = None) -> _Section:
        where = ".".join(part for part in (self.where, key) if part)
        return _Section(self.path, where, self.take(key, default))

    def finish(self, allowed: tuple[str, ...]) -> None:
        if self.values:
            key = sorted(self.values)[0]
            place = ".".join(part for part in (self.where, key) if part)
            raise InferenceError(
                f"{self.path}: {place} is not a known key; allowed here: {', '.join(allowed)}"
            )


def _tls(section: _Section) -> TlsSettings:
    authority = section.values.pop("client_ca", None)
    if authority is not None and (not isinstance(authority, str) or not authority):
        raise section.error("client_ca", authority, "a path, or no such key")
    settings = TlsSettings(
        certificate=section.file("certificate"),
        private_key=section.file("private_key"),
        client_ca=Path(authority) if authority is not None else None,
    )
    section.finish(("certificate", "private_key", "client_ca"))
    return settings


def _clients(section: _Section) -> dict[str, frozenset[str]]:
    clients: dict[str, frozenset[str]] = {}
    for name, scopes in section.values.items():
        if not isinstance(scopes, list) or not all(
            s in SCOPES for s in cast("list[object]", scopes)
        ):
            raise section.error(name, scopes, f"a list of scopes out of {', '.join(SCOPES)}")
        clients[name] = frozenset(cast("list[str]", scopes))
    return clients


def _auth(section: _Section) -> AuthSettings:
    settings = AuthSettings(
        issuer=section.text("issuer"),
        audience=section.text("audience"),
        jwks=section.file("jwks"),
        clients=_clients(section.section("clients", {})),
    )
    section.finish(("issuer", "audience", "jwks", "clients"))
    return settings


def _limits(section: _Section) -> Limits:
    known = Limits()
    settings = Limits(
        max_body_bytes=section.whole("max_body_bytes", 1024, 2**30, known.max_body_bytes),
        max_rows=section.whole("max_rows", 1, 2**20, known.max_rows),
        drain_seconds=section.seconds("drain_seconds", 0, 600, known.drain_seconds),
        header_timeout_seconds=section.seconds(
            "header_timeout_seconds", 0.1, 600, known.header_timeout_seconds
        ),
        idle_timeout_seconds=section.seconds(
            "idle_timeout_seconds", 0.1, 3600, known.idle_timeout_seconds
        ),
    )
    section.finish(tuple(Limits.__dataclass_fields__))
    return settings


def read(path: Path) -> Settings:
    """Read and check a service file.

    Raises:
        InferenceError: the file can't be read, isn't JSON, or a key of it is wrong; the
            message names the key, what was given and what is allowed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InferenceError(f"can't read the service file {path}: {error.strerror}") from error
    return parse(path, content)


def parse(path: Path, content: bytes) -> Settings:
    """Check the content of a service file; ``path`` is named in messages."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InferenceError(f"{path} is not JSON: {error}") from error
    top = _Section(path, "", document)
    if (given := top.text("format")) != FORMAT:
        raise top.error("format", given, f'"{FORMAT}"')
    settings = Settings(
        name=top.text("name"),
        host=top.text("host", "127.0.0.1"),
        port=top.whole("port", 0, 65535),
        workers=top.whole("workers", 1, 256, 1),
        threads=top.whole("threads", 1, 256, 1),
        registry=top.file("registry"),
        model=top.text("model"),
        alias=top.text("alias", "production"),
        keyring=top.file("keyring"),
        tls=_tls(top.section("tls")),
        auth=_auth(top.section("auth")),
        limits=_limits(top.section("limits", {})),
        logs=top.file("logs"),
        state=top.file("state"),
        digest=hashlib.sha256(content).hexdigest(),
        content=content,
    )
    own = {"digest", "content"}
    top.finish(tuple(k for k in ("format", *Settings.__dataclass_fields__) if k not in own))
    return settings
