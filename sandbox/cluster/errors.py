"""What an API server refuses, in words for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from falaj.engine.errors import EngineError
from falaj.sandbox.errors import PartialError


class ApiError(EngineError):
    """An answer that is no success.

    Attributes:
        status: the HTTP status; 0 where no answer came.
        reason: the API server's word for it, such as ``NotFound`` or ``Invalid``.
        causes: the fields that are to blame, as ``(field, reason, message)``.
    """

    def __init__(self, status: int, reason: str, message: str, details: Any = None) -> None:
        self.status = status
        self.reason = reason
        given = details if isinstance(details, Mapping) else {}
        self.causes = [
            (str(one.get("field", "")), str(one.get("reason", "")), str(one.get("message", "")))
            for one in given.get("causes") or []
            if isinstance(one, Mapping)
        ]
        super().__init__(message)

    @classmethod
    def of(cls, status: int, body: bytes) -> ApiError:
        """The error that an answer's body describes (a ``Status`` object, or plain text)."""
        text = body.decode("utf-8", "replace")
        try:
            found = json.loads(text)
        except ValueError:
            found = {}
        if not isinstance(found, Mapping):
            found = {}
        message = str(found.get("message") or text.strip()[:500] or f"HTTP status {status}")
        return cls(status, str(found.get("reason") or ""), message, found.get("details"))

    @property
    def is_missing(self) -> bool:
        """Whether the object, its namespace or its kind isn't there."""
        return self.status == 404

    @property
    def is_passing(self) -> bool:
        """Whether the same call may succeed in a moment: overload, a webhook that starts.

        The text for webhooks is the API server's own:
        k8s.io/apiserver, pkg/admission/plugin/webhook/errors/statuserror.go.
        """
        if self.status in (0, 429, 503, 504):
            return True
        return self.status == 500 and (
            "failed calling webhook" in str(self) or "failed to call webhook" in str(self)
        )

    @property
    def is_refusal(self) -> bool:
        """Whether the object itself is wrong. A field that its kind doesn't have is told as an
        internal error by the API server, in the words of its apply."""
        wrong = self.status in (400, 422) or "failed to create typed patch object" in str(self)
        return wrong and not self.is_immutable

    @property
    def is_immutable(self) -> bool:
        """Whether a field was changed that never changes."""
        return self.status == 422 and (
            "immutable" in str(self) or "may not change once set" in str(self)
            or "updates to statefulset spec for fields other than" in str(self)
            or "may not be changed" in str(self)
        )  # fmt: skip


class NotReadyError(PartialError):
    """An object was made or changed but didn't become ready in time."""


class CancelledError(EngineError):
    """The engine was told to stop while an object was waited for."""
