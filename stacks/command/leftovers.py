"""What a local stack may leave on the disk when it goes."""

from __future__ import annotations

import shutil
from pathlib import Path

from falaj.engine.folders import data_home
from falaj.stacks.command.console import say
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi


def remove_leftovers(pulumi: Pulumi, stack: StackFile, *, retain: bool) -> None:
    """Remove the stack's folder unless it is retained, and the backend with its last stack."""
    if not retain:
        _remove_site(stack)
    if not pulumi.other_stacks():
        _remove_backend(pulumi, stack)


def _remove_site(stack: StackFile) -> None:
    """The folder of a workspace whose creation was interrupted before it was recorded.

    One with keys in it was kept because the stack retained them when it was last brought up, even
    if its file says otherwise by now.
    """
    if stack.site.exists() and not (stack.site / "keyring").exists():
        shutil.rmtree(stack.site)
    _remove_empty(stack.site.parent)


def _remove_backend(pulumi: Pulumi, stack: StackFile) -> None:
    """The embedded backend and its passphrase, when no stack is left in them."""
    home = data_home()
    if pulumi.environment.get("PULUMI_BACKEND_URL") != (home / "backend").as_uri():
        return
    if "secure:" in stack.path.read_text(encoding="utf-8"):
        say(f"  kept {home / 'passphrase'}: {stack.path.name} holds values encrypted with it")
        return
    shutil.rmtree(home / "backend", ignore_errors=True)
    (home / "passphrase").unlink(missing_ok=True)
    stack.forget_passphrase()
    _remove_empty(home)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
