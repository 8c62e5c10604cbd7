"""A certificate authority (ECDSA P-256) for the site's services and clients."""

from typing import Any, NotRequired, TypedDict

import pulumi

from falaj.components.local.local_provider import LocalComponent
from falaj.components.specification.described import described


@described
class CertificateAuthorityArgs(TypedDict):
    """Arguments of `CertificateAuthority`."""

    site: pulumi.Input[str]
    """Folder of the site (``Workspace.path``)."""
    common_name: NotRequired[pulumi.Input[str]]
    """Its common name. Default: ``Falaj local authority``."""
    days: NotRequired[pulumi.Input[int]]
    """Its life in days; a new one, with a new key, is made on the first ``pulumi up`` after two
    thirds of it. Default: 1825 (five years)."""
    retain: NotRequired[pulumi.Input[bool]]
    """Keep it when the stack is destroyed. Default: the key is shredded."""


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
        outputs = (
            "certificate_path",
            "fingerprint",
            "not_before",
            "not_after",
        )
        given: dict[str, Any] = {**args}
        super().__init__("CertificateAuthority", name, given, outputs, opts)
        self.certificate_path = self._output("certificate_path")
        self.fingerprint = self._output("fingerprint")
        self.not_before = self._output("not_before")
        self.not_after = self._output("not_after")
        self.register_outputs(
            {
                "certificate_path": self.certificate_path,
                "fingerprint": self.fingerprint,
                "not_before": self.not_before,
                "not_after": self.not_after,
            }
        )
