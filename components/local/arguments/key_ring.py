"""What `falaj.components.local.KeyRing` takes."""

from typing import Annotated, Final, NotRequired

from falaj.components.local.arguments import SiteArgs
from falaj.components.specification.arguments import Default, Input
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between

_ROTATION: Final = Between(0, 1_000_000)


@described
class KeyRingArgs(SiteArgs):
    """Arguments of `KeyRing`."""

    rotation: NotRequired[Annotated[Input[int], _ROTATION, Default(0)]]
    """Raise it by one for new keys: everything is wrapped again and the old keys are shredded.
    Packages that they signed go on, and tokens for a day. It can't be lowered."""
    retain: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Keep the keys when the stack is destroyed; else they are shredded."""
