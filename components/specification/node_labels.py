"""Labels and taints of nodes: what a user may add, and how Kubernetes writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falaj.components.specification.argument_errors import ArgumentErrors

#: Prefix of the labels that pools set and that quotas and queues rely on.
PREFIX = "falaj.io/"
POOL = f"{PREFIX}pool"
GPU = f"{PREFIX}gpu"
FLAVOR = f"{PREFIX}flavor"
"""Stable name of what a node offers, for Kueue's resource flavours: unlike
``nvidia.com/gpu.product`` it doesn't change with MIG or sharing."""
CAPACITY = f"{PREFIX}capacity"
FABRIC = f"{PREFIX}fabric"
INT8 = f"{PREFIX}int8"
SYSTEM = f"{PREFIX}system"

#: Each becomes a tag of the scaling group, which takes 50 with the cluster's and Falaj's own:
#: docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-quotas.html
MOST_LABELS = 25
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
_NAME = re.compile(r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
_PREFIX = re.compile(
    r"^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$"
)
#: Prefixes that Kubernetes, the clouds, the GPU operator or Falaj itself write.
_RESERVED = ("kubernetes.io", "k8s.io", "eks.amazonaws.com", "kubernetes.azure.com", "nvidia.com")


@dataclass(frozen=True)
class Taint:
    """Keeps pods away that don't tolerate it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")


def checked_labels(args: Mapping[str, Any], errors: ArgumentErrors) -> dict[str, str]:
    """The labels of the argument ``labels``; those that can't be set are refused."""
    found: dict[str, str] = {}
    if args.get("labels") is None:
        return found
    given = errors.mapping("labels", args["labels"])
    if len(given) > MOST_LABELS:
        errors.add("labels", f"{len(given)} labels", f"at most {MOST_LABELS}")
    for key, value in given.items():
        at = f"labels[{key!r}]"
        if _key_allowed(at, key, errors):
            if value and not _NAME.match(value):
                errors.add(at, value, "at most 63 letters, digits, '-', '_' and '.'")
            else:
                found[key] = value
    return found


def checked_taints(args: Mapping[str, Any], errors: ArgumentErrors) -> tuple[Taint, ...]:
    """The taints of the argument ``taints``, each written ``key=value:Effect``."""
    found: list[Taint] = []
    if args.get("taints") is None:
        return ()
    for position, text in enumerate(errors.texts("taints", args["taints"])):
        at = f"taints[{position}]"
        key_value, colon, effect = text.rpartition(":")
        key, _, value = key_value.partition("=")
        if not colon or effect not in EFFECTS or not key:
            errors.add(at, text, f"key=value:Effect, with Effect one of {', '.join(EFFECTS)}")
        elif value and not _NAME.match(value):
            errors.add(at, text, "a value of at most 63 letters, digits, '-', '_' and '.'")
        elif _key_allowed(at, key, errors):
            found.append(Taint(key, value, effect))
    return tuple(found)


def label_value(text: str) -> str:
    """``text`` as a label's value: lower case, other characters as ``-``, at most 63."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:63].rstrip("-._")


def _key_allowed(at: str, key: str, errors: ArgumentErrors) -> bool:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.match(name) or (slash and not _PREFIX.match(prefix)):
        errors.add(at, key, "a key such as team or example.ae/team, its name at most 63 long")
        return False
    for reserved in (*_RESERVED, PREFIX.rstrip("/")):
        if prefix == reserved or prefix.endswith(f".{reserved}"):
            errors.add(
                at, key, f"any key that doesn't belong to {reserved}",
                "that one is set by the cluster or by Falaj",
            )  # fmt: skip
            return False
    return True
