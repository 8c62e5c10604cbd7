"""Tags that can be added safely: those whose value the stack itself says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from falaj.policies.model import Resource, Settings
from falaj.policies.reading.tags import LISTED, tags_of
from falaj.policies.rules.governance.tags import TAGGABLE

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

    Nothing is added where tags can't be seen, nor to what takes none or a list of them; nothing
    that is there is changed, not even an empty value; and no tag whose value the stack doesn't
    say.
    """
    if resource.kind not in TAGGABLE or resource.kind in LISTED:
        return {}
    given = tags_of(resource)
    if given is None:
        return {}
    folds = resource.package == "azure-native"
    there = {key.lower() if folds else key for key in given}
    return {
        tag: stack_config[_CONFIG_KEYS[tag]]
        for tag in settings.required_tags
        if (tag.lower() if folds else tag) not in there
        and tag in _CONFIG_KEYS
        and stack_config.get(_CONFIG_KEYS[tag])
    }
