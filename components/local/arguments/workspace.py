"""What `falaj.components.local.Workspace` takes."""

from typing import Annotated, NotRequired, TypedDict

from falaj.components.local.arguments import PATH, REPLACES
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import PORT


@described
class WorkspaceArgs(TypedDict):
    """Arguments of `Workspace`."""

    path: Annotated[str, PATH, REPLACES]
    """Absolute path of the folder. It is made private (mode 0700)."""
    ports: NotRequired[Annotated[list[Annotated[int, PORT]], Default([])]]
    """Ports that services will listen on: one that another program holds is refused before any
    work is done. By default none is looked at."""
    host: NotRequired[Annotated[str, Default("127.0.0.1")]]
    """Address that the ports are looked at on."""
    retain: NotRequired[Annotated[bool, Default(value=False)]]
    """Keep the folder, with data and keys, when the stack is destroyed; else everything is removed
    and keys are shredded."""
