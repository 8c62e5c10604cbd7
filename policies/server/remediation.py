"""The one remediation that is safe: tags that a resource lacks."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import struct_pb2

from falaj.policies.model import Resource, Rule, Settings
from falaj.policies.rules.governance.tags import TAGS_RULE, missing_tags


def remediated(
    rule: Rule,
    properties: struct_pb2.Struct,
    resource: Resource,
    settings: Settings,
    stack_config: Mapping[str, str],
) -> struct_pb2.Struct | None:
    """The properties with the tags that were missing; None where there is nothing to do.

    The message is changed as it is, so that unknowns and secrets in it stay what they are.
    """
    if rule.id != TAGS_RULE:
        return None
    tags = missing_tags(resource, settings, stack_config)
    if not tags:
        return None
    changed = struct_pb2.Struct()
    changed.CopyFrom(properties)
    changed.fields["tags"].struct_value.update(dict(tags))
    return changed
