"""Destinations that objects of operators name, as the catalogue's table tells where they stand."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from falaj.components.catalogue.destinations import TOPICS, Field, Sender
from falaj.components.catalogue.region_names import place_named
from falaj.policies.model import (
    Context,
    Finding,
    format_value,
    is_list,
    is_unknown,
    items,
    select,
    text,
)
from falaj.policies.reading.kubernetes import Manifest
from falaj.policies.reading.services import is_own_address, may_reach, outside
from falaj.wire.documents import is_mapping

_KINDS: Final = tuple((topic.rule, kind) for topic in TOPICS for kind in topic.kinds)
_TOLD: Final = frozenset((kind.group, kind.name) for _, kind in _KINDS)
_NAME: Final = re.compile(r"[a-z0-9_.*+-]+|[0-9a-f:.]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def of_rule(rule: str) -> tuple[str, ...]:
    """The kinds that a rule judges, each as ``group:Kind``."""
    return tuple(f"{kind.group}:{kind.name}" for each, kind in _KINDS if each == rule)


def is_known(manifest: Manifest) -> bool:
    """Whether the catalogue says where an object names its destinations."""
    return (manifest.group, manifest.kind) in _TOLD


def parsed_host(value: str) -> str:
    """The host of a URL, of ``host:port`` or of an address; empty where it can't be read.

    As the API server reads it: what its parser refuses has no host here either.
    """
    if _CONTROL.search(value) or value != value.lstrip():
        return ""
    try:
        given = f"any://[{ipaddress.IPv6Address(value)}]"
    except ValueError:
        given = f"any:{value}" if value.startswith("//") else value
        given = given if "://" in given else f"any://{given}"
    try:
        parts = urlsplit(given)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return ""
    return host.rstrip(".") if _NAME.fullmatch(host) else ""


def is_made_here(manifest: Manifest, path: str, context: Context) -> bool:
    """Whether an unknown value was made from resources of this stack, which are judged.

    Random values and most objects of a cluster have no host, so that it can't be theirs.
    """
    made_of = context.referred(manifest.resource, manifest.path(path))
    return any(
        each.package not in _HOSTLESS or each.kind.endswith((":Service", ":Ingress", ":Gateway"))
        for each in made_of
    )


_HOSTLESS: Final = frozenset({"kubernetes", "random", "pulumi", "tls", "time", "command"})


def judged(manifest: Manifest, rule: str, context: Context) -> Iterator[Finding]:
    """What is wrong with those destinations of an object that a rule judges."""
    if not is_known(manifest):
        return
    for of, kind in _KINDS:
        if of == rule and (kind.group, kind.name) == (manifest.group, manifest.kind):
            for field in kind.fields:
                for path, value in _values(manifest, field):
                    yield from _judge(manifest, path, value, field, context)
            yield from _others(manifest, kind)


def _values(manifest: Manifest, field: Field) -> Iterator[tuple[str, Any]]:
    holder, _, key = field.path.replace("[]", "").rpartition(".")
    for at, found in select(manifest.body, holder):
        if is_unknown(found):
            yield at, found
        elif is_mapping(found) and not any(found.get(each) for each in field.instead):
            value = found.get(key)
            path = f"{at}.{key}"
            if is_list(value):
                yield from ((f"{path}[{index}]", each) for index, each in enumerate(items(value)))
            elif is_unknown(value) or text(value) not in {"", field.cluster}:
                yield path, value
            elif field.default and not manifest.is_patch:
                yield path, field.default


def _judge(
    manifest: Manifest, path: str, value: Any, field: Field, context: Context
) -> Iterator[Finding]:
    settings = context.settings
    if is_unknown(value):
        if not is_made_here(manifest, path, context):
            yield manifest.indeterminate(path, f"where data goes {value.reason}")
        return
    given = text(value)
    if not given:
        return
    if field.form == "region":
        if place_named(given) not in settings.allowed_places:
            yield manifest.violation(
                path, f"{format_value(given)} isn't one of {', '.join(settings.allowed_places)}"
            )
        return
    host = given if field.form == "range" else parsed_host(given)
    if field.form == "code" and not re.search("[.:]", host):
        host = "docker.io"
    may = is_own_address(host) if field.form == "range" else may_reach(host, settings)
    if not host:
        yield manifest.violation(path, f"no host can be read in {format_value(given)}")
    elif not may:
        yield manifest.violation(path, outside(host))


def _others(manifest: Manifest, kind: Sender) -> Iterator[Finding]:
    """Keys of a choice that stand for what is abroad, or can't be judged."""
    for choice in kind.choices:
        for at, found in select(manifest.body, choice.path.replace("[]", "")):
            if is_unknown(found):
                yield manifest.indeterminate(at, f"what it is {found.reason}")
                continue
            for key, value in found.items() if is_mapping(found) else ():
                if value is None or key in choice.keys or not key.endswith(choice.ending):
                    continue
                yield manifest.violation(
                    f"{at}.{key}", f"{key} is of a service abroad, or one that says no place"
                )
