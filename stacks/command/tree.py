"""The tree of commands: what each is called, a line about it, and where it is.

A command's module is loaded when the command runs, or when its own ``--help`` is asked for: the
table below is all that ``falaj --help`` needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from falaj import __version__


@dataclass(frozen=True)
class Entry:
    """A command that isn't loaded yet."""

    where: str
    """``module:attribute`` below `falaj`."""
    text: str
    """What it does, in a line."""

    def load(self) -> click.Command:
        """The command itself."""
        module, _, attribute = self.where.partition(":")
        found: click.Command = getattr(importlib.import_module(f"falaj.{module}"), attribute)
        found.short_help = self.text
        return found


#: Commands by the group in which ``falaj --help`` lists them.
COMMANDS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "The life of a stack": {
        "new": Entry(
            "stacks.command.life:new",
            "make a stack's file, or a project, from a template",
        ),
        "preview": Entry(
            "stacks.command.life:preview",
            "show what `up` would change, what it costs and what breaks a rule",
        ),
        "draw": Entry(
            "stacks.command.draw:draw",
            "draw a stack: where things are, what may talk to what, which key encrypts what",
        ),
        "up": Entry(
            "stacks.command.life:up",
            "bring a stack to what its file says",
        ),
        "refresh": Entry(
            "stacks.command.life:refresh",
            "read what is really there, so that the next `up` mends drift",
        ),
        "down": Entry(
            "stacks.command.life:down",
            "destroy everything of a stack (what it retains stays)",
        ),
        "shell": Entry(
            "stacks.command.life:shell",
            "open a shell in which plain `pulumi` commands work",
        ),
        "status": Entry(
            "stacks.command.served:status",
            "show what runs and where",
        ),
    },
    "A served model": {
        "demo": Entry(
            "stacks.command.served:demo",
            "send held-out samples to the served model",
        ),
        "open": Entry(
            "stacks.command.page:open_page",
            "open a page in the browser: try the served model, its versions, live figures",
        ),
        "predict": Entry(
            "stacks.command.predict:predict",
            "predict the rows of files by the stack's model, sealed and resumable",
        ),
        "features": Entry(
            "stacks.command.features:features",
            "give the rows of a file what feature tables knew by their time",
        ),
        "unseal": Entry(
            "stacks.command.predict:unseal",
            "write sealed predictions out in plain",
        ),
        "token": Entry(
            "stacks.command.served:token",
            "print an authorisation header for the served model",
        ),
        "rollback": Entry(
            "stacks.command.served:rollback",
            "serve the model's previous version again",
        ),
        "shadow": Entry(
            "stacks.command.shadow:shadow",
            "give a second version copies of requests, and compare",
        ),
        "experiment": Entry(
            "stacks.command.experiment:experiment",
            "have a second version answer a share of the requests, and count both",
        ),
        "watch": Entry(
            "stacks.command.watch:watch",
            "look at the served models' drift, and tell, roll back or retrain",
        ),
        "publish": Entry(
            "stacks.command.publish:publish",
            "send the served version to a registry of the country, for a cluster to serve",
        ),
        "sweep": Entry(
            "stacks.command.sweep:sweep",
            "try training parameters of a stack of this machine, and take the best",
        ),
        "runs": Entry(
            "stacks.command.runs:runs",
            "see what was trained on this machine, and compare",
        ),
        "logs": Entry(
            "stacks.command.served:logs",
            "show the latest log lines of the server, or of a stack's pods",
        ),
    },
    "Settings": {
        "settings": Entry(
            "stacks.command.reference:settings",
            "describe the keys of a stack's file: what is allowed, and the defaults",
        ),
        "config": Entry(
            "stacks.command.config:config",
            "show or change keys of a stack's file; its comments stay",
        ),
        "catalogue": Entry(
            "components.catalogue.__main__:catalogue",
            "what the clouds sell inside the country",
        ),
        "preflight": Entry(
            "stacks.command.preflight:preflight",
            "ask the real cloud whether a stack could be deployed; changes nothing",
        ),
    },
    "Policies": {
        "check": Entry(
            "stacks.command.check:check",
            "judge stacks by the policy packs: previewed in the sandbox, exported, or live",
        ),
        "report": Entry(
            "stacks.command.check:report",
            "write the evidence of a check: one HTML file, by control",
        ),
        "policies": Entry(
            "stacks.command.policies:policies",
            "list the rules, the types they know, and where the packs are",
        ),
    },
    "Clusters and the sandbox": {
        "cluster": Entry(
            "stacks.command.cluster:cluster",
            "a Kubernetes control plane on this machine, with simulated machines",
        ),
        "images": Entry(
            "stacks.command.images:images",
            "list, pin, mirror and build what clusters run",
        ),
        "pipelines": Entry(
            "stacks.command.pipelines:pipelines",
            "see what trains a model again and again in a cluster, and start a run of it",
        ),
        "models": Entry(
            "stacks.command.models:models",
            "send sealed packages to registries, copy them between two, verify and fetch them",
        ),
        "sandbox": Entry(
            "sandbox.__main__:sandbox",
            "look at the sandbox's cloud, change it, make it fail",
        ),
    },
    "This installation": {
        "engine": Entry(
            "stacks.command.engine:engine",
            "the Pulumi engine that is used, and what it needs",
        ),
        "completion": Entry(
            "stacks.command.completion:completion",
            "print what makes a shell complete commands and names",
        ),
    },
}
_ENTRIES: Final[Mapping[str, Entry]] = {
    name: entry for group in COMMANDS.values() for name, entry in group.items()
}


class Tree(click.Group):
    """The commands of the table, loaded one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(_ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded."""
        entry = _ENTRIES.get(cmd_name)
        return entry.load() if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, whose hints would come from loaded commands alone."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table; nothing is loaded for it."""
        longest = max(map(len, _ENTRIES))
        for title, entries in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(longest), entry.text) for name, entry in entries.items()]
                )


@click.command(
    cls=Tree,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="falaj COMMAND --help tells more of each. The documentation: README.md and docs.",
)
@click.version_option(__version__, message="falaj %(version)s")
def falaj(**options: Any) -> None:
    """Falaj: AI infrastructure that stays in the United Arab Emirates."""
    del options
