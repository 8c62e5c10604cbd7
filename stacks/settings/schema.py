"""A JSON Schema of stack files, by which editors complete keys and mark mistakes.

The schema knows what stands in one file: keys at any depth, types, limits, forms, and dotted keys
(``falaj:inference.maxInstances``) beside nested ones. What a section needs is asked for where none
of its keys is dotted; what the project's own file gives is not known to it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from falaj.components.specification.limits import Between
from falaj.stacks.settings.given import NAMESPACES
from falaj.stacks.settings.load import ALL, BLUEPRINTS, EXISTING, PLATFORMS
from falaj.stacks.settings.problems import NAMESPACE
from falaj.stacks.settings.reference import description, purpose
from falaj.stacks.settings.shapes import (
    AnyValue,
    ByName,
    Choice,
    Either,
    Flag,
    Items,
    Key,
    Keys,
    Number,
    Shape,
    Text,
    keys_of,
    shown_default,
)

#: The schema that is shipped; a test makes it anew and compares.
FILE: Final = Path(__file__).resolve().with_name("stack.schema.json")
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
#: The comment by which the YAML language server of editors finds a schema.
_MODELINE: Final = re.compile(r"^# yaml-language-server: \$schema=.*\n?", re.MULTILINE)
_ANY_NAME: Final = r"[^.]+"
_ENGINE_KEYS: Final = {
    "encryptionsalt": "The salt of the passphrase that encrypts values; the engine writes it.",
    "encryptedkey": "The key that encrypts values, encrypted; the engine writes it.",
    "secretsprovider": "What encrypts values; the engine writes it.",
}


def document() -> dict[str, Any]:
    """The schema."""
    made = _Definitions()
    kinds = {kind: made.kind(model) for kind, model in ALL.items()}
    made.everything["any"] = made.any_kind(kinds)
    return {
        "$schema": _DIALECT,
        "title": "A stack file of Falaj",
        "description": "Pulumi.<stack>.yaml: what a stack makes, and where.",
        "type": "object",
        "properties": {
            "config": {
                "description": "The stack's settings, by namespaced keys.",
                "type": ["object", "null"],
                **_by_kind(),
            },
            **{key: {"description": text} for key, text in _ENGINE_KEYS.items()},
        },
        "patternProperties": {f"^({'|'.join(NAMESPACES)}):": False},
        "$defs": made.everything,
    }


def text() -> str:
    """The schema as it is written to a file."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def for_editors(stack_text: str, path: Path) -> str:
    """A stack file's text with the line that names its schema, as seen from where the file is.

    Args:
        stack_text: the file's text, with such a line or without.
        path: of the file.
    """
    relative = Path(os.path.relpath(FILE, path.parent.resolve())).as_posix()
    line = f"# yaml-language-server: $schema={relative}\n"
    return line + _MODELINE.sub("", stack_text, count=1)


def _by_kind() -> dict[str, Any]:
    """Which definition judges the settings: by platform and blueprint, where the file has both."""
    return {
        "properties": {f"{NAMESPACE}:platform": {"enum": list(PLATFORMS)}},
        "if": _has_value("platform", "local"),
        "then": {"$ref": "#/$defs/local"},
        "else": {
            "if": _has_value("platform", "kubernetes"),
            "then": _by_blueprint({name: EXISTING.kind(name) for name in EXISTING}),
            "else": {
                "if": {"anyOf": [_names("platform"), _names("placement")]},
                "then": _by_blueprint({name: name for name in BLUEPRINTS}),
                "else": {"$ref": "#/$defs/any"},
            },
        },
    }


def _by_blueprint(kinds: Mapping[str, str]) -> dict[str, Any]:
    """Judged by the blueprint; one that the project's file names is any of them."""
    key = f"{NAMESPACE}:blueprint"
    return {
        "properties": {key: {"enum": list(kinds)}},
        "allOf": [
            {"if": _has_value("blueprint", name), "then": {"$ref": f"#/$defs/{kind}"}}
            for name, kind in kinds.items()
        ]
        + [{"if": _names("blueprint"), "else": {"$ref": "#/$defs/any"}}],
    }


def _has_value(key: str, value: str) -> dict[str, Any]:
    named = f"{NAMESPACE}:{key}"
    return {"properties": {named: {"const": value}}, "required": [named]}


def _names(key: str) -> dict[str, Any]:
    return {"required": [f"{NAMESPACE}:{key}"]}


class _Definitions:
    """Collects the definitions of sections, each once."""

    def __init__(self) -> None:
        self.everything: dict[str, Any] = {}
        self._names: dict[type[BaseModel], str] = {}

    def kind(self, model: type[BaseModel]) -> dict[str, Any]:
        """The configuration of a kind of stacks."""
        kind = next(name for name in ALL if ALL[name] is model)
        foreign = "|".join(each for each in NAMESPACES if each != NAMESPACE)
        patterns: dict[str, Any] = {f"^({foreign}):": True}
        properties: dict[str, Any] = {}
        needs: list[Any] = []
        for key in keys_of(model):
            where = f"{NAMESPACE}:{key.name}"
            properties[where] = self._value(model, key)
            for path, inner in self._dotted(key.shape, re.escape(where)):
                patterns[f"^{path}$"] = inner
            needs += self._needs_of(key, where)
        self.everything[kind] = {
            "description": purpose(model),
            "type": "object",
            "properties": properties,
            "patternProperties": patterns,
            "additionalProperties": False,
            "allOf": needs,
        }
        return self.everything[kind]

    def any_kind(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a stack whose kind its project's file says: keys of all kinds."""
        properties: dict[str, list[Any]] = {}
        patterns: dict[str, list[Any]] = {}
        for definition in kinds.values():
            for merged, part in ((properties, "properties"), (patterns, "patternProperties")):
                for name, value in definition[part].items():
                    known = merged.setdefault(name, [])
                    if value not in known:
                        known.append(value)

        def one(values: list[Any]) -> Any:
            return values[0] if len(values) == 1 else {"anyOf": values}

        return {
            "type": "object",
            "properties": {name: one(values) for name, values in properties.items()},
            "patternProperties": {name: one(values) for name, values in patterns.items()},
            "additionalProperties": False,
        }

    def _needs_of(self, key: Key, where: str) -> Iterable[Any]:
        """That a key is there, alone or with dots; what its section needs, unless with dots."""
        dotted = f"^{re.escape(where)}(\\.|$)"
        if key.required:
            yield {"not": {"propertyNames": {"not": {"pattern": dotted}}}}
        needs = self._needs(key.shape)
        if needs:
            below = f"^{re.escape(where)}\\."
            yield {
                "if": {"propertyNames": {"not": {"pattern": below}}},
                "then": {"properties": {where: needs}},
            }

    def _needs(self, shape: Shape) -> dict[str, Any]:
        """What has to be there within a value, apart from what its keys take."""
        match shape:
            case Keys(model):
                required = [key.name for key in keys_of(model) if key.required]
                inner = {key.name: self._needs(key.shape) for key in keys_of(model)}
                inner = {name: needs for name, needs in inner.items() if needs}
                found = {"required": required} if required else {}
                return found | ({"properties": inner} if inner else {})
            case ByName(_, of):
                inner = self._needs(of)
                return {"additionalProperties": inner} if inner else {}
            case Items(of):
                inner = self._needs(of)
                return {"items": inner} if inner else {}
            case _:
                return {}

    def _dotted(self, shape: Shape, where: str) -> Iterable[tuple[str, Any]]:
        """Dotted keys that lead into a value, as patterns, and what they take."""
        match shape:
            case Keys(model):
                for key in keys_of(model):
                    path = f"{where}\\.{re.escape(key.name)}"
                    yield path, self._reference(model, key)
                    yield from self._dotted(key.shape, path)
            case ByName(names, of):
                rule = names.rule if isinstance(names, Text) else None
                pattern = rule.pattern.strip("^$") if rule else _ANY_NAME
                if isinstance(names, Choice):
                    pattern = f"({'|'.join(map(str, names.values))})"
                path = f"{where}\\.{pattern}"
                yield path, self._of(of)
                yield from self._dotted(of, path)
            case Either(shapes):
                for each in shapes:
                    yield from self._dotted(each, where)
            case _:
                pass

    def _reference(self, model: type[BaseModel], key: Key) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self._section(model)}/properties/{key.name}"}

    def _section(self, model: type[BaseModel]) -> str:
        """The name of a section's definition, which is made on the way."""
        if model not in self._names:
            name = model.__name__
            while name in self._names.values() or name in ALL:
                name += "_"
            self._names[model] = name
            self.everything[name] = {
                "description": purpose(model),
                "type": "object",
                "properties": {key.name: self._value(model, key) for key in keys_of(model)},
                "additionalProperties": False,
            }
        return self._names[model]

    def _value(self, model: type[BaseModel], key: Key) -> dict[str, Any]:
        """What a key takes, with its description and default."""
        found: dict[str, Any] = {"description": description(model, key)}
        if shown_default(key.default):
            found["default"] = key.default
        return found | self._of(key.shape)

    def _of(self, shape: Shape) -> dict[str, Any]:  # noqa: PLR0911 - one for each shape
        match shape:
            case Text(rule, least):
                if rule is None:
                    return {"type": "string"} | ({"minLength": least} if least else {})
                return {
                    "type": "string",
                    "pattern": rule.pattern,
                    "patternErrorMessage": f"allowed: {rule.description}",
                    "examples": [rule.example],
                }
            case Choice(values):
                return {"enum": [*values, *(str(v) for v in values if not isinstance(v, str))]}
            case Number(whole, limits):
                # `pulumi config set` writes numbers at the top as texts.
                form = r"^-?[0-9]+$" if whole else r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
                kind = "integer" if whole else "number"
                return {"type": [kind, "string"], "pattern": form} | _range(limits)
            case Flag():
                return {"enum": [True, False, "true", "false"]}
            case Items(of, least, most):
                return (
                    {"type": "array", "items": self._of(of)}
                    | ({"minItems": least} if least else {})
                    | ({"maxItems": most} if most is not None else {})
                )
            case ByName(names, of, least, most):
                return (
                    {"type": "object", "additionalProperties": self._of(of)}
                    | ({} if names == Text() else {"propertyNames": self._of(names)})
                    | ({"minProperties": least} if least else {})
                    | ({"maxProperties": most} if most is not None else {})
                )
            case Keys(model):
                return {"$ref": f"#/$defs/{self._section(model)}"}
            case Either(shapes):
                return {"anyOf": [self._of(each) for each in shapes]}
            case AnyValue():
                return {}


def _range(limits: Between | None) -> dict[str, Any]:
    if limits is None:
        return {}
    low = "exclusiveMinimum" if limits.above else "minimum"
    found: dict[str, Any] = {low: limits.low}
    return found if limits.high == float("inf") else found | {"maximum": limits.high}
