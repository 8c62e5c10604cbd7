"""``judge``: looks at two versions' servers for a time, then moves one signed alias.

It asks the servers themselves, with the certificate that Prometheus shows them: what Prometheus
keeps is every tenant's. It changes nothing in the cluster, and has no right to: the aliases say
what is to be served, and the stack that names them serves it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.workloads.bounds import REGISTRY, ROLLOUT
from falaj.workloads.errors import LOST, REFUSED, RegistryError, WorkloadError
from falaj.workloads.registry.aliases import NothingSeen, Signer, newest, promote, resolve
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.reaching import add_options, shelf_at
from falaj.workloads.registry.shelf import Client, Shelf
from falaj.workloads.registry.store import PRODUCTION
from falaj.workloads.rollout.measures import Tally, read
from falaj.workloads.rollout.options import add_bounded, require_bounded
from falaj.workloads.rollout.servers import address_of, addresses_of, observing
from falaj.workloads.rollout.verdict import Demands, Verdict, is_enough, judge, surely_fails

_DESCRIPTION = """\
Compare a canary with the stable version, and let an alias say which of them is to be served, or
with --next-share that a canary that passed may have more requests.

Exit codes: 0 an alias says so; 2 refused, the reason is on stderr (too few requests in time, or
the aliases stand for other versions); 74 a registry couldn't be asked, try again; 1 an error in
the program."""
_EVERY_SECONDS: Final = 15.0
"""Between looks: as Prometheus has it."""
_PATIENCE_SECONDS: Final = 10.0
_MOST_BYTES: Final = 16 << 20


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m falaj.workloads.rollout``."""
    top = argparse.ArgumentParser(
        prog="python -m falaj.workloads.rollout",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("judge", help="compare two versions, then move an alias")
    one.add_argument("--model", required=True, help="the model's name")
    one.add_argument("--stable", type=int, required=True, help="the version that is served")
    one.add_argument("--canary", type=int, required=True, help="the version that is tried")
    one.add_argument(
        "--stable-alias", default=PRODUCTION, help="that stands for it; default: %(default)s"
    )
    one.add_argument("--canary-alias", required=True, help="that stands for it")
    one.add_argument(
        "--servers", required=True, metavar="HOST:PORT",
        help="a name of DNS that has the addresses of all servers of both versions",
    )  # fmt: skip
    one.add_argument(
        "--server-name", required=True, metavar="HOST", help="what their certificates are for"
    )
    for name, what in (
        ("certificate", "the certificate that may observe, PEM"),
        ("private-key", "its key, PEM"),
        ("authority", "certificates of who signed the servers', PEM"),
    ):
        one.add_argument(f"--{name}", type=Path, required=True, metavar="FILE", help=what)
    one.add_argument(
        "--keyring", type=Path, required=True, metavar="DIR", help="the key ring, which signs"
    )
    one.add_argument(
        "--next-share", type=int, metavar="PERCENT",
        help="requests that a canary that passes may have next, to be judged with them: "
        f"{REGISTRY['share'].description}; default: it takes over",
    )  # fmt: skip
    add_options(one)
    add_bounded(one, ROLLOUT, {
        "window_minutes": "how long both are looked at, at least",
        "deadline_hours": "after so long with too few requests it gives up",
        "least_requests": "that each of both has to have had",
        "most_error_rise": "percentage points by which more requests may fail",
        "most_latency_rise": "per cent by which 99 of 100 answers may take longer",
        "least_likeness": "per cent of the answers that have to be spread alike; 0: any",
    })  # fmt: skip
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code; a person's mistake never shows a trace."""
    options = parser().parse_args(arguments)
    try:
        print(json.dumps(run(options), ensure_ascii=False), flush=True)
    except RegistryError as error:
        print(f"error: {error}", file=sys.stderr)
        return LOST
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    return 0


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Judge, move an alias, and return what was done.

    Raises:
        RegistryError: the registry can't be asked or refused.
        WorkloadError: an option, too few requests in time, or aliases that stand for others.
    """
    require_bounded(options, ROLLOUT)
    if options.next_share is not None:
        require_bounded(options, {"next_share": REGISTRY["share"]})
    if options.window_minutes > options.deadline_hours * 60:
        raise WorkloadError(
            f"--window-minutes: given {options.window_minutes:g}, and --deadline-hours "
            f"{options.deadline_hours:g}; the window has to end before"
        )
    if options.stable == options.canary:
        raise WorkloadError(f"--canary: given {options.canary}, which is --stable as well")
    signer = Signer(KeyRing.open(options.keyring), NothingSeen(), options.days)
    aliases = Aliases(
        shelf_at(options.to, options.login), options.model,
        (options.stable, options.canary), (options.stable_alias, options.canary_alias), signer,
        options.next_share or 0,
    )  # fmt: skip
    if (done := aliases.settled()) is not None:
        return done
    demands = Demands(
        options.least_requests, options.most_error_rise, options.most_latency_rise,
        options.least_likeness,
    )  # fmt: skip
    verdict = watch(
        Servers.of(options).texts, (options.stable, options.canary), demands,
        window=options.window_minutes * 60, deadline=options.deadline_hours * 3600,
    )  # fmt: skip
    return aliases.settled() or aliases.move(verdict)


@dataclass(frozen=True)
class Aliases:
    """The aliases of a model's stable version and of its canary."""

    shelf: Shelf[Client]
    model: str
    versions: tuple[int, int]
    """Stable, and canary."""
    names: tuple[str, str]
    signer: Signer
    next_share: int
    """Percent of the requests that a canary that passes may have next; 0: it takes over."""

    def settled(self) -> dict[str, Any] | None:
        """What was decided before, by this or by somebody; None: the canary is to be judged.

        Raises:
            WorkloadError: the aliases stand for other versions than those that are served.
        """
        key, seen = self.signer.keyring.verify_key(), self.signer.seen
        stable = self._stable(self.names[0])
        tried = resolve(self.shelf, self.model, self.names[1], key, seen).record
        now = stable, tried.version
        if now == self.versions:
            raised = self.next_share and tried.share >= self.next_share
            return self._raised("decided before") if raised else None
        if now[0] == now[1] and now[0] in self.versions:
            return self._answer(now[0], "decided before")
        raise WorkloadError(
            f"{self.names[0]} and {self.names[1]} of {self.model} stand for versions {now[0]} and "
            f"{now[1]}, and {self.versions[0]} and {self.versions[1]} are served: bring the "
            "stack up, which serves what they stand for and judges anew"
        )

    def _stable(self, name: str) -> int:
        key, seen = self.signer.keyring.verify_key(), self.signer.seen
        if newest(self.shelf, self.model, name, key) is None:
            # The model's first version is served, before anything was promoted.
            return self.versions[0]
        return resolve(self.shelf, self.model, name, key, seen).record.version

    def move(self, verdict: Verdict) -> dict[str, Any]:
        """Let the stable alias stand for a canary that passed, or the canary's for the stable.

        One that passed, and is to have more requests first, has a record that says so.
        """
        stable, canary = self.versions
        if verdict.passed and self.next_share:
            why = f"{self.next_share} % are next: {verdict.why}"
            promote(
                self.shelf, (self.model, canary), self.names[1], self.signer, renew=True, why=why,
                share=self.next_share,
            )  # fmt: skip
            return self._raised(why)
        version, name = (canary, self.names[0]) if verdict.passed else (stable, self.names[1])
        promote(self.shelf, (self.model, version), name, self.signer, why=verdict.why)
        return self._answer(version, verdict.why)

    def _raised(self, why: str) -> dict[str, Any]:
        return {
            **self._answer(self.versions[1], why),
            "verdict": "raised", "alias": self.names[1], "share": self.next_share,
        }  # fmt: skip

    def _answer(self, version: int, why: str) -> dict[str, Any]:
        passed = version == self.versions[1]
        return {
            "model": self.model,
            "stable": self.versions[0],
            "canary": self.versions[1],
            "verdict": "promoted" if passed else "withdrawn",
            "alias": self.names[0] if passed else self.names[1],
            "version": version,
            "why": why,
        }


def watch(
    look: Callable[[], dict[str, str]], versions: tuple[int, int], demands: Demands, *,
    window: float, deadline: float, every: float = _EVERY_SECONDS,
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
) -> Verdict:  # fmt: skip
    """Look at servers until two versions can be compared.

    A window begins once servers of both were seen. It is longer where they had too few requests,
    and ends at once where too many of the canary's fail by more than chance.

    Args:
        look: what each server shows, by its address.
        versions: stable, and canary.
        demands: what is demanded of the canary.
        window: seconds.
        deadline: seconds from now, after which there is no verdict.
        every: seconds between looks.
        clock: seconds that only grow. Default: the machine's.
        sleep: waits for seconds. Default: the machine's.

    Raises:
        WorkloadError: too few requests by the deadline.
    """
    tally, begin, started = Tally(), clock(), None
    while True:
        for server, text in look().items():
            tally.look(server, read(text))
        now = clock()
        if started is None and tally.versions >= {str(each) for each in versions}:
            started = now
            tally.begin()
            print(f"both versions are seen: the window of {window:.0f} s begins", flush=True)
        stable, canary = (tally.measured(each) for each in versions)
        lasted = now - started if started is not None else 0.0
        if is_enough(stable, canary, demands) and (
            lasted >= window or surely_fails(stable, canary, demands)
        ):
            return judge(stable, canary, demands)
        if now - begin >= deadline:
            raise WorkloadError(
                f"within {deadline / 3600:g} hours version {versions[0]} had {stable.requests} "
                f"requests and version {versions[1]} {canary.requests}; "
                f"{demands.least_requests} of each are needed: raise the canary's share, or ask "
                "for fewer; both go on to be served as they are"
            )
        sleep(every)


@dataclass(frozen=True)
class Servers:
    """All servers of both versions, behind one name."""

    host: str
    port: int
    name: str
    context: ssl.SSLContext

    @classmethod
    def of(cls, options: argparse.Namespace) -> Servers:
        """Those that the options name.

        Raises:
            WorkloadError: an address or a certificate can't be used.
        """
        host, port = address_of(options.servers)
        try:
            context = observing(options.authority, options.certificate, options.private_key)
        except (OSError, ssl.SSLError) as error:
            raise WorkloadError(
                f"--certificate, --private-key or --authority can't be used: {error}"
            ) from error
        return cls(host, port, options.server_name, context)

    def texts(self) -> dict[str, str]:
        """What each of them shows now; one that doesn't answer is passed over."""
        found: dict[str, str] = {}
        for address in self._addresses():
            try:
                found[address] = self._text(address)
            except (OSError, http.client.HTTPException) as error:
                print(f"{address} didn't answer: {error}", file=sys.stderr, flush=True)
        return found

    def _addresses(self) -> list[str]:
        try:
            return addresses_of(self.host, self.port)
        except OSError as error:
            print(f"{self.host} has no address: {error}", file=sys.stderr, flush=True)
            return []

    def _text(self, address: str) -> str:
        """Of one server, whose certificate is for the service's name and not for its address."""
        connection = http.client.HTTPConnection(address, self.port, timeout=_PATIENCE_SECONDS)
        plain = socket.create_connection((address, self.port), _PATIENCE_SECONDS)
        try:
            connection.sock = self.context.wrap_socket(plain, server_hostname=self.name)
            connection.request("GET", "/metrics", headers={"Host": self.name})
            answer = connection.getresponse()
            data = answer.read(_MOST_BYTES)
        finally:
            plain.close()
            connection.close()
        if answer.status != http.client.OK:
            raise http.client.HTTPException(f"status {answer.status}")
        return data.decode()
