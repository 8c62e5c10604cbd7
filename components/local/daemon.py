"""A program of the stack's own that a supervisor keeps running."""

import pulumi

from falaj.components.local.arguments.daemon import DaemonArgs
from falaj.components.local.local_provider import LocalComponent


class Daemon(LocalComponent, named={"supervisor": "kept_by"}):
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
        super().__init__(name, {**args}, opts)
