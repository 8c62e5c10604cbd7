"""The keys of a site: key-encryption keys, the signing key, the key of access tokens."""

import pulumi

from falaj.components.local.arguments.key_ring import KeyRingArgs
from falaj.components.local.local_provider import LocalComponent


class KeyRing(LocalComponent):
    """The keys of a site: key-encryption keys, the signing key, the key of access tokens."""

    path: pulumi.Output[str]
    """Folder of the key ring."""
    primary: pulumi.Output[str]
    """Version of the key that new data keys are wrapped with."""
    versions: pulumi.Output[list[str]]
    """Versions of key-encryption keys that are still there."""
    signing_key_id: pulumi.Output[str]
    """Id of the key that signs packages."""
    token_key_id: pulumi.Output[str]
    """Id of the key that signs access tokens."""
    token_key_path: pulumi.Output[str]
    """File of the key that signs access tokens."""
    jwks_path: pulumi.Output[str]
    """File of the public keys that access tokens are verified with."""

    def __init__(
        self, name: str, args: KeyRingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)
