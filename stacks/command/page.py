"""``falaj open``: a page in the browser for the model that this machine serves."""

from __future__ import annotations

from pathlib import Path

import click

from falaj.stacks.command import project as projects
from falaj.stacks.command import service
from falaj.stacks.command.options import model_option, stack_option, the_stack
from falaj.stacks.errors import StackError


@click.command("open")
@stack_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    show_default="a free one",
    help="The page's port on 127.0.0.1.",
)
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@model_option("Which of the server's models is shown first")
def open_page(
    *, stack: str | None, project: Path | None, port: int, no_browser: bool, model: str | None
) -> int:
    """Open a page in the browser: try the model, see its versions, go back, watch it live.

    The page is for one browser on this machine, runs as long as the command, and fetches nothing
    from elsewhere. It asks the server in the operator's name; keys and tokens stay here.
    """
    found = the_stack(stack, project)
    if found.is_in_cloud:
        raise StackError(
            f"stack {found.name} isn't of this machine; allowed: a stack of the platform local\n"
            f"  what a stack elsewhere does says: {projects.falaj('status', found)}"
        )
    service.config_of(service.require_config(found), model)
    from falaj.stacks.page import serving  # noqa: PLC0415 - of the extra `local`

    return serving.serve(found, port, browser=not no_browser, model=model)
