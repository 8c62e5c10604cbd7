"""Descriptions of what a registry holds, for people and for machines; nothing is verified."""

from __future__ import annotations

import hashlib
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_bytes
from falaj.workloads.registry.manifest import Manifest
from falaj.workloads.registry.package import MANIFEST
from falaj.workloads.registry.store import Store


def describe_version(store: Store, model: str, version: int) -> dict[str, Any]:
    """Return model, version, path and aliases with digest and manifest, or with ``error``.

    Raises:
        WorkloadError: there is no such version.
    """
    path = store.path(model, version)
    aliases = [name for name, alias in store.aliases(model).items() if alias.version == version]
    found: dict[str, Any] = {
        "model": model,
        "version": version,
        "path": str(path),
        "aliases": aliases,
    }
    try:
        data = read_bytes(path / MANIFEST, "the manifest")
        manifest = Manifest.from_bytes(data, str(path / MANIFEST)).to_json()
    except WorkloadError as error:
        return {**found, "error": str(error)}
    return {**found, "digest": hashlib.sha256(data).hexdigest(), "manifest": manifest}


def describe(store: Store, only: str | None) -> tuple[dict[str, Any], str]:
    """Return all models, or one, with their versions: as JSON values and as text.

    Raises:
        WorkloadError: ``only`` names a model that isn't there.
    """
    models = store.models()
    if only is not None:
        if not store.versions(only):
            have = ", ".join(models) or "none"
            raise WorkloadError(f"{store.root} has no model {only!r}; it has: {have}")
        models = [only]
    listed: list[dict[str, Any]] = []
    lines: list[str] = []
    for model in models:
        versions = [_summary(store, model, number) for number in store.versions(model)]
        listed.append({"model": model, "versions": versions})
        lines += [_line(model, version) for version in versions]
    return {"models": listed}, "\n".join(lines) or f"{store.root} holds no models"


def _summary(store: Store, model: str, version: int) -> dict[str, Any]:
    found = describe_version(store, model, version)
    if "error" in found:
        return {key: found[key] for key in ("version", "aliases", "error")}
    manifest = found["manifest"]
    return {
        "version": version,
        "aliases": found["aliases"],
        "created": manifest["created"],
        "digest": found["digest"],
        "metrics": manifest.get("metrics", {}),
    }


def _line(model: str, version: dict[str, Any]) -> str:
    state = version.get("created") or f"damaged: {version['error']}"
    aliases = f"  <- {', '.join(version['aliases'])}" if version["aliases"] else ""
    return f"{model}  {version['version']}  {state}{aliases}"
