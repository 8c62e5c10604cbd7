"""The server's TLS context: TLS 1.3 and nothing older, client certificates where known."""

from __future__ import annotations

import ssl

from workloads.inference.errors import InferenceError
from workloads.inference.settings import TlsSettings


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for the listening socket.

    A client certificate is asked for when an authority is set, and not demanded: a caller
    without one shows a token. One that the authority didn't sign ends the handshake.

    Raises:
        InferenceError: a file is missing or broken, or the key doesn't fit the certificate.
    """
    for path in (settings.certificate, settings.private_key, settings.client_ca):
        if path is not None and not path.is_file():
            raise InferenceError(f"the TLS file {path} doesn't exist; run `up` to make it anew")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
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
