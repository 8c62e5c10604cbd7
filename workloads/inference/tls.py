"""The server's TLS context: TLS 1.3 and nothing older, client certificates where known."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.settings import TlsSettings


class _Handshakes(ssl.SSLObject):
    """Tells of failed handshakes, which the event loop ends without a word.

    (uvloop reports them in its debug mode only; `SSLContext.sslobject_class` is the standard
    library's own place for a class like this.)
    """

    def do_handshake(self) -> None:
        """Go on with the handshake."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            failed = getattr(self.context, "failed", None)
            if failed is not None:
                failed(_REASONS.get(error.reason or "", error.reason or "unknown reason"))
            raise


class ServerContext(ssl.SSLContext):
    """A server's context; ``failed`` is called with the reason of each failed handshake."""

    failed: Callable[[str], None] | None = None
    sslobject_class = _Handshakes


_REASONS = {
    "HTTP_REQUEST": "plain HTTP on the TLS port (use https://)",
    "UNSUPPORTED_PROTOCOL": "an older TLS than 1.3",
    "CERTIFICATE_VERIFY_FAILED": "a client certificate that the authority didn't sign",
    "WRONG_VERSION_NUMBER": "something else than TLS",
}


def server_context(settings: TlsSettings) -> ServerContext:
    """Return the context for the listening socket.

    A client certificate is asked for when an authority is set, and not demanded: a caller
    without one shows a token. One that the authority didn't sign ends the handshake.

    Raises:
        InferenceError: a file is missing or broken, or the key doesn't fit the certificate.
    """
    for path in (settings.certificate, settings.private_key, settings.client_ca):
        if path is not None and not path.is_file():
            raise InferenceError(f"the TLS file {path} doesn't exist; run `up` to make it anew")
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certificate, settings.private_key)
    except (ssl.SSLError, OSError) as error:
        raise InferenceError(
            f"can't use the certificate {settings.certificate} with the key "
            f"{settings.private_key}: {error}"
        ) from error
    if settings.client_ca is not None:
        try:
            context.load_verify_locations(settings.client_ca)
        except (ssl.SSLError, OSError) as error:
            raise InferenceError(
                f"can't use the client authority {settings.client_ca}: {error}"
            ) from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
