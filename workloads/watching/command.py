"""``watch``: looks at what a service's replicas report of drift, tells of it, asks a pipeline."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from falaj.workloads.api_requests import ApiServer, add_options
from falaj.workloads.bounds import FORMS, WATCH
from falaj.workloads.errors import LOST, REFUSED, WorkloadError
from falaj.workloads.files import make_private_folder
from falaj.workloads.hosts import is_private
from falaj.workloads.inference.process.logs import Logs
from falaj.workloads.pipelines.asking import Asking
from falaj.workloads.rollout.options import add_bounded, require_bounded
from falaj.workloads.watching.cluster import Cluster, Wanted, refused_host
from falaj.workloads.watching.ladder import RETRAIN, ROLL_BACK, TELL, Watch
from falaj.workloads.watching.lone import TakenError, alone, signals
from falaj.workloads.watching.memory import WatchError
from falaj.workloads.watching.metrics import Metrics, served
from falaj.workloads.watching.replicas import Replicas
from falaj.workloads.watching.report import Report
from falaj.workloads.watching.webhook import Webhook, signing_key

_DESCRIPTION: Final = """\
Watch the drift of a service in a cluster: tell of it, and ask a pipeline for a run on newer data.

Exit codes: 0 stopped, or with --once nothing drifted; 3 with --once: something did; 1 with --once:
nobody knows; 2 refused, the reason is on stderr; 74 another watch has the folder."""
_STATUS: Final = {"fine": 0, "drifted": 3, "unknown": 1}
_STEPS: Final = (TELL, RETRAIN)


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m falaj.workloads.watching``."""
    top = argparse.ArgumentParser(
        prog="python -m falaj.workloads.watching",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("watch", help="look again and again, and act")
    add = one.add_argument
    add("--service", required=True, help="what the audit log and messages call it")
    add("--model", required=True, help="the model's name")
    add(
        "--servers", required=True, metavar="HOST:PORT",
        help="a name of DNS that has the addresses of all replicas",
    )  # fmt: skip
    add("--server-name", required=True, metavar="HOST", help="what their certificates are for")
    add(
        "--observer", type=Path, required=True, metavar="DIR",
        help="tls.crt and tls.key of who may observe, and ca.crt of who signed the replicas'",
    )  # fmt: skip
    add(
        "--folder", type=Path, required=True, metavar="DIR",
        help="where what is remembered and the audit log lie; it lasts",
    )  # fmt: skip
    add(
        "--steps", default=TELL,
        help=f"what may be done, with commas: {', '.join(_STEPS)}; default: %(default)s",
    )  # fmt: skip
    add("--pipeline", help=f"that is asked for a run, for {RETRAIN}")
    add("--namespace", help="where it is")
    add("--requests", metavar="NAME", help="ConfigMap there that its starter looks into")
    add("--webhook", metavar="URL", help="where messages go, an address of one's own networks")
    add("--webhook-authority", type=Path, metavar="FILE", help="who signed its certificate (PEM)")
    add("--webhook-key", type=Path, metavar="FILE", help="the key that signs messages")
    add_bounded(one, WATCH, {
        "interval_seconds": "between two looks",
        "cool_down_hours": "after a run was asked for, before the next is",
        "most_retrainings_per_week": "that are asked for within seven days",
    })  # fmt: skip
    add("--metrics", metavar="HOST:PORT", help="where Prometheus is answered; default: nowhere")
    add(
        "--metrics-tls", type=Path, metavar="DIR",
        help="tls.crt and tls.key of the answer, and ca.crt of who signed Prometheus' certificate",
    )  # fmt: skip
    add("--once", action="store_true", help="look once, do what is to be done, and end")
    add_options(one)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code; a person's mistake never shows a trace."""
    options = parser().parse_args(arguments)
    stop = threading.Event()
    try:
        with signals(stop):
            return run(options, stop)
    except TakenError as error:
        print(f"error: {error}", file=sys.stderr)
        return LOST
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Watch until asked to stop; with ``--once`` look once.

    Raises:
        WorkloadError: an option, a certificate, the folder, or what lies in it.
    """
    wanted = _wanted(options)
    world = Cluster(wanted, _look(options), _asking(options), _webhook(options))
    metrics = Metrics(options.service, options.model, options.interval_seconds)
    folder = make_private_folder(options.folder)
    with (
        alone(folder),
        contextlib.closing(Logs(folder / "logs")) as logs,
        _served(options, metrics) as renew,
    ):
        by = f"{socket.gethostname()} (process {os.getpid()})"
        tell = _teller(options.service, metrics)
        watching = Watch(options.service, folder, world, logs, tell, by)
        watching.begin(os.getpid())
        if options.once:
            return _STATUS[watching.look()]
        last_error = ""
        while not stop.is_set():
            try:
                metrics.looked(watching.look())
                renew()
                last_error = ""
            except (WatchError, OSError) as error:
                if str(error) != last_error:
                    last_error = str(error)
                    print(f"error: {error}", file=sys.stderr, flush=True)
            stop.wait(options.interval_seconds)
    return 0


def _served(
    options: argparse.Namespace, metrics: Metrics
) -> contextlib.AbstractContextManager[Callable[[], None]]:
    """What answers Prometheus, where that is asked for."""
    if options.metrics is None:
        return contextlib.nullcontext(lambda: None)
    return served(metrics, options.metrics, options.metrics_tls)


def _wanted(options: argparse.Namespace) -> Wanted:
    """What the options ask for.

    Raises:
        WorkloadError: they can't be used.
    """
    require_bounded(options, WATCH)
    steps = tuple(str(options.steps).split(","))
    if ROLL_BACK in steps:
        raise WorkloadError(
            f"--steps: given {options.steps}; allowed: {', '.join(_STEPS)}. In a cluster a new "
            "version is tried as a canary beside the stable one, and its judge withdraws it"
        )
    if TELL not in steps or not set(steps) <= set(_STEPS):
        raise WorkloadError(
            f"--steps: given {options.steps!r}; allowed: {', '.join(_STEPS)}, and {TELL} always"
        )
    asks = RETRAIN in steps
    for option in ("pipeline", "namespace", "requests"):
        if asks is not bool(getattr(options, option)):
            raise WorkloadError(
                f"--{option}: needed with {RETRAIN} among the steps, and for nothing else"
            )
    for option in ("webhook_key", "webhook_authority"):
        if getattr(options, option) is not None and options.webhook is None:
            raise WorkloadError(f"--{option.replace('_', '-')}: given without --webhook")
    if (options.metrics is None) is not (options.metrics_tls is None):
        raise WorkloadError("--metrics-tls: needed with --metrics, and for nothing else")
    if options.webhook is not None and options.webhook_key is None:
        raise WorkloadError("--webhook-key: missing; messages of --webhook are signed")
    webhook = FORMS["watch"]["webhook"]
    if options.webhook is not None and not webhook.allows(options.webhook):
        # Not shown: what is wrong with it may be a password in it.
        raise WorkloadError(f"--webhook: allowed: {webhook.rule}, such as {webhook.example}")
    return Wanted(
        steps,
        ("webhook",) if options.webhook is not None else (),
        options.cool_down_hours,
        options.most_retrainings_per_week,
    )


def _look(options: argparse.Namespace) -> Callable[[], Report]:
    """What asks the replicas; their names and the certificate are checked now.

    cert-manager renews the certificate, so that each look reads it.
    """

    def replicas() -> Replicas:
        return Replicas.of(options.model, options.servers, options.server_name, options.observer)

    def look() -> Report:
        return replicas().report()

    replicas()
    return look


def _asking(options: argparse.Namespace) -> Asking | None:
    if options.pipeline is None:
        return None
    api = ApiServer.of(options, "falaj-watching")
    return Asking(api, options.pipeline, options.namespace, options.requests)


def _webhook(options: argparse.Namespace) -> Webhook | None:
    if options.webhook is None:
        return None
    key: Path = options.webhook_key
    return Webhook(
        options.webhook, refused_host, is_private, options.webhook_authority,
        lambda: signing_key(key),
    )  # fmt: skip


def _teller(service: str, metrics: Metrics) -> Callable[[str, str, Mapping[str, Any]], None]:
    def tell(event: str, text: str, figures: Mapping[str, Any]) -> None:
        metrics.told(event)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"time": now, "event": event, "service": service, "text": text, **figures}
        print(json.dumps(line, ensure_ascii=False), flush=True)

    return tell
