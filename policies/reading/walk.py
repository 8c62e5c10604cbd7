"""Goes through all of a resource's properties, past what only names and describes.

What is left out says nothing about where data goes: tags and labels, names and descriptions;
filters (event patterns, metric dimensions, dashboards); what a document forbids (``"Effect":
"Deny"``, ``NotIn``) and the conditions of a permission, which can only narrow it.

Only keys of a schema say so. Those of maps that a team fills as it likes (environments, data of a
ConfigMap, documents that are kept as values) say nothing, whatever they are called: no name
hides what stands under it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from falaj.policies.model import Path, Resource, is_list, text
from falaj.policies.model.resource import remembered
from falaj.policies.reading.encoded import LONGEST, texts_in
from falaj.wire.documents import is_mapping, is_sequence

#: Whole branches that only mark, describe or filter; in small letters without ``-`` and ``_``.
_MARKS: Final = frozenset((
    "dimensions", "dimension", "costfilters", "filterexpression", "dashboardbody",
    "dashboardproperties", "eventpattern", "filterpattern", "filterpolicy", "managedfields",
    "filtercriteria", "filtercriterias", "findingcriteria", "tagfilters", "tagspecifications",
    "tagset",
))  # fmt: skip
#: Single texts that only name or describe.
_DESCRIBES: Final = frozenset((
    "description", "comment", "comments", "displayname", "title", "summary", "notes", "message",
    "longdescription", "alarmdescription", "documentation", "label", "instructions",
))  # fmt: skip
_NAMES: Final = ("name", "key", "parameterKey", "Name", "Key", "ParameterKey")
#: Ends of keys whose branches mark: ``tagsAll`` as well as ``recoveryPointTags``.
_MARKING: Final = ("tags", "tagsall", "labels")
#: Types whose key and value are a mark of something else.
_MARK_TYPES: Final = ("/tag:Tag", "/resourceTag:ResourceTag", "/defaultTags:DefaultTags")
#: Names of tags by which others are chosen: ``tag:Region``, ``aws:ResourceTag/Region``.
_CHOOSES: Final = re.compile(r"(?i)^tag:|Tag/")
_VALUES: Final = frozenset(("value", "values", "parametervalue"))
_KEEPS_OUT: Final = re.compile(
    r"exclu|denied|deny|disallow|blocked|forbid|prohibit", re.IGNORECASE
)
#: How SDKs and documents of the clouds spell their keys: ``tagsAll``, ``Description``. Variables
#: of a team are spelled ``DENIED_TOPIC`` as a rule.
_OF_SCHEMA: Final = re.compile(r"\$?[A-Za-z][a-z0-9][A-Za-z0-9]*")
#: Maps whose keys are a team's own, in any type; in small letters without ``-`` and ``_``
#: (properties of pulumi_aws 7.51.1 and pulumi_azure_native 3.29.0 that map texts to texts).
_OWN: Final = frozenset((
    "airflowconfigurationoptions", "appsettings", "appsettingsoverrides", "arguments",
    "clientmetadata", "commandlinearguments", "configurationprotectedsettings",
    "configurationsettings", "connectorconfiguration", "containerenvironmentvariables",
    "customparameters", "defaultarguments", "defaultrunproperties", "driveropts", "env",
    "environment",
    "environmentvariables", "hyperparameters", "nonoverridablearguments",
    "runtimeenvironmentsecrets", "runtimeenvironmentvariables", "scriptparameters",
    "sessionattributes", "sparkconfiguration", "stagevariables", "statichyperparameters",
    "variables",
))  # fmt: skip
#: Types with such maps under a key that means something else in others, with that key; and types
#: that keep a document as a value, of which no schema is known.
_OWN_OF_TYPES: Final[dict[str, frozenset[str]]] = {
    "aws:ssm/parameter:Parameter": frozenset(("value", "insecureValue")),
    "aws:secretsmanager/secretVersion:SecretVersion": frozenset(("secretString",)),
    "aws:s3/bucketObject:BucketObject": frozenset(("content",)),
    "aws:s3/bucketObjectv2:BucketObjectv2": frozenset(("content",)),
    "aws:appconfig/hostedConfigurationVersion:HostedConfigurationVersion": frozenset(
        ("content",)
    ),
    **dict.fromkeys(
        (
            f"azure-native:web:WebApp{each}{slot}"
            for each in ("ApplicationSettings", "ConnectionStrings", "Metadata")
            for slot in ("", "Slot")
        ),
        frozenset(("properties",)),
    ),
    **dict.fromkeys(
        (f"kubernetes:core/v1:{each}{end}" for each in ("ConfigMap", "Secret")
         for end in ("", "Patch")),
        frozenset(("data", "stringData", "binaryData")),
    ),
}  # fmt: skip
#: Types whose key of that name is of their schema; what is a team's own stands below it.
_SCHEMA_OF_TYPES: Final[dict[str, frozenset[str]]] = {
    "aws:codebuild/project:Project": frozenset(("environment",)),
}


@dataclass(frozen=True)
class Leaf:
    """One value of a resource's properties, or of a JSON document within one."""

    path: Path
    """Of the property; that of the whole text for what stands in a document."""
    keys: tuple[str, ...]
    """Keys down to it, those within a document included; without places in lists."""
    value: Any
    is_own: bool = False
    """Whether it stands in a map whose keys a team chose, so that they say nothing."""

    @property
    def name(self) -> str:
        """What it is called: the nearest key, or the name beside it in a list of settings."""
        if len(self.keys) > 1 and plain_key(self.key) in _VALUES:
            return self.keys[-2]
        return self.key

    @property
    def key(self) -> str:
        """The nearest key; empty where there is none."""
        return self.keys[-1] if self.keys else ""


@remembered(size=8)
def walk(resource: Resource) -> tuple[Leaf, ...]:
    """Every value that may say where something is or goes; unknowns included."""
    if resource.kind.endswith(_MARK_TYPES):
        return ()
    own = _OWN_OF_TYPES.get(resource.kind, frozenset())
    of_schema = _SCHEMA_OF_TYPES.get(resource.kind, frozenset())
    return tuple(
        leaf
        for key, value in resource.properties.items()
        for leaf in (
            _walk(value, (key,), (key,))
            if key in of_schema
            else _walk({key: value}, (), (), own=key in own)
        )
    )


@lru_cache(maxsize=8192)
def plain_key(key: str) -> str:
    """A key in small letters without ``-`` and ``_``."""
    return key.replace("-", "").replace("_", "").lower()


def _walk(
    value: Any, path: Path | None, keys: tuple[str, ...], at: Path = (), *, own: bool = False
) -> Iterator[Leaf]:
    """Below a value; without a path of its own in a document, which stands at `at`."""
    if is_mapping(value):
        refused = frozenset[str]() if own else _refused(value)
        # Lists of settings: {"name": "AWS_REGION", "value": …}.
        named = next((text(value[key]) for key in _NAMES if text(value.get(key))), "")
        for key, each in value.items():
            name = str(key)
            plain = plain_key(name)
            if name in refused or (not own and _says_nothing(name, each)):
                continue
            if plain in _VALUES and _CHOOSES.search(named) and not own:
                continue
            below = (*keys, named, name) if named and plain in _VALUES else (*keys, name)
            further = own or plain in _OWN
            yield from _walk(each, None if path is None else (*path, name), below, at, own=further)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _walk(each, None if path is None else (*path, index), keys, at, own=own)
    else:
        here = at if path is None else path
        yield Leaf(here, keys, value, own)
        if not isinstance(value, str):
            return
        if (document := _document(value)) is not None:
            yield from _walk(document, None, keys, here, own=own)
            return
        for plain in texts_in(value):
            yield Leaf(here, keys, plain, own)
            if (document := _document(plain)) is not None:
                yield from _walk(document, None, keys, here, own=own)


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a key of a schema marks, describes, filters or keeps out."""
    return _is_mark(name) or (isinstance(value, str) and _describes(name))


@lru_cache(maxsize=8192)
def _is_mark(name: str) -> bool:
    plain = plain_key(name)
    marks = plain in _MARKS or plain.endswith(_MARKING) or _KEEPS_OUT.search(name)
    return bool(marks and _OF_SCHEMA.fullmatch(name))


@lru_cache(maxsize=8192)
def _describes(name: str) -> bool:
    return plain_key(name) in _DESCRIBES and _OF_SCHEMA.fullmatch(name) is not None


#: What stands beside the effect of a statement, and beside the operator of an expression.
_OF_STATEMENT: Final = frozenset((
    "action", "actions", "notaction", "notactions", "resource", "resources", "notresource",
    "notresources", "principal", "principals", "notprincipal", "notprincipals",
))  # fmt: skip
_OF_EXPRESSION: Final = frozenset(("key", "values", "value", "scopename"))
_NARROWING: Final = frozenset(("condition", "conditions"))
_REFUSING: Final = frozenset(("deny", "drop", "reject", "block"))


def _refused(value: Mapping[Any, Any]) -> frozenset[str]:
    """Keys of a mapping under which it says what isn't to be, or only for whom it is."""
    names = {plain_key(str(key)): str(key) for key in value}
    if "effect" in names and not _OF_STATEMENT.isdisjoint(names):
        if text(value.get(names["effect"])).lower() == "deny":
            return frozenset(map(str, value))
        return frozenset(names[each] for each in _NARROWING if each in names)
    operator = text(value.get(names.get("operator", ""))).lower()
    if operator in {"notin", "doesnotexist"} and not _OF_EXPRESSION.isdisjoint(names):
        return frozenset(map(str, value))
    # A firewall's list of what it blocks: Azure's collections of rules, and AWS's of domains.
    action = value.get("action")
    kind = action.get("type") if is_mapping(action) else action
    if text(kind).lower() in _REFUSING and "rules" in names:
        return frozenset({"rules"})
    if text(value.get("generatedRulesType")).upper() == "DENYLIST":
        return frozenset({"targets"})
    return frozenset()


def _document(value: object) -> Any:
    """What a text of JSON holds; None for other texts."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return None
    return _parsed(value) if value.lstrip()[:1] in {"{", "["} else None


@lru_cache(maxsize=512)
def _parsed(value: str) -> Any:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if is_mapping(found) or is_sequence(found) else None


def is_document(value: object) -> bool:
    """Whether a text is JSON, whose parts `walk` yields by themselves."""
    return _document(value) is not None
