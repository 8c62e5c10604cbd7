"""A server of the Open Inference Protocol v2 over TLS 1.3, kept running by a supervisor."""

from typing import Any

import pulumi

from falaj.components.local.arguments.inference_service import InferenceServiceArgs
from falaj.components.local.local_provider import LocalComponent


class InferenceService(LocalComponent):
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
        outputs = (
            "endpoint",
            "served_version",
            "status",
            "pid",
            "kept_by",
            "token_key_path",
            "config_path",
        )
        given: dict[str, Any] = {**args}
        super().__init__("InferenceService", name, given, outputs, opts)
        self.endpoint = self._output("endpoint")
        self.port = self._output("port")
        self.model = self._output("model")
        self.version = self._output("version")
        self.served_version = self._output("served_version")
        self.status = self._output("status")
        self.pid = self._output("pid")
        self.supervisor = self._output("kept_by")
        self.issuer = self._output("issuer")
        self.audience = self._output("audience")
        self.ca_certificate = self._output("client_ca")
        self.token_key_path = self._output("token_key_path")
        self.config_path = self._output("config_path")
        self.register_outputs(
            {
                "endpoint": self.endpoint,
                "port": self.port,
                "model": self.model,
                "version": self.version,
                "served_version": self.served_version,
                "status": self.status,
                "pid": self.pid,
                "supervisor": self.supervisor,
                "issuer": self.issuer,
                "audience": self.audience,
                "ca_certificate": self.ca_certificate,
                "token_key_path": self.token_key_path,
                "config_path": self.config_path,
            }
        )
