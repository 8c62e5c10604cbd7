"""The command lines of the server and of a worker."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from falaj.workloads.bounds import CHOICES, PARAMETER_SERVER
from falaj.workloads.errors import WorkloadError
from falaj.workloads.exits import EXITS
from falaj.workloads.federation.transport import (
    Link,
    client_context,
    place,
    read_token,
    read_tokens,
    server_context,
)
from falaj.workloads.training.command import add_hyperparameters
from falaj.workloads.training.faults import status_of
from falaj.workloads.training.options import Requested, check
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import (
    Dataset,
    open_dataset,
    open_keyring,
    require_whole,
)
from falaj.workloads.training.stopping import StopRequest

if TYPE_CHECKING:
    from falaj.workloads.parameter_server.server import Training

_CHOICES = CHOICES["parameter_server"]
_TRAINING = CHOICES["training"]
_LISTEN = "127.0.0.1:8471"
_LOCAL_ALONE = ("local_steps", "outer_rate", "outer_momentum")


def main(arguments: list[str]) -> int:
    """Run the command line; return one of `falaj.workloads.exits`, whatever happens."""
    options = build_parser().parse_args(arguments)

    def chosen() -> int:
        stop = StopRequest()
        stop.install()
        run = serve if options.role == "server" else take_part
        return run(options, stop)

    return status_of(chosen)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.parameter_server",
        description="Train one model by workers of any speed that don't wait for each other.",
        epilog="Exit status: " + "; ".join(f"{each.code} {each.meaning}" for each in EXITS) + ".",
    )
    roles = parser.add_subparsers(dest="role", required=True, metavar="server|worker")
    server = roles.add_parser("server", help="keep the weights and take updates")
    _add_common(server)
    _add_server(server)
    _add_training(server)
    worker = roles.add_parser("worker", help="compute updates on rows of this machine")
    _add_common(worker)
    add = worker.add_argument
    add("--server", required=True, help="host:port, as its certificate says")
    add("--token", type=Path, required=True, help="file with the worker's token")
    add("--device", **_TRAINING["device"].argument, help="default: a GPU where there is one")
    add("--precision", **_TRAINING["precision"].argument, help="default: by the hardware")
    add("--threads", type=int, help="CPU threads (default: by the cores)")
    _add_number(worker, "patience_seconds", "how long the server may be out of reach")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", type=Path, required=True, help="a snapshot's folder")
    add("--keyring", type=Path, help="key ring folder that what is on disk is sealed with")
    add("--authority", type=Path, required=True, help="certificate of everybody's authority")
    add("--certificate", type=Path, required=True, help="one's own certificate (PEM)")
    add("--key", type=Path, required=True, help="its private key (PEM)")
    add("--progress", default="text", choices=("json", "text"), help="default: text")


def _add_server(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--output", type=Path, required=True, help="folder of the run")
    add("--listen", default=_LISTEN, help=f"address:port (default {_LISTEN})")
    add(
        "--workers", type=Path, required=True,
        help="JSON: SHA-256 of each worker's token by the common name of its certificate",
    )  # fmt: skip
    add(
        "--mode", **_CHOICES["mode"].argument,
        help="asynchronous: workers send each batch's gradient; local: what some steps of their "
        "own changed, for slow links (default asynchronous)",
    )  # fmt: skip
    add(
        "--rows", **_CHOICES["rows"].argument,
        help="shared: each worker takes a part of this dataset, of which it has a copy; own: each "
        "has rows of its own, which stay there (default shared)",
    )  # fmt: skip
    add(
        "--compression", **_CHOICES["compression"].argument,
        help="of updates; top: the largest numbers alone. What is left out goes into the next "
        "update (default none)",
    )  # fmt: skip
    _add_number(parser, "top", "share of an update's numbers that travels, of top")
    add("--weights", **_CHOICES["weights"].argument, help="what the model travels as")
    _add_number(parser, "gather", "updates of one step (default 1; of local, as many as workers)")
    _add_number(parser, "staleness", "versions that an update may be behind")
    _add_number(parser, "staleness_power", "an update counts (1 + staleness)^-power")
    _add_number(parser, "local_steps", "a worker's batches between two updates, of local")
    _add_number(parser, "outer_rate", "learning rate of the mean change, of local")
    _add_number(parser, "outer_momentum", "its Nesterov momentum, of local")
    _add_number(parser, "explosion", "refuse updates of more than so many times the usual norm")
    _add_number(parser, "requests_per_second", "that one worker may send")
    _add_number(parser, "checkpoint_seconds", "between checkpoints")
    _add_number(parser, "target_loss", "end at this validation loss (default: by epochs)")
    add(
        "--resume", default="auto", choices=("auto", "never"),
        help="auto: go on from a checkpoint of the same run; never: start afresh, replacing",
    )  # fmt: skip


def _add_training(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--epochs", type=int, help="passes over the rows, of all workers (default: by family)")
    _add_number(parser, "steps", "batches of all workers, in place of --epochs")
    add("--batch-size", type=int, help="rows of a worker's batch (default: by family)")
    add_hyperparameters(parser)
    add("--class-weights", **_TRAINING["class_weights"].argument, help="weigh rare classes more")
    add(
        "--model", **_TRAINING["model"].argument, help="a network of images or tables, or a text's"
    )
    add("--seed", type=int, default=0, help="default 0")


def _add_number(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    bound = PARAMETER_SERVER[name]
    usual = "" if bound.default is None else f" (default {bound.default:g})"
    kind = int if bound.whole else float
    parser.add_argument("--" + name.replace("_", "-"), type=kind, help=text + usual)


def checked(options: argparse.Namespace) -> None:
    """Refuse numbers out of their bounds, and put defaults where none were given."""
    for name, bound in PARAMETER_SERVER.items():
        if not hasattr(options, name):
            continue
        value = getattr(options, name)
        if value is not None:
            bound.check("--" + name.replace("_", "-"), value)
            if name in _LOCAL_ALONE and options.mode != "local":
                raise WorkloadError(
                    f"--{name.replace('_', '-')} is of --mode local: leave it out, or ask for that"
                )
            if name == "top" and options.compression != "top":
                raise WorkloadError("--top is of --compression top: leave it out, or ask for that")
        elif bound.default is not None:
            setattr(options, name, int(bound.default) if bound.whole else bound.default)


def serve(options: argparse.Namespace, stop: StopRequest) -> int:
    """Run a server as `build_parser` read its options; return its exit status.

    Raises:
        WorkloadError: an option, the data or the folder can't be used.
    """
    checked(options)
    if options.steps is not None and options.epochs is not None:
        raise WorkloadError("--steps and --epochs both say when training ends: give one of them")
    given = {
        name: getattr(options, name)
        for name in Requested.__dataclass_fields__
        if hasattr(options, name) and name != "compression"
    }
    requested = Requested(**given, device="cpu", precision="float32")
    check(requested)
    tokens = read_tokens(options.workers, "worker")
    listen = place("--listen", options.listen)
    context = server_context(options.authority, options.certificate, options.key)
    keyring = open_keyring(options.keyring)
    dataset = require_whole(open_dataset(options.dataset, keyring), "a parameter server")
    # Only here: they import torch, which takes a second.
    from falaj.workloads.parameter_server.listener import Listener  # noqa: PLC0415
    from falaj.workloads.parameter_server.server import run  # noqa: PLC0415
    from falaj.workloads.parameter_server.weights import Weights  # noqa: PLC0415

    it = training_of(options, requested, dataset, len(tokens))

    def listener(weights: Weights) -> Listener:
        try:
            return Listener(
                listen, context, it.assignment, weights, tokens=tokens,
                requests_per_second=options.requests_per_second,
            )  # fmt: skip
        except OSError as error:
            raise WorkloadError(
                f"--listen {options.listen} can't be listened on: {error.strerror}"
            ) from error

    progress = Progress(options.progress, True, lambda: None)
    return run(it, listener, stop, progress, options.resume == "auto")


def training_of(
    options: argparse.Namespace, requested: Requested, dataset: Dataset, workers: int
) -> Training:
    """The training that the options ask for.

    Args:
        options: of the server, `checked`.
        requested: the parameters among them.
        dataset: of the server.
        workers: how many there are.

    Raises:
        WorkloadError: the dataset is none for that.
    """
    from falaj.workloads.federation.plan import learned_from  # noqa: PLC0415
    from falaj.workloads.parameter_server.assignment import Assignment  # noqa: PLC0415
    from falaj.workloads.parameter_server.server import Training  # noqa: PLC0415
    from falaj.workloads.parameter_server.weights import Terms  # noqa: PLC0415
    from falaj.workloads.training import launcher  # noqa: PLC0415
    from falaj.workloads.training.batches import prepare  # noqa: PLC0415
    from falaj.workloads.training.language import FAMILY  # noqa: PLC0415

    if options.rows == "own" and dataset.family == FAMILY:
        raise WorkloadError(
            "--rows own: workers' own rows are images or tables; each text has a vocabulary of "
            "its own, so share one dataset (--rows shared)"
        )
    parameters = launcher.resolve(requested, dataset)
    prepared = prepare(dataset, parameters)
    epoch = math.ceil(len(prepared.fit[1]) / parameters.batch_size)
    if options.rows == "own":  # as if each had as many rows as the server
        epoch *= workers
    total = options.steps or parameters.epochs * epoch
    if options.steps:
        parameters = replace(parameters, epochs=math.ceil(total / epoch))
    local = options.mode == "local"
    assignment = Assignment(
        parameters=parameters,
        **vars(learned_from(dataset, prepared)),
        mode=options.mode,
        local_steps=options.local_steps if local else 1,
        rows=options.rows,
        dataset=dataset.digest,
        part=0,
        parts=workers,
        compression=options.compression,
        top=options.top,
        weights=options.weights,
    )
    terms = Terms(
        mode=options.mode,
        total=total,
        gather=options.gather or (workers if local else 1),
        staleness=options.staleness,
        power=options.staleness_power,
        explosion=options.explosion,
        outer_rate=options.outer_rate,
        outer_momentum=options.outer_momentum,
    )
    return Training(
        assignment, terms, dataset, prepared, options.output, open_keyring(options.keyring),
        options.checkpoint_seconds, options.target_loss,
    )  # fmt: skip


def take_part(options: argparse.Namespace, stop: StopRequest) -> int:
    """Run a worker as `build_parser` read its options; return its exit status.

    Raises:
        WorkloadError: an option or the rows can't be used, or the server refuses.
    """
    checked(options)
    check(Requested(threads=options.threads))
    host, port = place("--server", options.server)
    token = read_token(options.token, "worker")
    context = client_context(options.authority, options.certificate, options.key)
    dataset = require_whole(
        open_dataset(options.dataset, open_keyring(options.keyring)), "a parameter server"
    )
    from falaj.workloads.parameter_server.worker import Machine, Worker  # noqa: PLC0415

    link = Link(host, port, context, token, options.patience_seconds)
    machine = Machine(options.device, options.precision, options.threads)
    progress = Progress(options.progress, True, lambda: stop.ask("nobody reads the progress"))
    return Worker(link, dataset, machine, stop, progress).run()
