"""A program of the stack's own that a supervisor keeps running."""

from typing import Any

import pulumi

from falaj.components.local.arguments.daemon import DaemonArgs
from falaj.components.local.local_provider import LocalComponent


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
