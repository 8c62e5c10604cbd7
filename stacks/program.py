"""Runs a stack: its settings, its place, its blueprint. Programs of templates call `main`."""

from __future__ import annotations

from pathlib import Path

import pulumi
from pydantic.alias_generators import to_camel

from engine.errors import EngineError
from engine.sandbox import activation
from stacks.blueprints import cluster, foundation, local, smb
from stacks.blueprints.cloud import open_cloud
from stacks.errors import StackError
from stacks.placement import choose
from stacks.reality import check_reality, made_up
from stacks.rehearsal import rehearse
from stacks.settings import CloudSettings, ClusterSettings, LocalSettings, SmbSettings, load_engine
from stacks.settings.foundation import OwnFoundation


def main(root: Path | None = None) -> None:
    """Declare the stack's resources.

    Args:
        root: folder where relative paths of the settings start. Default: the project's folder.

    Raises:
        pulumi.RunError: the configuration was refused; no resource was registered.
    """
    folder = root or Path(__file__).resolve().parents[1]
    try:
        settings = load_engine(pulumi.get_stack(), folder)
        if isinstance(settings, LocalSettings):
            local.declare(settings, folder)
        else:
            activation.check()
            declare_in_cloud(settings, sandboxed=activation.is_asked())
    except (StackError, EngineError, pulumi.InputPropertiesError) as error:
        raise pulumi.RunError(str(error)) from None


def declare_in_cloud(settings: CloudSettings, *, sandboxed: bool) -> None:
    """Declare a stack in the first of its places that fits.

    Args:
        settings: the stack's settings.
        sandboxed: whether the providers are the sandbox's.

    Raises:
        StackError: the stack isn't meant for this, or no place sells what it asks for.
        pulumi.InputPropertiesError: a component refused its arguments.
    """
    check_reality(settings, sandboxed=sandboxed)
    choice = choose(settings)
    for reason in choice.reasons:
        pulumi.log.info(reason)
    stand_ins = made_up(settings, choice.place.cloud) if sandboxed else {}
    rehearse(settings, choice.place, stand_ins)
    cloud = open_cloud(settings, choice.place)
    pulumi.export("place", choice.place.name)
    pulumi.export("sandbox", sandboxed)
    if isinstance(settings, ClusterSettings):
        cluster.declare(settings, cloud)
    elif isinstance(settings, SmbSettings):
        for name in stand_ins:
            pulumi.log.warn(f"SANDBOX: falaj:inference.{to_camel(name)} is missing; made up here")
        smb.declare(settings, cloud, stand_ins)
    elif isinstance(settings, OwnFoundation):
        foundation.declare(settings, cloud)
