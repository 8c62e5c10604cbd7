"""What can go wrong in the server, and what a client is told about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from falaj.workloads.errors import WorkloadError


class InferenceError(WorkloadError):
    """The server can't start or can't serve a version; the message says why and what to do."""


class RequestError(Exception):
    """A request that is refused: its HTTP status, a message and extra header lines.

    ``close`` ends the connection after the answer: what follows in the stream can't be
    trusted to be the start of a request any more, or isn't worth reading. ``field`` is the member
    of the request that is wrong, and ``code`` a word for programs, where OpenAI's API has them.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Sequence[bytes] = (),
        close: bool = False,
        field: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)
        self.close = close
        self.field = field
        self.code = code

    def alone(self) -> RequestError:
        """Return the same without frames and causes: they know requests, and who keeps the error
        beside those would keep both until somebody looks for garbage."""
        return RequestError(self.status, self.message, headers=self.headers, close=self.close)

    def body(self, path: bytes = b"") -> bytes:
        """Return the error object: OpenAI's below `OPENAI`, else the Open Inference Protocol's."""
        if not path.startswith(OPENAI):
            return orjson.dumps({"error": self.message})
        kind = _KINDS.get(self.status)
        if kind is None:
            kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return orjson.dumps(
            {
                "error": {
                    "message": self.message, "type": kind, "param": self.field, "code": self.code
                }
            }
        )  # fmt: skip


OPENAI = b"/v1/"
"""What the paths of OpenAI's API begin with."""
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
FAULT = "the server failed on this request"
_RETRY_AFTER = b"Retry-After: "


def retry_after(seconds: int) -> bytes:
    """Return the header line that says when a refused request may be sent again."""
    return b"%b%d" % (_RETRY_AFTER, seconds)


def retry_of(error: RequestError) -> int | None:
    """Return the seconds that `retry_after` was given; None: it isn't worth trying again."""
    for line in error.headers:
        if line.startswith(_RETRY_AFTER):
            return int(line[len(_RETRY_AFTER) :])
    return None


def bad_request(message: str) -> RequestError:
    """Return the refusal of a request whose content is wrong."""
    return RequestError(400, message)


def body_too_large(limit: int) -> RequestError:
    """Return the refusal of a body that is larger than ``limit`` bytes."""
    return RequestError(
        413, f"the body is larger than the {limit} bytes allowed; send fewer rows", close=True
    )


def body_inflates(limit: int) -> RequestError:
    """Return the refusal of a body that stands for more than ``limit`` bytes."""
    return RequestError(
        413,
        f"the body inflates to more than the {limit} bytes allowed; send fewer rows",
        close=True,
    )


def json_of(body: bytes | bytearray) -> Any:
    """Return what a body says in JSON.

    Raises:
        RequestError: 400, it isn't JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the request is not JSON: {error}") from error
