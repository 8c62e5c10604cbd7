"""``falaj completion``: what makes a shell complete commands, options and names of stacks."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from falaj.stacks.command.console import say

#: The file that each shell reads at its start.
_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/falaj.fish"}


@click.command()
@click.argument("shell", type=click.Choice(list(_FILES)))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print what makes a shell complete commands, options and names of stacks.

    \b
    bash:  falaj completion bash >> ~/.bashrc
    zsh:   falaj completion zsh >> ~/.zshrc
    fish:  falaj completion fish > ~/.config/fish/completions/falaj.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = context.find_root().command
    # The script asks `falaj` itself for each completion, by this variable.
    say(found(root, {}, "falaj", "_FALAJ_COMPLETE").source())
    return 0
