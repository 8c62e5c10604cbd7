"""Tags that can be added safely: those whose value the stack itself says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from policies.model import Resource, Settings, is_unknown

#: The rule whose findings tags put right.
TAGS_RULE: Final = "governance-required-tags"

#: Where a stack says the values of tags.
_CONFIG_KEYS: Final = {
    "falaj:owner": "falaj:owner",
    "falaj:tenant": "falaj:tenant",
    "falaj:data-class": "falaj:dataClass",
    "falaj:cost-center": "falaj:costCenter",
    "falaj:environment": "falaj:environment",
}


def missing_tags(
    resource: Resource, settings: Settings, stack_config: Mapping[str, str]
) -> dict[str, str]:
    """The required tags that a resource lacks, with the stack's values.

    Nothing is added where the tags as a whole can't be seen, and none whose value the stack
    doesn't say.
    """
    given = resource.get("tags")
    if is_unknown(given):
        return {}
    return {
        tag: stack_config[_CONFIG_KEYS[tag]]
        for tag in settings.required_tags
        if tag not in resource.tags and tag in _CONFIG_KEYS and stack_config.get(_CONFIG_KEYS[tag])
    }
