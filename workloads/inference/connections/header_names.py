"""Names of the headers that mean something here, which is why they are kept."""

from __future__ import annotations

from typing import Final

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
"""Header of a body with binary tensors: how many of its bytes are JSON."""
REQUEST_ID: Final = b"x-request-id"
"""Header that names a request whose body has no id."""
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
"""Header by which a request for a job that is sent again is known.
https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/"""
MARK: Final = b"falaj-overflowed"
"""Header of a request that came from another tier: it isn't passed on again."""
ARM: Final = b"falaj-arm"
"""Header by which a tester chooses who answers in an experiment."""
KNOWN: Final = frozenset(
    {
        b"authorization", b"content-length", b"content-encoding", b"transfer-encoding", b"expect",
        b"host", HEADER_LENGTH.lower().encode(), REQUEST_ID, MARK,
        IDEMPOTENCY_KEY.lower().encode(),
    }
)  # fmt: skip
"""Those that every server keeps."""
