"""What CloudFormation and Cloud Control make on AWS is encrypted as well.

A template, or a resource of any type in CloudFormation's words, makes services that no other rule
sees. Those that keep data are read and judged here; what can't be read is said to be so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Severity,
    View,
    get,
    indeterminate,
    is_list,
    rule,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption.aws_template_stores import TEMPLATE_STORES
from falaj.policies.rules.encryption.demands import demands_customer_key
from falaj.policies.rules.encryption.table import Part

_TEMPLATED: Final = frozenset((
    "aws:cloudformation/stack:Stack",
    "aws:cloudformation/stackSet:StackSet",
))  # fmt: skip
_GENERIC: Final = "aws:cloudcontrol/resource:Resource"
#: Templates of others, which nobody sees from here.
_FOREIGN: Final = frozenset((
    "aws:serverlessrepository/cloudFormationStack:CloudFormationStack",
    "aws:servicecatalog/provisionedProduct:ProvisionedProduct",
))  # fmt: skip
#: CloudFormation takes no template longer than 1 MB.
_LONGEST: Final = 1_048_576
#: Values of a template that are looked at, at most: aliases may make a short text endless.
_MOST: Final = 50_000
#: No property that is asked for stands deeper.
_DEEPEST: Final = 40
_KEYS: Final = ("AWS::KMS::Key", "AWS::KMS::Alias", "AWS::KMS::ReplicaKey")
_COMPUTED: Final = Unknown("is computed when the template is deployed")


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, ``!Ref`` and the like."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        given: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        given = loader.construct_sequence(node, deep=True)
    else:
        given = loader.construct_mapping(node, deep=True)  # pyright: ignore[reportArgumentType]
    return {"Ref" if suffix == "Ref" else f"Fn::{suffix}": given}


_Loader.add_multi_constructor("!", _short_form)


def _yaml(given: str) -> Any:
    return yaml.load(given, _Loader)  # noqa: S506 - _Loader is the safe one


def _parsed(value: Any) -> Any:
    """A template or a resource's state as its mapping; ABSENT where it is none."""
    if isinstance(value, Mapping):
        return value
    given = text(value)
    if not given or len(given) > _LONGEST:
        return ABSENT
    try:
        found = json.loads(given) if given.startswith("{") else _yaml(given)
    except (ValueError, RecursionError, yaml.YAMLError):
        return ABSENT
    return found if isinstance(found, Mapping) else ABSENT


def _named(value: Any) -> str:
    """The resource that an intrinsic function names; empty for other functions and values."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return ""
    function, given = next(iter(value.items()))
    if function == "Ref":
        return text(given)
    if function == "Fn::GetAtt":
        return text(given[0] if is_list(given) and given else given).partition(".")[0]
    return ""


def _is_function(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith(("Ref", "Fn::"))


def _settled(value: Any, keys: frozenset[str], left: list[int], depth: int = 0) -> Any:
    """A value with its functions settled: a key of the template, or unknown."""
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        return _COMPUTED
    if isinstance(value, Mapping):
        if _is_function(value):
            return f"key {_named(value)}" if _named(value) in keys else _COMPUTED
        return {str(name): _settled(each, keys, left, depth + 1) for name, each in value.items()}
    if is_list(value):
        return [_settled(each, keys, left, depth + 1) for each in value]
    return value


def _parts(template: Mapping[Any, Any], view: View) -> Iterator[tuple[str, Part]]:
    """What each resource of a template keeps, with its name there."""
    resources = get(template, "Resources")
    if not isinstance(resources, Mapping):
        return
    keys = frozenset(
        str(name) for name, each in resources.items() if text(get(each, "Type")) in _KEYS
    )
    left = [_MOST]
    for name, each in resources.items():
        kind = text(get(each, "Type"))
        entries = [entry for entry in TEMPLATE_STORES if entry.type == kind]
        if entries:
            properties = get(each, "Properties")
            settled = _settled(properties if isinstance(properties, Mapping) else {}, keys, left)
            made = Resource(kind, str(name), settled)
            for entry in entries:
                yield from ((f"{name} ({kind})", part) for part in entry.read(made, view))


def _judged(
    resource: Resource, view: View, path: str, template: Mapping[Any, Any]
) -> Iterator[Finding]:
    keyed = demands_customer_key(resource, view)
    for name, part in _parts(template, view):
        if part.state == "none":
            yield violation(path, f"{name}: {part.why}; data at rest must be encrypted")
        elif part.state == "service key" and keyed:
            said = f"{view.data_class(resource)} data needs a customer-managed key"
            yield violation(path, f"{name}: {part.why}; {said}")
        elif part.state == "unknown" and (keyed or not part.surely):
            yield indeterminate(path, f"{name}: {part.why}")


@rule(
    "encryption-aws-template",
    "What CloudFormation makes on AWS is encrypted, with a customer-managed key",
    Severity.HIGH,
    _TEMPLATED | _FOREIGN | {_GENERIC},
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "uae-ia:T7.4.2", "pdpl:20", "gdpr:32"),
    "Encrypt the resource that the finding names, in the template; better, declare it in the "
    "program, where every rule sees it.",
)
def template(resource: Resource, view: View) -> Iterator[Finding]:
    """A template is read as far as it keeps data; one that can't be seen proves nothing."""
    if resource.kind in _FOREIGN:
        yield indeterminate("", "it deploys a template of somebody else, which can't be seen here")
        return
    path = "desiredState" if resource.kind == _GENERIC else "templateBody"
    value = get(resource.properties, path)
    given = _parsed(value)
    if isinstance(value, Unknown) or given is ABSENT:
        said = value.reason if isinstance(value, Unknown) else "holds no template that can be read"
        if value is ABSENT and get(resource.properties, "templateUrl") is not ABSENT:
            path, said = "templateUrl", "names a template that can't be seen here"
        yield indeterminate(path, f"{path} {said}, so nobody knows what it encrypts")
        return
    if resource.kind == _GENERIC:
        kind = get(resource.properties, "typeName")
        if isinstance(kind, Unknown):
            yield indeterminate("typeName", f"typeName {kind.reason}")
            return
        given = {"Resources": {"it": {"Type": text(kind), "Properties": given}}}
    yield from _judged(resource, view, path, given)


RULES: Final = (template,)
