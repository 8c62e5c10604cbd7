"""Workspace: the folder of a stack, and the ports it is about to use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from falaj.components.local import machine
from falaj.components.local.arguments.workspace import WorkspaceArgs
from falaj.components.local.provider.fields import flag, text
from falaj.components.local.provider.handler import Change, Context, Handler, Site
from falaj.components.local.provider.service import end_leftovers, holds_port
from falaj.wire.values import Values, has_unknown


class WorkspaceHandler(Handler):
    """Makes the site's folder first and removes all that is left in it last."""

    type_name: ClassVar[str] = "Workspace"
    summary: ClassVar[str] = "The folder that holds everything of a stack on this machine."
    arguments: ClassVar[type] = WorkspaceArgs
    outputs: ClassVar[Mapping[str, str]] = {}

    def site_of(self, values: Values) -> Site:
        """The site is the workspace's own folder."""
        return Site(Path(text(values, "path")))

    def drift(self, state: Values) -> dict[str, Change]:
        """A folder that someone has removed is made again."""
        if Path(text(state, "path")).is_dir():
            return {}
        return {"path": Change(is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """Refuses held ports already here, but where plans alone are judged."""
        if not has_unknown(inputs) and not os.environ.get(machine.PLANS_ALONE):
            self._require_ports(inputs, state)
        return dict(inputs)

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Make the folder; one that is already there is adopted."""
        del context
        self._require_ports(inputs, None)
        path = text(inputs, "path")
        machine.make_folder(Path(path))
        return path, dict(inputs)

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when the folder is."""
        return dict(state) if Path(resource_id).is_dir() else None

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Look at new ports, and make the folder again if it is gone."""
        del context
        self._require_ports(inputs, state)
        machine.make_folder(Path(resource_id))
        return dict(inputs)

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """End what an interrupted deployment has left running, then shred and remove."""
        del context
        end_leftovers(Site(Path(resource_id)))
        if not flag(state, "retain"):
            machine.remove_tree(Path(resource_id))

    def _require_ports(self, inputs: Values, state: Values | None) -> None:
        site = self.site_of(inputs)
        host = text(inputs, "host")
        old = _ports(state) if state is not None else []
        for port in _ports(inputs):
            # A service of this site may hold it already: after an update, or an interrupted run.
            if port not in old and not holds_port(site, port):
                machine.require_free_port(host, port)


def _ports(values: Values) -> list[int]:
    found = values.get("ports")
    return (
        [int(port) for port in found if isinstance(port, int)] if isinstance(found, list) else []
    )
