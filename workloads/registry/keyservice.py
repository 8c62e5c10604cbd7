"""What protects data keys: wrapped keys, and the service that wraps and unwraps them."""

from __future__ import annotations

import base64
import binascii
import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from falaj.workloads.errors import IntegrityError

KEY_BYTES = 32
"""AES-256, for key-encryption keys and data keys alike."""


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key, encrypted under the key-encryption key ``key_id``.

    ``ciphertext`` is opaque: what the key service needs to unwrap it.
    """

    key_id: str
    ciphertext: bytes

    def to_json(self) -> dict[str, str]:
        """Return ``{"key_id", "ciphertext"}``, the latter in base64."""
        encoded = base64.b64encode(self.ciphertext).decode()
        return {"key_id": self.key_id, "ciphertext": encoded}

    @classmethod
    def from_json(cls, value: object, what: str) -> WrappedKey:
        """Read back :meth:`to_json`; ``what`` names the place in errors.

        Raises:
            IntegrityError: not such a value.
        """
        match value:
            case {"key_id": str(version), "ciphertext": str(text), **rest} if not rest:
                with contextlib.suppress(binascii.Error, ValueError):
                    return cls(version, base64.b64decode(text, validate=True))
            case _:
                pass
        raise IntegrityError(f"the wrapped key of {what} is malformed: it was changed")


class KeyService(Protocol):
    """What wraps data keys: the key ring here, a cloud's key management service elsewhere."""

    @property
    def primary(self) -> str:
        """The id of the key that new data keys are wrapped under."""
        ...

    def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Encrypt a data key; the same ``context`` must be shown to unwrap it."""
        ...

    def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Return the data key, or raise :class:`IntegrityError`."""
        ...

    def steady(self) -> AbstractContextManager[None]:
        """Hold off the end of a rotation, so that no key is retired while the block runs."""
        ...
