"""Asks a stack's own server for its report on drift, and what it counted of its answers."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.auth import mint
from falaj.workloads.inference.settings import reached_at
from falaj.workloads.rollout.measures import answered_by_status, read
from falaj.workloads.rollout.pairs import Outcomes
from falaj.workloads.watching.exchange import ExchangeError, NoAnswerError, Peer
from falaj.workloads.watching.report import MOST_BYTES, Report, ReportError, read_report

_SECONDS: Final = 15.0
_TOKEN_MINUTES: Final = 2
_HINTS: Final[Mapping[int, str]] = {
    HTTPStatus.NOT_FOUND: "it knows no such model or path: is it older than this command?",
    HTTPStatus.UNAUTHORIZED: "it doesn't take this stack's tokens",
    HTTPStatus.FORBIDDEN: "the scope observe isn't enough for it",
    HTTPStatus.SERVICE_UNAVAILABLE: "it can't now, or has no version of the model that can be "
    "asked; `falaj status` says why",
}
SUBJECT: Final = "falaj-watch"
"""Whom the server's access log names."""


@dataclass(frozen=True)
class Server:
    """The server of a stack on this machine.

    Attributes:
        config: its ``service.json``.
        further: name of a further model that is asked about. Default: the first one is.
    """

    config: Mapping[str, Any]
    further: str | None = None

    @property
    def _model(self) -> str:
        return self.further or str(self.config["model"])

    @property
    def address(self) -> str:
        """Where it is asked, for people."""
        return f"{self._host}:{self.config['port']}"

    @property
    def _host(self) -> str:
        return reached_at(str(self.config["host"]))

    def report(self) -> Report:
        """What it says of drift now.

        Raises:
            NoAnswerError: it can't be asked, has no such report, or answers with something else.
        """
        model = self._model
        data = self._get(f"/v2/models/{model}/drift", MOST_BYTES)
        try:
            return read_report(data, model)
        except ReportError as error:
            raise NoAnswerError(
                f"the server at {self.address} gave no report on drift: {error}"
            ) from None

    def failures(self, version: int) -> Outcomes:
        """Requests of a version since the server started, and those that it failed to answer.

        What callers did wrong counts for neither, nor what a server without room turned away
        (503): more of that comes of more callers, and the version before had fewer.

        Raises:
            NoAnswerError: it can't be asked, or answers with something else.
        """
        data = self._get("/metrics", MOST_BYTES)
        try:
            found = answered_by_status(read(data.decode(), self._model), version)
        except (ValueError, KeyError) as error:
            raise NoAnswerError(
                f"the metrics of the server at {self.address} can't be read: {error}"
            ) from None
        failed = sum(
            count for status, count in found.items()
            if status.startswith("5") and status != str(HTTPStatus.SERVICE_UNAVAILABLE.value)
        )  # fmt: skip
        answered = sum(count for status, count in found.items() if status.startswith("2"))
        return Outcomes(answered + failed, failed)

    def _get(self, path: str, most_bytes: int) -> bytes:
        try:
            peer = Peer(
                self._host, int(self.config["port"]), self._host, self._context(), _SECONDS,
                most_bytes,
            )  # fmt: skip
            status, data, _ = peer.ask("GET", path, {"Authorization": f"Bearer {self._token()}"})
        except ExchangeError as error:
            raise NoAnswerError(f"the server at {self.address} doesn't answer: {error}") from None
        if status == HTTPStatus.OK:
            return data
        what = _HINTS.get(status, "")
        raise NoAnswerError(
            f"the server at {self.address} answers {path} with status {status}"
            + (f": {what}" if what else "")
        )

    def _context(self) -> ssl.SSLContext:
        authority = Path(str(self.config["tls"]["client_ca"]))
        try:
            context = ssl.create_default_context(cafile=str(authority))
        except (OSError, ssl.SSLError) as error:
            raise NoAnswerError(
                f"the stack's authority {authority} can't be read: {error}"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def _token(self) -> str:
        """A fresh one that may look and nothing else."""
        auth = self.config["auth"]
        try:
            return mint(
                Path(str(self.config["keyring"])) / "tokens.pem",
                issuer=str(auth["issuer"]), audience=str(auth["audience"]), subject=SUBJECT,
                scopes=["observe"], minutes=_TOKEN_MINUTES,
            )  # fmt: skip
        except (WorkloadError, OSError) as error:
            raise NoAnswerError(f"no token can be made for the server: {error}") from None
