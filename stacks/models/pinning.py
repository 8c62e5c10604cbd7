"""What a stack's file says of a service's versions, with one put in by its digests.

Aliases aren't resolved while a stack is previewed: a preview would then depend on what a registry
says at that moment, and a review would judge something else than what is deployed. They are
resolved once, into the file, which is reviewed and deployed like any other change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from falaj.components.catalogue.clusters import MODEL_REPOSITORIES
from falaj.stacks.errors import StackError
from falaj.wire.documents import is_dictionary

SECTION: Final = "inferenceServices"
TIER: Final = "inference"
"""The section of a stack that serves one model on machines of a cloud, without a cluster."""


@dataclass(frozen=True)
class Pin:
    """A version, and the share of requests that it is to have."""

    version: int
    package_digest: str
    keys_digest: str
    weight: int
    """Percent."""

    def to_file(self) -> dict[str, Any]:
        """By the keys of a stack's file."""
        return {
            "version": self.version,
            "weight": self.weight,
            "packageDigest": self.package_digest,
            "keysDigest": self.keys_digest,
        }


def service_of(services: Mapping[str, Any], model: str, named: str | None) -> str:
    """The key of the service that serves a model.

    Args:
        services: the stack's section `SECTION`, as its file has it.
        model: name of the model.
        named: the service's key, if somebody said it.

    Raises:
        StackError: there is none, there are several, or it serves something else.
    """
    found = sorted(
        key
        for key, each in services.items()
        if isinstance(each, dict) and cast("dict[str, Any]", each).get("model") == model
    )
    if named is None:
        if len(found) != 1:
            have = ", ".join(found) or "none"
            raise StackError(
                f"falaj:{SECTION}: {len(found)} services have model {model!r} ({have}); name one "
                "with --service"
                if found
                else f"falaj:{SECTION}: no service has model {model!r}; the stack has: "
                f"{', '.join(sorted(services)) or 'none'}"
            )
        named = found[0]
    if named not in found:
        have = ", ".join(found) or "none"
        raise StackError(f"--service: given {named!r}; services with model {model!r}: {have}")
    package = cast("dict[str, Any]", services[named]).get("packageName")
    if package != f"{MODEL_REPOSITORIES}/{model}":
        raise StackError(
            f"falaj:{SECTION}.{named}.packageName: given {package!r}, but packages of {model} are "
            f"sent to {MODEL_REPOSITORIES}/{model}; say so in the stack's file first"
        )
    return named


def require_tier(tier: Mapping[str, Any], model: str, named: str | None) -> None:
    """Make sure that a stack's tier serves a model.

    Args:
        tier: the stack's section `TIER`, as its file has it.
        model: name of the model.
        named: the key of an inference service, if somebody said one.

    Raises:
        StackError: it serves another, or a service was named, of which there are none.
    """
    if named is not None:
        raise StackError(
            f"--service: given {named!r}; falaj:{TIER} is the one service of this stack: leave it "
            "out"
        )
    if tier.get("model") != model:
        raise StackError(
            f"falaj:{TIER}.model: given {tier.get('model')!r}, and the package is of {model!r}; "
            "say so in the stack's file first"
        )


def tier_pinned(pin: Pin) -> dict[str, Any]:
    """What a tier's section says of the version that it serves, by the keys of the file.

    Raises:
        StackError: it would serve a second one beside it.
    """
    if pin.weight != 100:
        raise StackError(
            f"--weight: given {pin.weight}; falaj:{TIER} serves one version, which takes 100"
        )
    return {key: value for key, value in pin.to_file().items() if key != "weight"}


def pinned(versions: Sequence[Any], pin: Pin) -> list[dict[str, Any]]:
    """The versions of a service with one put in.

    With all requests, it is the only one. With fewer, it is a canary: what it doesn't take stays
    with the others, of which the largest gives or gets the difference. What the file says of a
    version besides (its header, say) stays.

    Raises:
        StackError: there is nobody to take the rest, or the largest hasn't so much to give.
    """
    entries = [dict(each) for each in versions if is_dictionary(each)]
    own = next((each for each in entries if each.get("version") == pin.version), None)
    mine = {**(own or {}), **pin.to_file()}
    if pin.weight == 100:
        return [mine]
    others = [each for each in entries if each.get("version") != pin.version]
    if not others:
        raise StackError(
            f"--weight: given {pin.weight}, but no other version would take the rest; the only "
            "version takes 100"
        )
    largest = max(others, key=_weight)
    rest = sum(_weight(each) for each in others if each is not largest)
    left = 100 - pin.weight - rest
    if left < 0:
        raise StackError(
            f"--weight: given {pin.weight}, but versions besides the largest have {rest} already; "
            f"allowed: up to {100 - rest}"
        )
    largest["weight"] = left
    return [mine if each is own else each for each in entries] + ([] if own else [mine])


def _weight(entry: Mapping[str, Any]) -> int:
    given = entry.get("weight")
    return given if isinstance(given, int) else 0
