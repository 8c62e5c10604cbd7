"""What the replicas of a service report of drift, each of its own rows, as one report.

Each replica judges by itself, so that what one of them says by chance isn't said by most. A part
of the model has drifted where more than half of the replicas that judge it say so: with two, both.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

from falaj.workloads.errors import WorkloadError, printable
from falaj.workloads.rollout.servers import address_of, addresses_of, observing
from falaj.workloads.watching.exchange import ExchangeError, NoAnswerError, Peer
from falaj.workloads.watching.report import (
    MOST_BYTES,
    Report,
    ReportError,
    Row,
    State,
    read_report,
)

_SECONDS: Final = 10.0
_JUDGED: Final = ("ok", "drifted")
CERTIFICATE, PRIVATE_KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
"""Files of who observes, as cert-manager calls them."""


@dataclass(frozen=True)
class Replicas:
    """All replicas of a service, behind one name.

    Attributes:
        model: whose reports are asked for.
        host: a name of DNS that has the addresses of all.
        port: likewise.
        name: what their certificates are for.
        context: whom to trust, and what is shown to them.
    """

    model: str
    host: str
    port: int
    name: str
    context: ssl.SSLContext

    @classmethod
    def of(cls, model: str, servers: str, name: str, observer: Path) -> Replicas:
        """Those that a command line names.

        Args:
            model: its name.
            servers: ``HOST:PORT``.
            name: what their certificates are for.
            observer: folder with the certificate that may observe, its key and the authority.

        Raises:
            WorkloadError: an address or a certificate can't be used.
        """
        return cls(model, *address_of(servers), name, context_of(observer))

    def report(self) -> Report:
        """What they say together.

        Raises:
            NoAnswerError: none of them says anything.
        """
        found: list[Report] = []
        silent: list[str] = []
        for address in self._addresses():
            try:
                found.append(self._report(address))
            except (ExchangeError, ReportError) as error:
                silent.append(f"{address}: {printable(str(error))}")
        if not found:
            raise NoAnswerError(
                f"no replica behind {self.host} reports drift"
                + (f"; {silent[0]}" if silent else ": the name has no address")
            )
        if silent:
            print("; ".join(silent), file=sys.stderr, flush=True)
        return together(found)

    def _addresses(self) -> list[str]:
        try:
            return addresses_of(self.host, self.port)
        except (OSError, UnicodeError):
            return []

    def _report(self, address: str) -> Report:
        peer = Peer(address, self.port, self.name, self.context, _SECONDS, MOST_BYTES)
        path = f"/v2/models/{self.model}/drift"
        status, data, _ = peer.ask("GET", path, {"Host": self.name})
        if status != HTTPStatus.OK:
            raise ExchangeError(f"it answers {path} with status {status}")
        return read_report(data, self.model)


def context_of(observer: Path) -> ssl.SSLContext:
    """What connections to replicas are made with.

    cert-manager renews the files, so that it is made anew for each look by who watches for long.

    Raises:
        WorkloadError: a file can't be used.
    """
    try:
        return observing(observer / AUTHORITY, observer / CERTIFICATE, observer / PRIVATE_KEY)
    except (OSError, ssl.SSLError) as error:
        raise WorkloadError(
            f"--observer: {observer} has no {CERTIFICATE}, {PRIVATE_KEY} and {AUTHORITY} that can "
            f"be used: {error}"
        ) from error


def together(reports: Sequence[Report]) -> Report:
    """What reports of replicas say together, of the version that most of them serve.

    Args:
        reports: one at least, of one model.
    """
    versions = [each.version for each in reports]
    version = max(versions, key=lambda each: (versions.count(each), each))
    of_it = [each for each in reports if each.version == version]
    first, filled = of_it[0], sum(each.filled for each in of_it)
    judging = [each for each in of_it if each.state in _JUDGED]
    if not judging:
        state: State = "collecting"
        if all(each.state == "no reference" for each in of_it):
            state = "no reference"
        return replace(
            first, state=state, since=None, filled=filled, features=(), outputs=(),
            latency="collecting", labels="collecting", outcomes=None,
        )  # fmt: skip
    features = _rows(judging, [each.features for each in judging])
    outputs = _rows(judging, [each.outputs for each in judging])
    labels = _most([each.labels for each in judging])
    drifted = "drifted" in (labels, *(each.state for each in (*features, *outputs)))
    begun = [each.since for each in judging if each.state == "drifted" and each.since is not None]
    return Report(
        model=first.model,
        version=version,
        state="drifted" if drifted else "ok",
        since=min(begun) if drifted and begun else None,
        filled=filled,
        features=features,
        outputs=outputs,
        latency=_most([each.latency for each in judging]),
        labels=labels,
        outcomes=None,
    )


def _most(states: Sequence[str]) -> str:
    """``drifted`` where more than half say so; else the first other one."""
    if 2 * sum(each == "drifted" for each in states) > len(states):
        return "drifted"
    return next((each for each in states if each != "drifted"), "ok")


def _rows(judging: Sequence[Report], listed: Iterable[Sequence[Row]]) -> tuple[Row, ...]:
    """A row for each name, with the figures of the replica with the most rows that says so."""
    by_name: dict[str, list[tuple[int, Row]]] = {}
    for report, rows in zip(judging, listed, strict=True):
        for row in rows:
            by_name.setdefault(row.name, []).append((report.filled, row))
    found: list[Row] = []
    for name, rows in by_name.items():
        state = _most([row.state for _, row in rows])
        saying = [each for each in rows if each[1].state == state] or rows
        _, best = max(saying, key=lambda each: each[0])
        figures = {**best.figures, "replicas": float(len(saying)), "of_replicas": float(len(rows))}
        found.append(Row(name, state, figures))
    return tuple(found)
