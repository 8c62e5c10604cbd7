"""Arguments of `KeyRing`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from annotated_types import Len

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, OneOf
from falaj.components.specification.placed import (
    Placed,
    PlacedArgs,
    check_placed,
    checked_principals,
)

PURPOSES = ("data", "disks", "cluster", "logs", "registry", "state")
ROTATION_DAYS = Between(90, 2560)
DELETION_WINDOW_DAYS = Between(7, 30)


@described
class KeyRingArgs(PlacedArgs):
    """Arguments of `KeyRing`."""

    purposes: NotRequired[
        Annotated[list[Annotated[str, OneOf(PURPOSES)]], Len(1), Default(PURPOSES)]
    ]
    """What keys are for: a key for each."""
    administrators: NotRequired[list[str]]
    """Principals that manage keys and can't use them: role ARNs, or Entra object ids. Default:
    whoever deploys."""
    rotation_days: NotRequired[Annotated[int, ROTATION_DAYS, Default(365)]]
    """Days between two versions of a key."""
    deletion_window_days: NotRequired[Annotated[int, DELETION_WINDOW_DAYS]]
    """Days in which a deleted key can be had back. Default: the most in production, elsewhere the
    fewest."""
    managed_hsm: NotRequired[Annotated[bool, Default(value=False)]]
    """Keys in a hardware module of one's own, instead of the cloud's shared modules (AWS KMS; Key
    Vault Premium). Azure only."""


@dataclass(frozen=True, kw_only=True)
class KeyRingSpec:
    """The plain arguments of `KeyRing`, checked."""

    placed: Placed
    purposes: tuple[str, ...]
    administrators: tuple[str, ...]
    rotation_days: int
    deletion_window_days: int
    managed_hsm: bool


def check(cloud: str, name: str, args: KeyRingArgs) -> KeyRingSpec:
    """Check what is plain in the arguments of `KeyRing`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"KeyRing {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, KeyRingArgs, cloud)
    placed = check_placed(cloud, given, errors)
    purposes: tuple[str, ...] = checked["purposes"]
    administrators = checked_principals(
        cloud, "administrators", checked["administrators"] or (), errors
    )
    days: int | None = checked["deletion_window_days"]
    if days is None:
        retained = placed is None or placed.retained
        days = int(DELETION_WINDOW_DAYS.high if retained else DELETION_WINDOW_DAYS.low)
    hsm: bool = checked["managed_hsm"]
    if hsm and cloud == "aws":
        errors.say(
            "managed_hsm",
            "given True; AWS KMS keeps keys in shared hardware modules (FIPS 140-3) and offers no "
            "module of one's own here; leave it out, or choose Azure",
        )
    if hsm and cloud == "azure" and "disks" not in purposes:
        errors.add(
            "purposes",
            list(purposes),
            "purposes with 'disks' among them where managed_hsm is set",
            "disks are encrypted from the vault, which would be empty",
        )
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    ordered = tuple(each for each in PURPOSES if each in purposes)
    return KeyRingSpec(
        placed=placed,
        purposes=ordered,
        administrators=administrators,
        rotation_days=checked["rotation_days"],
        deletion_window_days=days,
        managed_hsm=hsm,
    )
