"""The folder that holds everything of a stack, and the ports it will use."""

from typing import Any, NotRequired, TypedDict

import pulumi

from falaj.components.local.local_provider import LocalComponent
from falaj.components.specification.described import described


@described
class WorkspaceArgs(TypedDict):
    """Arguments of `Workspace`."""

    path: str
    """Absolute path of the folder. It is made private (mode 0700)."""
    ports: NotRequired[list[int]]
    """Ports that services will listen on: one that another program holds is refused before any
    work is done. Default: none is looked at."""
    host: NotRequired[str]
    """Address that the ports are looked at on. Default: 127.0.0.1."""
    retain: NotRequired[bool]
    """Keep the folder, with data and keys, when the stack is destroyed. Default: everything is
    removed and keys are shredded."""


class Workspace(LocalComponent):
    """The folder that holds everything of a stack, and the ports it will use."""

    path: pulumi.Output[str]
    """The folder."""

    def __init__(
        self, name: str, args: WorkspaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        outputs = ()
        given: dict[str, Any] = {**args}
        super().__init__("Workspace", name, given, outputs, opts)
        self.path = self._output("path")
        self.register_outputs(
            {
                "path": self.path,
            }
        )
