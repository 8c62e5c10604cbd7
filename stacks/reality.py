"""Keeps the sandbox and real clouds apart: what is for the one is refused in the other."""

from __future__ import annotations

from stacks.errors import SettingsError
from stacks.settings import CloudSettings, SmbSettings
from stacks.settings.smb import PLACEHOLDER_DIGEST


def check_reality(settings: CloudSettings, *, sandboxed: bool) -> None:
    """Refuse a stack that is not meant for where it is about to be deployed.

    Args:
        settings: the stack's settings.
        sandboxed: whether the providers are the sandbox's.

    Raises:
        SettingsError: names the key and what to do.
    """
    if settings.sandbox and not sandboxed:
        raise SettingsError(
            "falaj:sandbox: given true, but this engine would use the real cloud; allowed: the "
            "sandbox\n  run it with `falaj up --sandbox` or in `falaj shell --sandbox`, or remove "
            "the key for a real deployment"
        )
    if sandboxed:
        return
    accepted = settings.acknowledge_degraded
    if accepted is not None and accepted.purpose == "sandbox":
        raise SettingsError(
            f"falaj:acknowledgeDegraded.for: given 'sandbox' for {accepted.region}, but this "
            "would be a real deployment; allowed: deployment\n"
            "  confirm the region's health with the cloud (`falaj preflight` asks it), then set it"
        )
    if isinstance(settings, SmbSettings) and settings.inference.image_digest == PLACEHOLDER_DIGEST:
        raise SettingsError(
            "falaj:inference.imageDigest: given the placeholder of the shipped file, which only "
            "the sandbox takes; allowed: the digest of an image in your registry\n"
            "  push the inference image and set what the registry printed"
        )
