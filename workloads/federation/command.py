"""The command lines of the coordinator and of a site."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from falaj.workloads import bounds
from falaj.workloads.errors import REFUSED, WorkloadError
from falaj.workloads.federation.secure.identities import (
    AUTHORITY,
    Directory,
    Identity,
    read_pins,
)
from falaj.workloads.federation.secure.sharing import least_threshold
from falaj.workloads.federation.transport import (
    Link,
    client_context,
    place,
    read_token,
    read_tokens,
    server_context,
)
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import open_keyring
from falaj.workloads.training.stopping import StopRequest

if TYPE_CHECKING:
    from falaj.workloads.federation.floor import Floor
    from falaj.workloads.federation.plan import Aggregation
    from falaj.workloads.federation.secure.member import Member


def main(arguments: list[str]) -> int:
    """Run the command line; return 0 or one of `falaj.workloads.errors`."""
    options = build_parser().parse_args(arguments)
    stop = StopRequest()
    stop.install()
    try:
        return (
            _coordinator(options, stop) if options.role == "coordinator" else _site(options, stop)
        )
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.federation",
        description="Train one model on rows that stay at their sites: only models cross.",
        epilog="Exit status: 0 done; 2 refused; 74 the others were lost; 75 stopped, run again.",
    )
    roles = parser.add_subparsers(dest="role", required=True, metavar="coordinator|site")
    coordinator = roles.add_parser("coordinator", help="average the sites' models")
    _add_common(coordinator)
    add = coordinator.add_argument
    add("--output", type=Path, required=True, help="folder of the run")
    add("--keyring", type=Path, help="key ring folder; model and state are then encrypted")
    add("--listen", default="127.0.0.1:8470", help="address:port (default 127.0.0.1:8470)")
    add(
        "--sites", type=Path, required=True,
        help="JSON: SHA-256 of each site's token by the common name of its certificate",
    )  # fmt: skip
    add("--rounds", type=int, default=20, help="how often models are averaged (default 20)")
    add("--epochs", type=int, default=2, help="of a site in each round (default 2)")
    add("--batch-size", type=int, default=32, help="rows of a step (default 32)")
    add("--learning-rate", type=float, default=2e-3, help="of the sites (default 0.002)")
    add("--clip", type=float, default=0.0, help="largest norm of an update; 0: any (default)")
    add(
        "--noise", type=float, default=0.0, help="noise multiplier; protects each site (default 0)"
    )
    add("--least-sites", type=int, help="that must answer in a round (default: all)")
    add("--round-seconds", type=float, default=600.0, help="a round's time (default 600)")
    add("--patience", type=int, default=3, help="rounds' times without enough sites (default 3)")
    add("--seed", type=int, default=0, help="default 0")
    _add_secure(coordinator, "the sites send masked updates: only their sum can be read")
    site = roles.add_parser("site", help="train on this site's rows")
    _add_common(site)
    site.add_argument("--coordinator", required=True, help="host:port, as its certificate says")
    site.add_argument("--token", type=Path, required=True, help="file with the site's token")
    site.add_argument("--keyring", type=Path, help="key ring that the snapshot is sealed with")
    _add_secure(site, "take part where the coordinator can read sums of updates alone")
    site.add_argument(
        "--site-keys", type=Path,
        help="JSON: by the name of each site the SHA-256 of its certificate's public key, or "
        "authority: any certificate of that name (with --secure-aggregation)",
    )  # fmt: skip
    site.add_argument(
        "--least-noise", type=float,
        help="noise multiplier below which this site refuses a round (default: any)",
    )  # fmt: skip
    site.add_argument(
        "--most-clip", type=float,
        help="largest norm of an update above which it refuses a round (default: any)",
    )  # fmt: skip
    site.add_argument(
        "--least-sites", type=int,
        help="refuse a round whose mean may be of fewer sites (default: any)",
    )  # fmt: skip
    site.add_argument(
        "--patience-seconds", type=float, default=600.0,
        help="how long the coordinator may be out of reach (default 600)",
    )  # fmt: skip
    return parser


def _add_secure(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--secure-aggregation", action="store_true", help=text)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", type=Path, required=True, help="snapshot: reference rows, or the site's")
    add("--authority", type=Path, required=True, help="certificate of the federation's authority")
    add("--certificate", type=Path, required=True, help="one's own certificate (PEM)")
    add("--key", type=Path, required=True, help="its private key (PEM)")
    add("--progress", default="text", choices=("json", "text"), help="default: text")


def _coordinator(options: argparse.Namespace, stop: StopRequest) -> int:
    from falaj.workloads.federation import coordinator  # noqa: PLC0415 - they import torch
    from falaj.workloads.federation.coordinator import Rounds, Rules  # noqa: PLC0415
    from falaj.workloads.federation.plan import Plan, Task  # noqa: PLC0415
    from falaj.workloads.federation.secure.rounds import SecureRounds  # noqa: PLC0415
    from falaj.workloads.training.snapshot import (  # noqa: PLC0415
        open_dataset,
        require_whole,
    )

    _check(options)
    tokens = read_tokens(options.sites, "site")
    least = len(tokens) if options.least_sites is None else options.least_sites
    if not 1 <= least <= len(tokens):
        raise WorkloadError(f"--least-sites is {least}: allowed is 1 to {len(tokens)}")
    secure, make = None, Rounds
    if options.secure_aggregation:
        secure = _aggregation(options, sorted(tokens), least)
        directory = Directory(options.authority, dict.fromkeys(tokens, AUTHORITY))
        make = partial(SecureRounds, directory=directory)
    keyring = open_keyring(options.keyring)
    plan = Plan(
        options.rounds, options.epochs, options.batch_size, options.learning_rate, options.clip,
        options.noise > 0, options.seed, secure,
    )  # fmt: skip
    rules = Rules(frozenset(tokens), least, options.round_seconds, options.noise)
    dataset = require_whole(open_dataset(options.dataset, keyring), "a federation")
    it = coordinator.federation(
        dataset, plan, rules, output=options.output, keyring=keyring, patience=options.patience,
        rounds=make,
    )  # fmt: skip
    context = server_context(options.authority, options.certificate, options.key)
    listen = place("--listen", options.listen)

    def serve(task: Task, rounds: Rounds, traffic: Path) -> coordinator.Server:
        try:
            return coordinator.Server(
                listen, context, task, rounds, tokens=tokens, traffic=traffic
            )
        except OSError as error:
            raise WorkloadError(
                f"--listen {options.listen} can't be listened on: {error.strerror}"
            ) from error

    progress = Progress(options.progress, True, lambda: None)
    return coordinator.run(it, serve, stop, progress)


def _site(options: argparse.Namespace, stop: StopRequest) -> int:
    from falaj.workloads.federation import site  # noqa: PLC0415 - imports torch
    from falaj.workloads.training.snapshot import (  # noqa: PLC0415
        open_dataset,
        require_whole,
    )

    host, port = place("--coordinator", options.coordinator)
    token = read_token(options.token, "site")
    context = client_context(options.authority, options.certificate, options.key)
    link = Link(host, port, context, token, options.patience_seconds)
    member = _member(options)
    floor = _floor(options, member)
    dataset = require_whole(
        open_dataset(options.dataset, open_keyring(options.keyring)), "a federation"
    )
    progress = Progress(options.progress, True, lambda: None)
    return site.take_part(link, dataset, stop, progress, member, floor=floor)


def _aggregation(options: argparse.Namespace, sites: list[str], least: int) -> Aggregation:
    """Secure aggregation as the coordinator's options say it.

    Raises:
        WorkloadError: an option doesn't go with it.
    """
    from falaj.workloads.federation.plan import Aggregation  # noqa: PLC0415 - imports torch

    bounds.FEDERATION["secure_sites"].check(
        "the number of sites with --secure-aggregation", len(sites)
    )
    for name in sites:
        bounds.FORMS["federation"]["site"].check(f"the name of a site in {options.sites}", name)
    fewest = least_threshold(len(sites))
    if least < fewest:
        raise WorkloadError(
            f"--least-sites is {least}: with --secure-aggregation of {len(sites)} sites allowed "
            f"is {fewest} to {len(sites)}, more than half, so that no two groups without a common "
            "site could each be asked for half of what shows one update"
        )
    if not options.clip:
        raise WorkloadError(
            "--secure-aggregation without --clip: masked sums are of whole numbers, whose "
            "range is that of the largest norm of an update; give it, such as --clip 1"
        )
    return Aggregation(tuple(sites), least, options.noise)


def _member(options: argparse.Namespace) -> Member | None:
    """Who a site is to the others, with secure aggregation.

    Raises:
        WorkloadError: one of both options is missing, or its file can't be used.
    """
    from falaj.workloads.federation.secure.member import Member  # noqa: PLC0415 - imports torch

    if not options.secure_aggregation and options.site_keys is None:
        return None
    if not options.secure_aggregation or options.site_keys is None:
        raise WorkloadError(
            "--secure-aggregation and --site-keys go together: a site takes the others' keys by "
            "its own list of sites, not by the coordinator's"
        )
    who = Identity.read(options.certificate, options.key)
    directory = Directory(options.authority, read_pins(options.site_keys))
    if who.name not in directory.pins:
        raise WorkloadError(
            f"{options.site_keys} must name this site, too: its certificate is of {who.name!r}"
        )
    return Member(who, directory)


def _floor(options: argparse.Namespace, member: Member | None) -> Floor:
    """The least privacy that a site takes.

    Raises:
        WorkloadError: an option can't be.
    """
    from falaj.workloads.federation.floor import Floor  # noqa: PLC0415 - imports torch

    for name in ("least_noise", "most_clip", "least_sites"):
        if (value := getattr(options, name)) is not None:
            bounds.FEDERATION[name].check("--" + name.replace("_", "-"), value)
    least = options.least_sites
    if member is not None and least is not None and least > len(member.directory.pins):
        raise WorkloadError(
            f"--least-sites is {least}: --site-keys names {len(member.directory.pins)} sites, and "
            "each round would be refused"
        )
    return Floor(options.least_noise, options.most_clip, least)


def _check(options: argparse.Namespace) -> None:
    for name in (
        "rounds", "epochs", "batch_size", "learning_rate", "clip", "noise", "round_seconds",
        "patience", "seed",
    ):  # fmt: skip
        option = "--" + name.replace("_", "-")
        bounds.FEDERATION[name].check(option, getattr(options, name))
    if options.noise > 0 and not options.clip:
        raise WorkloadError(
            "--noise without --clip promises nothing: give the largest norm of an update, such "
            "as --clip 1"
        )
