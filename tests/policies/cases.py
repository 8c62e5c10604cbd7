"""The fixtures of rules: resources that must violate, must pass, or can't be decided.

They stand beside the rules as ``<module>.cases.yaml``, one document a rule::

    rule: residency-aws-s3-replication
    violating:
      - case: a copy to a bucket abroad
        type: aws:s3/bucketReplicationConfig:BucketReplicationConfig
        properties: {rules: [{destination: {bucket: "arn:aws:s3:::abroad"}}]}
        at: rules[0].destination.bucket
    passing:
      - case: …

Keys of a case: ``case`` (what it shows), ``type``, ``properties``, and where needed ``name``,
``provider`` (its properties), ``options``, ``settings`` (of the policies), ``at`` (the path that
the finding must name), ``dependencies`` (by property, a list of ``TYPE NAME`` of others),
``outputs``, ``id``, and ``others``: further resources of the stack, with the same keys.
``!unknown`` stands for a value that can't be known during preview. Cases are judged with the
whole stack; one with ``alone: true`` by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from falaj.policies.model.resource import Options, Provider, Resource, Stack
from falaj.policies.model.settings import PolicyError, Settings, read_settings
from falaj.policies.model.values import UNKNOWN

OUTCOMES = ("violating", "passing", "indeterminate")
_KEYS = frozenset(("case", "type", "properties", "name", "provider", "options", "settings", "at"))
_MORE_KEYS = frozenset(("dependencies", "outputs", "id", "others", "alone"))


class _Loader(yaml.CSafeLoader):
    """YAML with ``!unknown``."""


_Loader.add_constructor("!unknown", lambda *_: UNKNOWN)


@dataclass(frozen=True)
class Case:
    """One fixture of a rule."""

    rule: str
    outcome: str
    title: str
    resource: Resource
    stack: Stack | None
    settings: Settings
    at: str | None
    """Path that the finding must name; None where any will do."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.outcome}: {self.title}"


def read_cases(file: Path) -> Iterator[Case]:
    """The cases of a file. Raises PolicyError where the file isn't as the module says."""
    # _Loader is the safe one.
    documents = yaml.load_all(file.read_text(encoding="utf-8"), _Loader)
    for document in documents:
        if not isinstance(document, Mapping) or set(document) - {"rule", *OUTCOMES}:
            raise PolicyError(f"{file.name}: a document needs 'rule' and {', '.join(OUTCOMES)}")
        for outcome in OUTCOMES:
            for case in document.get(outcome) or []:
                if extra := set(case) - _KEYS - _MORE_KEYS:
                    raise PolicyError(f"{file.name}: unknown keys {sorted(extra)} in {case}")
                yield _case(str(document["rule"]), outcome, case)


def _case(rule: str, outcome: str, given: Mapping[str, Any]) -> Case:
    resource = resource_of(given)
    others = [resource_of(each) for each in given.get("others") or []]
    stack = None if given.get("alone") else Stack((resource, *others), name="case")
    settings = read_settings(given.get("settings") or {}, "a case")
    return Case(rule, outcome, str(given["case"]), resource, stack, settings, given.get("at"))


def urn_of(kind: str, name: str) -> str:
    """The URN of a fixture's resource."""
    return f"urn:pulumi:case::falaj::{kind}::{name}"


def resource_of(given: Mapping[str, Any]) -> Resource:
    """A resource as a case writes it."""
    kind = str(given["type"])
    name = str(given.get("name", "it"))
    provider = given.get("provider")
    options = dict(given.get("options") or {})
    return Resource(
        type=kind,
        name=name,
        properties=given.get("properties") or {},
        urn=urn_of(kind, name),
        provider=Provider("pulumi:providers:" + kind.partition(":")[0], provider)
        if isinstance(provider, Mapping)
        else None,
        options=Options(
            protect=bool(options.get("protect")),
            retain_on_delete=bool(options.get("retainOnDelete")),
            ignore_changes=tuple(options.get("ignoreChanges") or ()),
        ),
        dependencies={
            key: tuple(urn_of(*str(each).split(" ", 1)) for each in urns)
            for key, urns in (given.get("dependencies") or {}).items()
        },
        outputs=given.get("outputs") or {},
        id=str(given.get("id", "")),
    )


def put(path: str, value: Any, holder: dict[str, Any]) -> dict[str, Any]:
    """Set what is at a path."""
    here = holder
    *before, last = path.split(".")
    for key in before:
        here = here.setdefault(key, {})
    here[last] = value
    return holder
