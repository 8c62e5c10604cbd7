"""The certificate authority of a site (ECDSA P-256), and the certificates that it signs."""

import pulumi

from falaj.components.local.arguments.certificates import CertificateArgs, CertificateAuthorityArgs
from falaj.components.local.local_provider import LocalComponent


class CertificateAuthority(LocalComponent):
    """A certificate authority (ECDSA P-256) for the site's services and clients."""

    certificate_path: pulumi.Output[str]
    """PEM file of the certificate, which clients trust."""
    fingerprint: pulumi.Output[str]
    """SHA-256 of the certificate, in hexadecimal."""
    not_before: pulumi.Output[str]
    """Begin of its life (ISO 8601)."""
    not_after: pulumi.Output[str]
    """End of its life (ISO 8601)."""

    def __init__(
        self, name: str, args: CertificateAuthorityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)


class Certificate(LocalComponent):
    """A leaf certificate of a server or a client, signed by the site's authority."""

    certificate_path: pulumi.Output[str]
    """PEM file of the certificate."""
    private_key_path: pulumi.Output[str]
    """PEM file of the private key, mode 0600."""
    fingerprint: pulumi.Output[str]
    """SHA-256 of the certificate, in hexadecimal."""
    common_name: pulumi.Output[str]
    """Its common name."""
    not_before: pulumi.Output[str]
    """Begin of its life (ISO 8601)."""
    not_after: pulumi.Output[str]
    """End of its life (ISO 8601)."""

    def __init__(
        self, name: str, args: CertificateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)
