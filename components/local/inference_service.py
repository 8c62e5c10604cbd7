"""A server of the Open Inference Protocol v2 over TLS 1.3, kept running by a supervisor."""

from typing import Annotated, Any, Final, NotRequired, TypedDict

import pulumi

from falaj.components.local.local_provider import LocalComponent
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.workload_bounds import bound

_BODY: Final = bound("service", "max_body_bytes")
_ROWS: Final = bound("service", "max_rows")
_TOKENS: Final = bound("service", "max_tokens")
_DRAIN: Final = bound("service", "drain_seconds")


@described
class InferenceServiceArgs(TypedDict):
    """Arguments of `InferenceService`."""

    site: pulumi.Input[str]
    """Folder of the site (``Workspace.path``)."""
    name: pulumi.Input[str]
    """Name of the service."""
    model: pulumi.Input[str]
    """The model (``ModelPackage.model``)."""
    version: pulumi.Input[int]
    """The version (``ModelPackage.version``); another one is rolled to without a failed request.
"""
    keyring: pulumi.Input[str]
    """Folder of the key ring (``KeyRing.path``)."""
    port: pulumi.Input[int]
    """Port to listen on; another one restarts the server."""
    certificate: pulumi.Input[str]
    """PEM file of the server's certificate."""
    private_key: pulumi.Input[str]
    """PEM file of its private key."""
    client_ca: pulumi.Input[str]
    """PEM file of the authority of client certificates."""
    certificate_fingerprint: pulumi.Input[str]
    """Fingerprint of the certificate: a renewed one is rolled out."""
    issuer: pulumi.Input[str]
    """Issuer of access tokens."""
    audience: pulumi.Input[str]
    """Audience of access tokens."""
    host: NotRequired[pulumi.Input[str]]
    """Address to listen on. Default: 127.0.0.1."""
    workers: NotRequired[pulumi.Input[int]]
    """Worker processes. Default: 1."""
    threads: NotRequired[pulumi.Input[int]]
    """Threads of each worker's runtime. Default: 1."""
    clients: NotRequired[dict[str, list[str]]]
    """What each client certificate may do: scopes (predict, urgent, observe, feedback, admin) by
    common name. Default: certificates grant nothing, tokens are needed."""
    max_body_bytes: NotRequired[Annotated[pulumi.Input[int], _BODY, Default(_BODY.default)]]
    """Largest request body, in bytes; 255 MiB at most with ``grpc``."""
    max_rows: NotRequired[Annotated[pulumi.Input[int], _ROWS, Default(_ROWS.default)]]
    """Most rows in a request."""
    max_tokens: NotRequired[Annotated[pulumi.Input[int], _TOKENS, Default(_TOKENS.default)]]
    """Most tokens that a language model adds to a text of a request."""
    tokens_per_minute: NotRequired[
        Annotated[pulumi.Input[int] | None, bound("service", "tokens_per_minute")]
    ]
    """Most tokens that each caller may have of each worker in a minute, those of its prompts
    and those that a language model adds. Default: no limit."""
    drain_seconds: NotRequired[Annotated[pulumi.Input[int], _DRAIN, Default(_DRAIN.default)]]
    """How long an old version may finish its requests, in seconds."""
    grpc: NotRequired[pulumi.Input[bool]]
    """Answer gRPC on the same port. Default: true."""
    batching: NotRequired[pulumi.Input[bool]]
    """Run requests that wait together, where measuring the model says that it pays. Default:
    false."""
    drift: NotRequired[pulumi.Input[bool]]
    """Whether rows and answers are compared with what the package says. Default: true."""
    drift_window_rows: NotRequired[pulumi.Input[int]]
    """Rows that are judged together. Default: 1,000."""
    drift_window_seconds: NotRequired[pulumi.Input[int]]
    """After how long fewer rows are judged, if there are 200. Default: 3,600."""
    drift_alpha: NotRequired[pulumi.Input[float]]
    """Chance of a false alarm in a window. Default: 0.001."""
    priorities: NotRequired[pulumi.Input[bool]]
    """Requests may say how urgent they are. Default: false."""
    shadow: NotRequired[pulumi.Input[bool]]
    """Give a second version copies of requests, once one was promoted to the alias ``shadow``.
    Default: false."""
    shadow_percent: NotRequired[pulumi.Input[float]]
    """Of the answered requests, how many are copied; with ``shadow`` alone. Default: 10."""
    shadow_first: NotRequired[pulumi.Input[bool]]
    """Have a new version be the shadow, where another one serves, until it is promoted; with
    ``shadow`` alone. Default: false."""
    jobs: NotRequired[pulumi.Input[bool]]
    """Take requests that are answered later. Default: false; what was kept is removed."""
    jobs_keep_hours: NotRequired[pulumi.Input[int]]
    """Hours that answers are kept for; with ``jobs`` alone, as the following. Default: 24."""
    jobs_most: NotRequired[pulumi.Input[int]]
    """Most jobs that are kept. Default: 1,000."""
    jobs_most_bytes: NotRequired[pulumi.Input[int]]
    """Most bytes of their requests and answers. Default: 1 GiB."""
    supervisor: NotRequired[pulumi.Input[str]]
    """``auto``, ``systemd`` or ``supervisord``. Default: ``auto``, systemd where the user has it.
"""


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
