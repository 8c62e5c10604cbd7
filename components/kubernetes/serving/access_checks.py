"""Checks of who may call an inference service, and of how they prove who they are."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes.serving.specification import Access, Caller
from falaj.components.specification.refusals import Refusals

#: Kubernetes' names of namespaces and service accounts (RFC 1123).
_OBJECT: Final = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")
_HOST: Final = re.compile(
    r"^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$"
)
_SECRET: Final = re.compile(r"^[A-Za-z0-9][\w./-]{0,254}$")
_KEYS: Final = {("OKP", "Ed25519"), ("EC", "P-256")}


def checked_access(
    name: str, given: Mapping[str, Any], placed: InCluster | None, refusals: Refusals
) -> Access:
    """Tokens, callers, the way in, keys and certificates."""
    gateway = str(given.get("gateway", "envoy-gateway-system/falaj"))
    space, slash, gateway_name = gateway.partition("/")
    if not slash or not _OBJECT.match(space) or not _OBJECT.match(gateway_name):
        refusals.add("gateway", gateway, "namespace/name of a Gateway")
    host_names = refusals.texts("host_names", given["host_names"]) if "host_names" in given else ()
    for host in host_names:
        if not _HOST.match(host):
            refusals.add("host_names", host, "a DNS name, such as models.acme.example")
    objects: dict[str, str] = {}
    for argument, default in (
        ("trust_domain", "cluster.local"), ("monitoring_namespace", "monitoring"),
        ("service_account", "inference"), ("secret_store", "falaj"),
        ("certificate_issuer", "falaj"), ("spilled_from", ""),
    ):  # fmt: skip
        value = given.get(argument, default)
        if value and not (isinstance(value, str) and _OBJECT.match(value)):
            refusals.add(argument, value, "a name of a-z, 0-9, '-' and '.'")
        objects[argument] = str(value)
    if objects["spilled_from"] == name:
        refusals.add("spilled_from", name, "the name of another InferenceService of the namespace")
    secret = refusals.text(given, "key_secret")
    if secret and not _SECRET.match(secret):
        refusals.add("key_secret", secret, "the name of an entry in the secret store")
    tenant = placed.tenant if placed is not None else ""
    if secret and tenant and not secret.startswith((f"{tenant}/", f"{tenant}-")):
        # As the cluster's own admission says: one store has the secrets of every tenant.
        refusals.add("key_secret", secret, f"entries of the tenant: {tenant}/… and {tenant}-…")
    issuer = refusals.text(given, "token_issuer")
    # Requests that another tier passes on carry the token that it was shown.
    known_as = objects["spilled_from"] or name
    audience = str(given.get("token_audience", f"falaj:{tenant}:{known_as}"))
    for argument, value in (("token_issuer", issuer), ("token_audience", audience)):
        if not value.isprintable() or not value.strip() or " " in value:
            refusals.add(argument, value, "a text without spaces")
    return Access(
        issuer,
        audience,
        _keys(given, refusals),
        _callers(given, refusals),
        objects["spilled_from"],
        space,
        gateway_name,
        host_names,
        refusals.flag("mesh", given.get("mesh", True)),
        objects["trust_domain"],
        objects["monitoring_namespace"],
        objects["service_account"],
        secret,
        objects["secret_store"],
        objects["certificate_issuer"],
    )


def _callers(given: Mapping[str, Any], refusals: Refusals) -> tuple[Caller, ...]:
    value = given.get("callers", ())
    if isinstance(value, str) or not isinstance(value, Sequence):
        refusals.add("callers", value, "a list of namespace and service_account, by name")
        return ()
    found: list[Caller] = []
    for position, entry in enumerate(cast("Sequence[object]", value)):
        at = f"callers[{position}]"
        one = cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        caller = Caller(str(one.get("namespace", "")), str(one.get("service_account", "")))
        if set(one) != {"namespace", "service_account"}:
            refusals.add(at, entry, "namespace and service_account, by name")
        elif not _OBJECT.match(caller.namespace) or not _OBJECT.match(caller.service_account):
            refusals.add(at, entry, "names without wildcards", "name every caller")
        elif caller not in found:
            found.append(caller)
    return tuple(found)


def _keys(given: Mapping[str, Any], refusals: Refusals) -> str:
    """A JWK set of public keys alone: it lies open in a ConfigMap."""
    text = given.get("token_keys", "")
    if not text:
        return ""
    allowed = "a JWK set of public Ed25519 or P-256 keys, as text"
    try:
        document = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        document = None
    entries: Any = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        refusals.add("token_keys", "something else", allowed)
        return ""
    for entry in cast("list[Any]", entries):
        if not isinstance(entry, dict) or (entry.get("kty"), entry.get("crv")) not in _KEYS:
            refusals.add("token_keys", "a key of another kind", allowed)
        elif "d" in entry:
            refusals.add(
                "token_keys", "a private key", allowed, "whoever reads it could make tokens"
            )
    return json.dumps(document, sort_keys=True)
