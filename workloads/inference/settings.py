"""`service.json`, read strictly: unknown keys, wrong types and impossible values are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.relay_settings import (
    SpillSettings,
    UpstreamSettings,
    spill_settings,
    upstream_settings,
)
from falaj.workloads.inference.section import Section

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
    load_seconds: float = 300


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
    upstream: UpstreamSettings | None
    """Another server of the protocol that runs the model; None: this one does."""
    spill: SpillSettings | None
    """Where requests go that would wait too long here; None: nowhere."""
    logs: Path
    state: Path
    digest: str
    """SHA-256 of the file's bytes: a change of it is a change of the service."""
    content: bytes
    """The file's bytes, for the workers: all of a generation read the same ones."""


def _tls(section: Section) -> TlsSettings:
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


def _clients(section: Section) -> dict[str, frozenset[str]]:
    clients: dict[str, frozenset[str]] = {}
    for name, scopes in section.values.items():
        if not isinstance(scopes, list) or not all(
            s in SCOPES for s in cast("list[object]", scopes)
        ):
            raise section.error(name, scopes, f"a list of scopes out of {', '.join(SCOPES)}")
        clients[name] = frozenset(cast("list[str]", scopes))
    return clients


def _auth(section: Section) -> AuthSettings:
    settings = AuthSettings(
        issuer=section.text("issuer"),
        audience=section.text("audience"),
        jwks=section.file("jwks"),
        clients=_clients(section.section("clients", {})),
    )
    section.finish(("issuer", "audience", "jwks", "clients"))
    return settings


def _limits(section: Section) -> Limits:
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
        load_seconds=section.seconds("load_seconds", 1, 7200, known.load_seconds),
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
    top = Section(path, "", document)
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
        upstream=upstream_settings(top.optional("upstream")),
        spill=spill_settings(top.optional("spill")),
        logs=top.file("logs"),
        state=top.file("state"),
        digest=hashlib.sha256(content).hexdigest(),
        content=content,
    )
    if settings.upstream is not None and settings.spill is not None:
        raise InferenceError(
            f"{path}: spill is for a server that runs the model itself; leave it out, or upstream"
        )
    own = {"digest", "content"}
    top.finish(tuple(k for k in ("format", *Settings.__dataclass_fields__) if k not in own))
    return settings
