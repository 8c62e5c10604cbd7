"""Platforms that the tests render, judge and compare.

``python -m tests.components.kubernetes.platforms`` writes the golden files anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from falaj.components.kubernetes import platform
from falaj.components.kubernetes._objects import Manifest, key_of, type_of
from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.addon import PlatformSpec
from falaj.components.kubernetes.addons.installation import installations, manifests
from falaj.components.kubernetes.bill_of_materials import images
from falaj.policies.model import Settings, Stack
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.policies.cases import resource_of

GOLDEN = Path(__file__).parent / "golden" / "platform"
DIGESTS = {name: f"sha256:{sha256(name.encode()).hexdigest()}" for name in images()}
KEY = "arn:aws:kms:me-central-1:123456789012:key/0f1e"
PLACES: dict[str, dict[str, Any]] = {
    "eks": {
        "distribution": "eks", "region": "me-central-1", "acknowledge_degraded": "2026-04-30",
        "registry": "123456789012.dkr.ecr.me-central-1.amazonaws.com/falaj",
        "cluster_name": "acme-prod-main", "network_id": "vpc-0123456789abcdef0",
    },
    "aks": {
        "distribution": "aks", "region": "uaenorth", "registry": "registry.acme.example/falaj",
    },
    "existing": {
        "distribution": "existing", "region": "dxb-1",
        "registry": "registry.acme.example/falaj",
    },
}  # fmt: skip
#: What each distribution needs of options; everything else is by default.
ASKED: dict[str, dict[str, Any]] = {
    "eks": {
        "opencost": {"gpu_model": "H200", "cpu": 0.03, "memory_gib": 0.004},
        "velero": {
            "bucket": "acme-backups", "key": KEY,
            "rehearsal": {"namespaces": ["acme-serving"]},
        },
    },
    "aks": {
        "opencost": {"gpu_model": "H200"},
        "external-secrets": {
            "vault_url": "https://acme.vault.azure.net", "client_id": "0a1b-client",
        },
        "velero": {
            "bucket": "backups", "storage_account": "acmebackups", "resource_group": "backups",
            "subscription": "0a1b", "client_id": "0c2d-client", "rehearsal": {},
        },
        "network-operator": True,
    },
    "existing": {
        "opencost": {"gpu": 2.5, "cpu": 0.03, "memory_gib": 0.004},
        "external-secrets": {"vault_url": "https://openbao.acme.example:8200"},
        "gpu-operator": {"driver_packages": "ubuntu-mirror"},
        "velero": {
            "bucket": "backups", "endpoint": "https://s3.acme.example",
            "credentials_secret": "velero-store", "key_secret": "velero-key",
            "rehearsal": {"namespaces": ["acme-serving"], "within_days": 14},
        },
        "network-operator": True,
    },
}  # fmt: skip


#: Receivers of alerts, one of each way.
HOOK: dict[str, Any] = {"webhook": "https://alerts.acme.example/falaj", "cidrs": ["10.9.0.0/24"]}
PAGER: dict[str, Any] = {
    "pagerduty": "https://on-call.acme.example/v2/enqueue", "secret": "on-call",
    "cidrs": ["10.9.0.0/24"],
}  # fmt: skip
MAIL: dict[str, Any] = {
    "email": ["ops@acme.example"], "relay": "mail.acme.example:587",
    "sender": "falaj@acme.example", "user": "falaj", "secret": "mail", "cidrs": ["10.9.1.25/32"],
}  # fmt: skip


def arguments(place: str = "eks", addons: Mapping[str, Any] | None = None, **changes: Any) -> Any:
    """Arguments of a platform; ``addons`` go over those that the place needs."""
    return {
        "tenant": "platform", "owner": "ml@acme.example", "data_class": "restricted",
        "cost_center": "ai-42", "control_plane_cidrs": ["10.0.0.0/20"],
        "endpoint_cidrs": ["10.0.16.0/24"], "images": DIGESTS,
        **PLACES[place], "addons": {**ASKED[place], **(addons or {})}, **changes,
    }  # fmt: skip


def spec(
    place: str = "eks", addons: Mapping[str, Any] | None = None, **changes: Any
) -> PlatformSpec:
    return platform.check("platform", arguments(place, addons, **changes))


def values(of: PlatformSpec) -> dict[str, dict[str, Any]]:
    """Values of every chart, by release."""
    return {chart.release: chart.values for each in installations(of) for chart in each.charts}


def program(of: PlatformSpec, children: Iterable[Manifest] = ()) -> Stack:
    """What is declared: objects, charts, and the charts' objects as far as they are given."""
    found = [*manifests(of), *children]
    resources = [
        {"type": type_of(each), "name": key_of(each), "properties": dict(each)} for each in found
    ]
    for each in installations(of):
        for chart in each.charts:
            inputs = {
                "chart": chart.reference, "version": chart.version, "name": chart.release,
                "namespace": chart.namespace, "values": chart.values,
            }  # fmt: skip
            kind = "kubernetes:helm.sh/v4:Chart"
            resources.append({"type": kind, "name": chart.release, "properties": inputs})
    return Stack(tuple(resource_of(each) for each in resources), name="platform")


def findings(stack: Stack) -> list[tuple[str, str, str]]:
    """Rules that find something, with the resource's name and what was found."""
    settings = Settings(
        allowed_registries=("registry.acme.example",),
        allowed_hosts=(
            "openbao.acme.example",
            "alerts.acme.example",
            "mail.acme.example",
            "s3.acme.example",
            "acmebackups.blob.core.windows.net",
            "acme.vault.azure.net",
        ),
        allowed_sites=("dxb-1",),
    )
    judged = Judge(all_rules(), settings).evaluate_stack(stack)
    return [
        (each.rule.id, each.resource.name if each.resource else "", str(each.findings))
        for each in judged
        if each.findings
    ]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Plain values with their paths."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}[{number}]")
    else:
        yield path, value


def difference(place: str) -> dict[str, Any]:
    """What the place's values have otherwise than those of EKS; None: absent there."""
    base, own = dict(leaves(values(spec("eks")))), dict(leaves(values(spec(place))))
    keys = [*own, *(key for key in base if key not in own)]
    return {key: own.get(key) for key in keys if base.get(key) != own.get(key)}


def golden(place: str) -> str:
    """Values on EKS in full; elsewhere what is different, without registry and region."""
    if place == "eks":
        return yaml.safe_dump(values(spec("eks")), sort_keys=False, width=99)
    found = {
        key: value
        for key, value in difference(place).items()
        if not _is_place(PLACES[place], PLACES["eks"], key, value)
    }
    return yaml.safe_dump(found, sort_keys=False, width=99)


def _is_place(own: Mapping[str, Any], base: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether a value differs by the names of registry and region alone."""
    there = dict(leaves(values(spec("eks")))).get(key)
    if not isinstance(value, str) or not isinstance(there, str):
        return False
    for name in ("registry", "region"):
        there = there.replace(base[name], own[name])
    return value == there


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for each in PLACES:
        (GOLDEN / f"{each}.yaml").write_text(golden(each), encoding="utf-8")
    print(f"{len(ADDONS)} add-ons written to {GOLDEN}")
