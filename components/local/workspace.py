"""The folder that holds everything of a stack, and the ports it will use."""

import pulumi

from falaj.components.local.arguments.workspace import WorkspaceArgs
from falaj.components.local.local_provider import LocalComponent


class Workspace(LocalComponent):
    """The folder that holds everything of a stack, and the ports it will use."""

    path: pulumi.Output[str]
    """The folder."""

    def __init__(
        self, name: str, args: WorkspaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)
