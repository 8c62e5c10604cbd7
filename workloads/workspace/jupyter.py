"""What Jupyter Server lacks for a workspace: TLS 1.3 alone, and when it was last used."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Any, cast

from jupyter_server.serverapp import ServerApp
from jupyter_server_terminals.terminalmanager import TerminalManager

from falaj.workloads.workspace.idleness import Kernel


def kernel_of(found: Any) -> Kernel:
    """What Jupyter's manager of kernels knows of one."""
    return Kernel(str(found.execution_state), found.last_activity)


class InputTerminals(TerminalManager):
    """Terminals that know when they last had input; what they print is no use."""

    def create(self, **kwargs: Any) -> dict[str, Any]:
        """Make a terminal."""
        model = super().create(**kwargs)
        terminal: Any = self.terminals[model["name"]]
        terminal.last_input = datetime.now(UTC)
        write = terminal.ptyproc.write

        def note(text: str) -> Any:
            terminal.last_input = datetime.now(UTC)
            return write(text)

        terminal.ptyproc.write = note
        return model

    def inputs(self) -> list[datetime]:
        """When each of the terminals last had input."""
        return [getattr(each, "last_input") for each in self.terminals.values()]  # noqa: B009


class WorkspaceServer(ServerApp):
    """The server of a workspace."""

    context: ssl.SSLContext
    _saved: datetime | None = None

    @property
    def config_file_paths(self) -> list[str]:
        """None: neither the folder that it was started in nor the home tells it anything."""
        return []

    def init_httpserver(self) -> None:
        """Take connections by the context, which Jupyter's own settings can't say."""
        super().init_httpserver()
        self.http_server.ssl_options = self.context

    def init_configurables(self) -> None:
        """Also note when documents are saved."""
        super().init_configurables()
        # The class says nothing of what a hook is.
        cast("Any", self.contents_manager).register_post_save_hook(self._note_saved)

    def _note_saved(self, **_: Any) -> None:
        self._saved = datetime.now(UTC)

    def kernels_used(self) -> list[Kernel]:
        """The kernels that are there."""
        manager = self.kernel_manager
        return [kernel_of(manager.get_kernel(each)) for each in manager.list_kernel_ids()]

    def other_uses(self) -> list[datetime]:
        """When terminals had input, and when a document was saved."""
        terminals = self.web_app.settings.get("terminal_manager")
        found = terminals.inputs() if isinstance(terminals, InputTerminals) else []
        return [*found, *([self._saved] if self._saved else [])]
