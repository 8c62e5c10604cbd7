"""A program of the stack's own that a supervisor keeps running."""

from typing import Any, NotRequired, TypedDict

import pulumi

from falaj.components.local.local_provider import LocalComponent
from falaj.components.specification.described import described


@described
class DaemonArgs(TypedDict):
    """Arguments of `Daemon`."""

    site: pulumi.Input[str]
    """Folder of the site (``Workspace.path``)."""
    name: pulumi.Input[str]
    """Name of the program, one of its own within the site."""
    command: pulumi.Input[list[str]]
    """Absolute executable and arguments; never a secret, as every user of the machine sees
    them; without line breaks."""
    stop_seconds: NotRequired[pulumi.Input[int]]
    """How long it may take to leave after SIGTERM, in seconds. Default: 30."""
    supervisor: NotRequired[pulumi.Input[str]]
    """``auto``, ``systemd`` or ``supervisord``. Default: ``auto``, systemd where the user has it.
"""


class Daemon(LocalComponent):
    """A program of the stack's own that a supervisor keeps running."""

    status: pulumi.Output[str]
    """``running``, or ``stopped``."""
    pid: pulumi.Output[int | None]
    """Process id."""
    supervisor: pulumi.Output[str]
    """``systemd`` or ``supervisord``."""
    log: pulumi.Output[str]
    """File of what it prints, where supervisord keeps it; systemd's journal has it otherwise."""

    def __init__(
        self, name: str, args: DaemonArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        given: dict[str, Any] = {**args}
        super().__init__("Daemon", name, given, ("status", "pid", "kept_by", "log"), opts)
        self.status = self._output("status")
        self.pid = self._output("pid")
        self.supervisor = self._output("kept_by")
        self.log = self._output("log")
        self.register_outputs(
            {
                "status": self.status,
                "pid": self.pid,
                "supervisor": self.supervisor,
                "log": self.log,
            }
        )
