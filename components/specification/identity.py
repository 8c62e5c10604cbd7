"""Arguments of `Identity`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class IdentityArgs(PlacedArgs):
    """Arguments of `Identity`."""

    members: NotRequired[dict[str, list[str]]]
    """Who has which duty: principals (role or user ARNs; object ids of Entra groups) by
    ``provisioner``, ``trainer``, ``deployer``, ``auditor``, ``key-administrator``. Default:
    nobody; nobody may hold two duties that conflict."""
    bucket_ids: pulumi.Input[dict[str, str]]
    """``ObjectStore.bucket_ids``: what trainers, deployers and auditors may read or write."""
    repository_ids: pulumi.Input[dict[str, str]]
    """``Registry.repository_ids``."""
    key_ids: pulumi.Input[dict[str, str]]
    """``KeyRing.key_ids``."""
    require_mfa: NotRequired[bool]
    """Whether people need a second factor. Default: true."""
    session_minutes: NotRequired[int]
    """How long a session lasts, 60 to 720. Default: 60."""
