"""Names of the headers that mean something here, which is why they are kept."""

from __future__ import annotations

from typing import Final

from falaj.workloads.bounds import EXPERIMENT_TAKEN, HEADERS

HEADER_LENGTH: Final = HEADERS["header_length"]
"""Header of a body with binary tensors: how many of its bytes are JSON."""
REQUEST_ID: Final = HEADERS["request_id"].encode()
"""Header that names a request whose body has no id."""
IDEMPOTENCY_KEY: Final = HEADERS["idempotency_key"]
"""Header by which a request for a job that is sent again is known.
https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/"""
MARK: Final = HEADERS["mark"].encode()
"""Header of a request that came from another tier: it isn't passed on again."""
ARM: Final = HEADERS["arm"].encode()
"""Header by which a tester chooses who answers in an experiment."""
KNOWN: Final = frozenset(name.encode() for name in EXPERIMENT_TAKEN) - {ARM}
"""Those that every server keeps."""
