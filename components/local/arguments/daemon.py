"""What `falaj.components.local.Daemon` takes."""

from typing import Annotated, Final, NotRequired

from falaj.components.local.arguments import NAME, REPLACES, SupervisedArgs
from falaj.components.specification.arguments import Default, Input
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between

_STOP_SECONDS: Final = Between(1, 3_600)


@described
class DaemonArgs(SupervisedArgs):
    """Arguments of `Daemon`."""

    name: Annotated[Input[str], NAME, REPLACES]
    """Name of the program, one of its own within the site."""
    command: Input[list[str]]
    """Absolute executable and arguments; never a secret, as every user of the machine sees
    them; without line breaks."""
    stop_seconds: NotRequired[Annotated[Input[int], _STOP_SECONDS, Default(30)]]
    """How long it may take to leave after SIGTERM, in seconds."""
