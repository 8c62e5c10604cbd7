"""`service.json` from a command line: its options, and the file that they make."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import orjson

from falaj.workloads.documents import TwiceError, parse_json
from falaj.workloads.files import write_atomic
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.settings import (
    FORMAT,
    INFERENCE,
    PROTOCOLS,
    AuthSettings,
    DriftSettings,
    ExperimentSettings,
    JobSettings,
    Limits,
    ShadowSettings,
    parse,
)

#: Threads of one session that wait for each other gain little on the small models of the CPU tier,
#: and lose much when the machine is loaded: so workers are what fills the cores.
_THREADS = 1


def _upstream_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--upstream", help="http://127.0.0.1:PORT of the model's runtime")
    command.add_argument(
        "--upstream-protocol", choices=PROTOCOLS, default=INFERENCE,
        help="completions: it goes on with texts, as vLLM does; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--upstream-context", type=int, metavar="TOKENS",
        help="tokens that it looks back on, of completions; default: as many as the model",
    )  # fmt: skip


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of ``python -m falaj.workloads.inference configure``."""
    folders = {
        "config": "the service.json to write",
        "registry": "the registry of packages",
        "keyring": "the key ring",
        "certificate": "the server's certificate, PEM",
        "private-key": "its private key, PEM",
        "jwks": "the public keys of tokens",
        "logs": "folder of the logs",
        "state": "file that says what the server does",
    }
    for name, text in folders.items():
        command.add_argument(f"--{name}", type=Path, required=True, help=text)
    command.add_argument(
        "--revoked", type=Path, help="the list of revoked tokens; default: none can be revoked"
    )
    command.add_argument(
        "--max-token-minutes",
        type=int,
        help=f"longest life of a token; default: {AuthSettings.max_token_minutes}, a day",
    )
    command.add_argument("--client-ca", type=Path, help="authority of client certificates")
    command.add_argument("--name", required=True, help="the service's name")
    command.add_argument("--model", required=True)
    command.add_argument("--alias", default="production", help="default: %(default)s")
    command.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    command.add_argument("--port", type=int, required=True)
    command.add_argument("--issuer", required=True, help="of tokens")
    command.add_argument("--audience", required=True, help="of tokens")
    command.add_argument(
        "--client", action="append", default=[], metavar="NAME=[SCOPE[,SCOPE]]",
        help="what a client certificate may do; may be repeated",
    )  # fmt: skip
    command.add_argument("--cpus", type=float, help="cores that the server has for itself")
    command.add_argument(
        "--workers", type=int, help="processes, each with the model; default: one for each core"
    )
    command.add_argument(
        "--threads", type=int, default=_THREADS, help="of each worker's runtime (default 1)"
    )
    known = Limits()
    command.add_argument("--max-body-bytes", type=int, default=known.max_body_bytes)
    command.add_argument(
        "--max-inflight-bytes", type=int,
        help="of the bodies of all unanswered requests of a worker; default: "
        f"{known.max_inflight_bytes}, or one body if that is more",
    )  # fmt: skip
    command.add_argument("--max-rows", type=int, default=known.max_rows)
    command.add_argument("--max-tokens", type=int, default=known.max_tokens)
    command.add_argument(
        "--tokens-per-minute", type=int,
        help="of prompts and of what a language model generates, for each caller of a worker "
        "(default: no limit)",
    )  # fmt: skip
    command.add_argument(
        "--keep-seconds", type=int, default=known.keep_seconds,
        help="for which what was computed of a language model's text is kept for its next turn; "
        "0: it isn't; default: %(default)s",
    )  # fmt: skip
    command.add_argument("--drain-seconds", type=float, default=known.drain_seconds)
    command.add_argument("--load-seconds", type=float, default=known.load_seconds)
    command.add_argument(
        "--grpc", action=argparse.BooleanOptionalAction, default=True,
        help="answer gRPC on the same port; its process is started with the first connection of a "
        "client that speaks it (default: yes)",
    )  # fmt: skip
    command.add_argument(
        "--grpc-memory-bytes", type=int,
        help="of data of each worker's gRPC process, which beyond it ends and is started anew; "
        "default: 1 GiB, and four times what may be in flight",
    )  # fmt: skip
    drift = DriftSettings()
    command.add_argument(
        "--no-drift", action="store_true", help="compare no rows with what the package says"
    )
    command.add_argument(
        "--drift-window-rows", type=int, default=drift.window_rows, help="default: %(default)s"
    )
    command.add_argument(
        "--drift-window-seconds", type=float, default=drift.window_seconds,
        help="after which a window is judged that has fewer rows; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--drift-alpha", type=float, default=drift.alpha,
        help="chance of a false alarm of a window; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "--batching", action="store_true",
        help="run requests that wait together, where measuring the model says that it pays "
        "(default: no)",
    )  # fmt: skip
    command.add_argument(
        "--priorities", action="store_true",
        help="requests may say how urgent they are, for high with the scope urgent (default: no)",
    )  # fmt: skip
    jobs = JobSettings()
    command.add_argument(
        "--jobs", action="store_true",
        help="take requests that are answered later (default: no); they are kept sealed beside "
        "the state",
    )  # fmt: skip
    command.add_argument("--jobs-keep-hours", type=int, help=f"default: {jobs.keep_hours}")
    command.add_argument("--jobs-most", type=int, help=f"jobs kept; default: {jobs.most_jobs}")
    command.add_argument(
        "--jobs-most-bytes", type=int,
        help=f"of their requests and answers; default: {jobs.most_bytes}",
    )  # fmt: skip
    command.add_argument(
        "--shadow-percent", type=float,
        help="of the answered requests, that a second version gets copies of, once one was "
        "promoted to --shadow-alias (default: no request is copied)",
    )  # fmt: skip
    command.add_argument(
        "--shadow-alias", help=f"stands for that version; default: {ShadowSettings.alias}"
    )
    _add_experiment(command)
    _add_models(command)
    _upstream_options(command)
    command.add_argument("--overflow-to", help="https://HOST:PORT of the next tier")
    command.add_argument("--overflow-version", type=int, help="the version that it serves")
    command.add_argument("--overflow-above-ms", type=float, help="expected time in the queue")
    command.add_argument("--overflow-timeout-ms", type=float, default=1000)
    command.add_argument(
        "--json", action="store_true", help="print it as one JSON object, and write nothing"
    )


def _add_models(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--models", metavar="JSON",
        help="further models by name, each with registry and keyring, and alias, max_rows, "
        "max_body_bytes, batching, priorities and drift where they aren't as usual (default: "
        "none)",
    )  # fmt: skip
    command.add_argument(
        "--models-memory-bytes", type=int,
        help="that they may take of all workers; default: half of the machine's memory",
    )  # fmt: skip


def _add_experiment(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--experiment-key", metavar="HEADER",
        help="name of the header by whose value a second version answers a share of the requests, "
        "once one was promoted to --experiment-alias (default: there is no experiment)",
    )  # fmt: skip
    command.add_argument(
        "--experiment-share",
        type=float,
        help=f"of the values, per cent; default: {ExperimentSettings.share:g}",
    )
    command.add_argument(
        "--experiment-alias", help=f"stands for that version; default: {ExperimentSettings.alias}"
    )
    command.add_argument(
        "--experiment-name",
        help="another name draws other values; default: the model and the version",
    )
    command.add_argument(
        "--experiment-timeout-ms", type=int,
        help="that it is waited for, before the version that serves answers; default: "
        f"{ExperimentSettings.timeout_ms}",
    )  # fmt: skip


def configure(options: argparse.Namespace) -> bytes:
    """Write the configuration, once it has been read back as the server would.

    With ``--json`` nothing is written.

    Returns:
        The configuration, as JSON; with ``--json`` on one line.

    Raises:
        InferenceError: an option's value isn't one that the server takes.
        WorkloadError: it can't be written.
    """
    found = document(options)
    content = orjson.dumps(found, option=orjson.OPT_INDENT_2)
    parse(options.config, content)
    if options.json:
        return orjson.dumps(found)
    write_atomic(options.config, content)
    return content


def document(options: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration.

    Raises:
        InferenceError: options that don't go together.
    """
    found: dict[str, Any] = {
        "format": FORMAT,
        "name": options.name,
        "host": options.host,
        "port": options.port,
        "workers": _workers(options),
        "threads": options.threads,
        "registry": str(options.registry),
        "model": options.model,
        "alias": options.alias,
        "keyring": str(options.keyring),
        "tls": {
            "certificate": str(options.certificate),
            "private_key": str(options.private_key),
            **({"client_ca": str(options.client_ca)} if options.client_ca else {}),
        },
        "auth": {
            "issuer": options.issuer,
            "audience": options.audience,
            "jwks": str(options.jwks),
            **({"revoked": str(options.revoked)} if options.revoked else {}),
            **(
                {"max_token_minutes": options.max_token_minutes}
                if options.max_token_minutes is not None
                else {}
            ),
            "clients": _clients_of_options(options.client),
        },
        "limits": {
            "max_body_bytes": options.max_body_bytes,
            "max_rows": options.max_rows,
            "max_tokens": options.max_tokens,
            "keep_seconds": options.keep_seconds,
            "drain_seconds": options.drain_seconds,
            "load_seconds": options.load_seconds,
            **{
                name: given
                for name in (
                    "max_inflight_bytes",
                    "tokens_per_minute",
                    "models_memory_bytes",
                    "grpc_memory_bytes",
                )
                if (given := getattr(options, name)) is not None
            },
        },
        "grpc": options.grpc,
        "drift": {
            "enabled": not options.no_drift,
            "window_rows": options.drift_window_rows,
            "window_seconds": options.drift_window_seconds,
            "alpha": options.drift_alpha,
        },
        "logs": str(options.logs),
        "state": str(options.state),
    }
    if (jobs := _jobs_of_options(options)) is not None:
        found["jobs"] = jobs
    if options.batching:
        found["batching"] = True
    if options.priorities:
        found["priorities"] = True
    if options.shadow_percent is not None:
        found["shadow"] = {
            "percent": options.shadow_percent,
            "alias": options.shadow_alias or ShadowSettings.alias,
        }
    elif options.shadow_alias is not None:
        raise InferenceError(
            "--shadow-alias is for a shadow, which gets no copies: give --shadow-percent, or "
            "leave it out"
        )
    if (experiment := _experiment_of_options(options)) is not None:
        found["experiment"] = experiment
    if options.models:
        found["models"] = models_of_option(options.models)
    if options.upstream:
        found["upstream"] = {"url": options.upstream}
        if options.upstream_protocol != INFERENCE:
            found["upstream"]["protocol"] = options.upstream_protocol
        if options.upstream_context is not None:
            found["upstream"]["context"] = options.upstream_context
    if options.overflow_to:
        if options.overflow_version is None or options.overflow_above_ms is None:
            raise InferenceError("--overflow-to needs --overflow-version and --overflow-above-ms")
        found["overflow"] = {
            "url": options.overflow_to,
            "version": options.overflow_version,
            "above_seconds": options.overflow_above_ms / 1000,
            "timeout_seconds": options.overflow_timeout_ms / 1000,
        }
    return found


def models_of_option(text: str) -> Any:
    """Return what ``--models`` gives.

    Raises:
        InferenceError: it isn't JSON, or a name stands in it twice, of which one would be dropped.
    """

    try:
        return parse_json(text)
    except TwiceError as error:
        raise InferenceError(f"--models: {error}; allowed is once") from error
    except (ValueError, RecursionError) as error:
        raise InferenceError(
            f"--models is not JSON: {error}; give an object of models by name"
        ) from error


def _experiment_of_options(options: argparse.Namespace) -> dict[str, Any] | None:
    names = ("share", "alias", "name", "timeout_ms")
    given = {
        name: value
        for name in names
        if (value := getattr(options, f"experiment_{name}")) is not None
    }
    if options.experiment_key is not None:
        return {"key": options.experiment_key, **given}
    if given:
        option = next(iter(given)).replace("_", "-")
        raise InferenceError(
            f"--experiment-{option} is for an experiment, which there is none of: give "
            "--experiment-key, or leave it out"
        )
    return None


def _jobs_of_options(options: argparse.Namespace) -> dict[str, int] | None:
    given = {
        "keep_hours": options.jobs_keep_hours,
        "most_jobs": options.jobs_most,
        "most_bytes": options.jobs_most_bytes,
    }
    if options.jobs:
        known = JobSettings()
        return {k: getattr(known, k) if v is None else v for k, v in given.items()}
    for name, value in zip(("keep-hours", "most", "most-bytes"), given.values(), strict=True):
        if value is not None:
            raise InferenceError(
                f"--jobs-{name} is for jobs, which aren't taken: give --jobs, or leave it out"
            )
    return None


def _workers(options: argparse.Namespace) -> int:
    cpus: float | None = options.cpus
    if cpus is not None and (not math.isfinite(cpus) or cpus <= 0):
        raise InferenceError(f"--cpus must be a number over 0; got {cpus}")
    if options.workers is not None:
        return options.workers
    if cpus is None:
        raise InferenceError("give --cpus, from which the number of workers follows, or --workers")
    # A proxy's work is small, and one process knows best how much is under way.
    return 1 if options.upstream else max(1, math.floor(cpus))


def _clients_of_options(given: list[str]) -> dict[str, list[str]]:
    clients: dict[str, list[str]] = {}
    for text in given:
        # No scope has a "=", a certificate's name may have one.
        name, equals, scopes = text.rpartition("=")
        if not name or not equals:
            raise InferenceError(f"--client must be NAME=[SCOPE[,SCOPE]]; got {text!r}")
        clients[name] = scopes.split(",") if scopes else []
    return clients
