"""Arguments of `KeyRing`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

from falaj.components.specification.described import described
from falaj.components.specification.limits import Between
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed
from falaj.components.specification.principals import checked_principals
from falaj.components.specification.refusals import Refusals

PURPOSES = ("data", "disks", "cluster", "logs", "registry", "state")
ROTATION_DAYS = Between(90, 2560)
DELETION_WINDOW_DAYS = Between(7, 30)


@described
class KeyRingArgs(PlacedArgs):
    """Arguments of `KeyRing`."""

    purposes: NotRequired[list[str]]
    """What keys are for. Default: ``data``, ``disks``, ``cluster``, ``logs``, ``registry``,
    ``state``: a key for each."""
    administrators: NotRequired[list[str]]
    """Principals that manage keys and can't use them: role ARNs, or Entra object ids. Default:
    whoever deploys."""
    rotation_days: NotRequired[int]
    """Days between two versions of a key, 90 to 2560. Default: 365."""
    deletion_window_days: NotRequired[int]
    """Days in which a deleted key can be had back, 7 to 30. Default: 30; 7 outside
    of production."""
    managed_hsm: NotRequired[bool]
    """Keys in a hardware module of one's own. Default: the cloud's shared modules (AWS KMS; Key
    Vault Premium). Azure only."""


@dataclass(frozen=True)
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
    refusals = Refusals(f"KeyRing {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, KeyRingArgs)
    placed = check_placed(cloud, given, refusals)
    purposes = refusals.texts("purposes", given.get("purposes", PURPOSES))
    for position, purpose in enumerate(purposes):
        refusals.choice(f"purposes[{position}]", purpose, PURPOSES)
    if not purposes:
        refusals.add("purposes", [], f"at least one of {', '.join(PURPOSES)}")
    administrators = checked_principals(
        cloud, "administrators", given.get("administrators", []), refusals
    )
    rotation = refusals.within("rotation_days", given.get("rotation_days", 365), ROTATION_DAYS)
    window: object = given.get("deletion_window_days")
    if window is None:
        window = 30 if placed is None or placed.retained else 7
    days = refusals.within("deletion_window_days", window, DELETION_WINDOW_DAYS)
    hsm = refusals.flag("managed_hsm", given.get("managed_hsm", False))
    if hsm and cloud == "aws":
        refusals.say(
            "managed_hsm",
            "given True; AWS KMS keeps keys in shared hardware modules (FIPS 140-3) and offers no "
            "module of one's own here; leave it out, or choose Azure",
        )
    if hsm and cloud == "azure" and "disks" not in purposes:
        refusals.add(
            "purposes",
            list(purposes),
            "purposes with 'disks' among them where managed_hsm is set",
            "disks are encrypted from the vault, which would be empty",
        )
    refusals.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    ordered = tuple(each for each in PURPOSES if each in purposes)
    return KeyRingSpec(placed, ordered, administrators, rotation, days, hsm)
