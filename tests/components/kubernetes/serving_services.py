"""Arguments and manifests of inference services for tests."""

from __future__ import annotations

from typing import Any, cast

from falaj.components.kubernetes._objects import Manifest, key_of
from falaj.components.kubernetes.inference_service import InferenceServiceArgs, check, manifests

DIGEST = f"sha256:{'1' * 64}"
OTHER = f"sha256:{'2' * 64}"
KEYS = f"sha256:{'3' * 64}"
COMMON: dict[str, Any] = {
    "registry": "registry.acme.example/falaj",
    "tenant": "acme",
    "owner": "ml@acme.example",
    "data_class": "confidential",
    "cost_center": "ai-42",
    "images": {"falaj-inference": DIGEST, "triton": DIGEST, "vllm": DIGEST},
    "model": "credit-risk",
    "package_name": "models/credit-risk",
    "versions": [
        {"version": 7, "weight": 90, "package_digest": DIGEST, "keys_digest": KEYS},
        {
            "version": 8,
            "weight": 10,
            "package_digest": OTHER,
            "keys_digest": KEYS,
            "header": "next",
        },
    ],
    "key_secret": "acme/model-keys",
    "token_issuer": "falaj:acme",
    "callers": [{"namespace": "acme-apps", "service_account": "scoring"}],
}
PLACES: dict[str, dict[str, Any]] = {
    "eks": {
        "distribution": "eks",
        "region": "me-central-1",
        "acknowledge_degraded": "2026-04-30",
        "registry": "123456789012.dkr.ecr.me-central-1.amazonaws.com/falaj",
    },
    "aks": {
        "distribution": "aks",
        "key_secret": "acme--model-keys",
        "region": "uaenorth",
        "registry": "acmeuaenorth.azurecr.io/falaj",
    },
    "existing": {"distribution": "existing", "region": "abu-dhabi-1"},
}
GPU: dict[str, Any] = {"tier": "gpu", "flavor": "l4", "overflow_from": "credit-risk"}
TEXTS: dict[str, Any] = {
    "kind": "language", "tier": "gpu", "flavor": "l4", "host_names": ["texts.acme.example"],
}  # fmt: skip
"""A language model on GPUs."""
OVERFLOW: dict[str, Any] = {"to": "credit-risk-gpu", "version": 7, "above_ms": 50}


def arguments(place: str = "existing", **changes: Any) -> dict[str, Any]:
    """Arguments; those of ``changes`` that are None are left out."""
    given = {**COMMON, **PLACES[place], **changes}
    return {key: value for key, value in given.items() if value is not None}


def service(name: str = "credit-risk", place: str = "existing", **changes: Any) -> list[Manifest]:
    """The objects of an inference service."""
    return manifests(check(name, cast("InferenceServiceArgs", arguments(place, **changes))))


def by_key(listed: list[Manifest]) -> dict[str, Manifest]:
    """Objects by ``Kind/name``."""
    found = {key_of(each).replace("/acme-serving/", "/"): each for each in listed}
    assert len(found) == len(listed)
    return found


def pod_of(listed: list[Manifest], name: str) -> dict[str, Any]:
    """The specification of a Deployment's pods."""
    return by_key(listed)[f"Deployment/{name}"]["spec"]["template"]["spec"]
