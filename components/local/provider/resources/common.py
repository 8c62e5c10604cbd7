"""Inputs that several resource types share."""

from __future__ import annotations

from falaj.components.local.provider.fields import Field

SITE = Field("path", "Folder of the stack's site (Workspace.path).", required=True, replaces=True)

#: A DNS label (RFC 1123): it ends up in folder names, URLs and certificate names.
NAME_PATTERN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NAME_HINT = "up to 63 lower-case letters, digits and inner hyphens"

RETAIN = Field(
    "flag",
    "Keep it when it is replaced or destroyed; a later one with the same content adopts it.",
    default=False,
)

KEYRING = Field("path", "Folder of the key ring (KeyRing.path); without it nothing is sealed.")
