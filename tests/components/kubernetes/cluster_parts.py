"""Arguments of a cluster's own components for the tests, what rules find in them, golden files."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from falaj.components.kubernetes._objects import Manifest, key_of, type_of
from falaj.policies.model import Settings, Stack
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.policies.cases import resource_of

GOLDEN = Path(__file__).parent / "golden"
REGISTRY = "registry.acme.example/falaj"
SITE = "dxb-1"
COMMON: dict[str, Any] = {
    "registry": REGISTRY,
    "tenant": "acme",
    "owner": "ml@acme.example",
    "data_class": "confidential",
    "cost_center": "ml",
}
PLACES: dict[str, dict[str, Any]] = {
    "existing": {"distribution": "existing", "region": SITE},
    "eks": {
        "distribution": "eks", "region": "me-central-1", "acknowledge_degraded": "2026-04-30",
    },
    "aks": {"distribution": "aks", "region": "uaenorth"},
}  # fmt: skip


def refusal(check: Callable[[str, Any], object], arguments: dict[str, Any]) -> str:
    """What a component says of arguments that it refuses."""
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check("one", arguments)
    return str(refused.value)


def findings(manifests: Sequence[Manifest]) -> list[str]:
    """What the rules of all packs find in a program of these objects."""
    stack = Stack(
        tuple(
            resource_of({"type": type_of(each), "name": key_of(each), "properties": dict(each)})
            for each in manifests
        ),
        name="plain",
    )
    settings = Settings(
        allowed_registries=("registry.acme.example",),
        allowed_sites=(SITE,),
        # Where the gateway's users log in: it asks there for keys and tokens.
        allowed_hosts=("login.acme.example",),
    )
    judged = Judge(all_rules(), settings).evaluate_stack(stack)
    return [f"{each.rule.id}: {each.resource} {each.findings}" for each in judged if each.findings]


def by_key(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Objects by ``Kind/namespace/name``; none is there twice."""
    found = {key_of(each): dict(each) for each in manifests}
    assert len(found) == len(manifests)
    return found


def shown(manifests: Sequence[Manifest], common: Sequence[str] = ()) -> str:
    """Objects to read: without the labels and annotations that all have."""
    return yaml.dump_all(
        [_short(each, common) for each in manifests],
        Dumper=_Readable, sort_keys=False, width=99, default_flow_style=None,
    )  # fmt: skip


def difference(one: str, other: str) -> str:
    """Lines that differ, without where they are."""
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), n=0, lineterm="")
    return "".join(f"{each}\n" for each in lines if not each.startswith(("---", "+++", "@@")))


def same_as_golden(name: str, text: str) -> None:
    """Compare with a reviewed file of ``golden/``."""
    path = GOLDEN / name
    assert path.exists(), f"review and keep this as {path}:\n{text}"
    assert text == path.read_text(encoding="utf-8")


_EVERYWHERE = frozenset({
    "app.kubernetes.io/managed-by", "falaj.io/tenant", "falaj.io/component",
    "falaj.io/data-class", "falaj.io/cost-center", "falaj.io/environment", "falaj.io/owner",
})  # fmt: skip


def _short(manifest: Manifest, common: Sequence[str]) -> dict[str, Any]:
    about = dict(manifest["metadata"])
    for part in ("labels", "annotations"):
        left = {key: value for key, value in about.pop(part).items() if key not in _EVERYWHERE}
        if left:
            about[part] = left
    return {**{key: each for key, each in manifest.items() if key not in common},
            "metadata": about}  # fmt: skip


class _Readable(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
