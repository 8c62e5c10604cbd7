"""Tags that everything carries, and those that a remediation adds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

from falaj.components.catalogue.tag_names import (
    DATA_CLASSES,
    ENVIRONMENTS,
    TAGS,
    tag_name,
    tag_names,
)
from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Settings,
    Severity,
    indeterminate,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.reading.tags import LISTED, as_given, comparable, tags_of
from falaj.policies.reading.types import azure

# Tags that can be added safely: those whose value the stack itself says.

#: The rule whose findings tags put right.
TAGS_RULE: Final = "governance-required-tags"

#: Where a stack says the values of tags.
_CONFIG_KEYS: Final = {tag_name("aws", name): f"falaj:{key}" for name, key in TAGS.items()}


def missing_tags(
    resource: Resource, settings: Settings, stack_config: Mapping[str, str]
) -> dict[str, str]:
    """The required tags that a resource lacks, with the stack's values.

    Nothing is added where tags can't be seen, nor to what takes none or a list of them; nothing
    that is there is changed, not even an empty value; and no tag whose value the stack doesn't
    say.
    """
    if resource.kind not in TAGGABLE or resource.kind in LISTED:
        return {}
    given = tags_of(resource)
    if given is None:
        return {}
    there = {comparable(resource, key) for key in given}
    return {
        as_given(resource, tag): stack_config[_CONFIG_KEYS[tag]]
        for tag in settings.required_tags
        if comparable(resource, tag) not in there
        and tag in _CONFIG_KEYS
        and stack_config.get(_CONFIG_KEYS[tag])
    }


# Tags: who owns a resource, who pays, and what class its data has.

_CONTROLS: Final = ("uae-ia:T1.3.x", "iso27001:A.5.9", "iso27001:A.5.13", "pdpl:7")


def _read() -> frozenset[str]:
    given = json.loads(
        (files("falaj.policies.rules.governance") / "taggable.json").read_text(encoding="utf-8")
    )
    aws = {
        f"aws:{module}/{name}:{name[0].upper()}{name[1:]}"
        for module, names in given["aws"].items()
        for name in names.split()
    }
    named = (
        f"{module}:{name}"
        for module, names in given["azure-native"].items()
        for name in names.split()
    )
    return frozenset(aws) | azure(*named)


#: Every type that takes tags.
TAGGABLE: Final = _read() | LISTED


@rule(
    "governance-required-tags",
    "Everything that takes tags says whose it is and what class its data has",
    Severity.MEDIUM,
    TAGGABLE,
    _CONTROLS,
    "Add the tags that the reason names. On AWS the provider's defaultTags count, except for "
    "Auto Scaling groups.",
)
def required_tags(resource: Resource, context: Context) -> Iterator[Finding]:
    """One finding for all tags that are missing. Azure's names know no letter case, and Falaj's
    own have another form there."""
    tags = tags_of(resource)
    required = context.settings.required_tags
    if tags is None:
        yield indeterminate("tags", f"the tags can't be seen; {', '.join(required)} are required")
        return
    given = {
        comparable(resource, key)
        for key, value in tags.items()
        if is_unknown(value) or text(value)
    }
    missing = [
        as_given(resource, each) for each in required if comparable(resource, each) not in given
    ]
    if missing:
        yield violation("tags", f"tags are missing or empty: {', '.join(missing)}")


#: What values may be, by the name of the tag; for others any text will do.
_VALUES: Final = {
    "data-class": DATA_CLASSES,
    "environment": ENVIRONMENTS,
}
#: Values that say nothing.
_EMPTY: Final = frozenset(
    ("-", ".", "?", "changeme", "n/a", "na", "nobody", "none", "null", "tbd", "todo", "unknown",
     "undefined", "xxx")
)  # fmt: skip
_MEANT: Final = {
    each: name
    for name in ("data-class", "environment", "owner", "tenant", "cost-center")
    for each in tag_names(name)
}


@rule(
    "governance-tag-values",
    "Tags say something that rules and people understand",
    Severity.LOW,
    TAGGABLE,
    _CONTROLS,
    "Use one of the four classes (public, internal, confidential, restricted), one of the three "
    "environments (development, test, production), and a real owner.",
)
def tag_values(resource: Resource, context: Context) -> Iterator[Finding]:
    """Only Falaj's own tags are read; what a value can't be known to be, its maker knows."""
    for key, value in (tags_of(resource) or {}).items():
        name = _MEANT.get(key)
        if name is None:
            continue
        path = f'tags["{key}"]'
        if is_unknown(value):
            if name in _VALUES:
                allowed = ", ".join(_VALUES[name])
                yield indeterminate(path, f"it can't be seen; it must be one of {allowed}")
            continue
        given = text(value)
        if name in _VALUES and given not in _VALUES[name]:
            allowed = ", ".join(_VALUES[name])
            yield violation(path, f"it is {given[:40] or 'empty'!r}; it must be one of {allowed}")
        elif given.lower() in _EMPTY:
            yield violation(path, f"it is {given!r}, which names nobody and nothing")


RULES: tuple[Rule, ...] = (
    required_tags,
    tag_values,
)
