"""A server of the Open Inference Protocol v2 over TLS 1.3, kept running by a supervisor."""

import pulumi

from falaj.components.local.arguments.inference_service import InferenceServiceArgs
from falaj.components.local.local_provider import LocalComponent


class InferenceService(
    LocalComponent, named={"supervisor": "kept_by", "ca_certificate": "client_ca"}
):
    """A server of the Open Inference Protocol v2 over TLS 1.3, kept running by a supervisor."""

    endpoint: pulumi.Output[str]
    """Base URL of the service."""
    port: pulumi.Output[int]
    """Its port."""
    model: pulumi.Output[str]
    """The model."""
    version: pulumi.Output[int]
    """The version that was asked for."""
    served_version: pulumi.Output[int | None]
    """The version that is really served; a rollback changes it."""
    status: pulumi.Output[str]
    """``serving``, or what it is instead."""
    pid: pulumi.Output[int | None]
    """Process id of the server."""
    supervisor: pulumi.Output[str]
    """``systemd`` or ``supervisord``."""
    issuer: pulumi.Output[str]
    """Issuer of access tokens."""
    audience: pulumi.Output[str]
    """Audience of access tokens."""
    ca_certificate: pulumi.Output[str]
    """PEM file of the authority that clients trust."""
    token_key_path: pulumi.Output[str]
    """File of the key that signs access tokens."""
    config_path: pulumi.Output[str]
    """The server's configuration."""

    def __init__(
        self, name: str, args: InferenceServiceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)
