"""The command lines of training and of sweeps: options in, exit status out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falaj.workloads.bounds import CHOICES, TRAINING, TUNING
from falaj.workloads.chat import Template
from falaj.workloads.errors import WorkloadError
from falaj.workloads.exits import EXITS
from falaj.workloads.training.faults import status_of
from falaj.workloads.training.options import Requested, check
from falaj.workloads.training.own_code import find, read_folder, read_options
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.vocabulary import Vocabulary

if TYPE_CHECKING:
    from falaj.workloads.training.feature_tables import Features

_TASK = CHOICES["dataset"]["task"]
_CHOICES = CHOICES["training"]
_TRACKING = "--tra"
"""What options of a tracking server begin with; the first letters are understood, too."""


def _add_sweep(commands: Any) -> None:
    """Add the commands ``trial``, ``sweep`` and ``study``."""
    trial = commands.add_parser("trial", help="do one trial of a sweep")
    _add_common(trial)
    trial.add_argument("--index", type=int, help="number of the trial (default: of the pod)")
    sweep = commands.add_parser("sweep", help="do trials side by side on this machine")
    _add_common(sweep)
    _add_tracking(sweep)
    sweep.add_argument("--trials", type=int, default=20, help="how many (default 20)")
    sweep.add_argument("--parallel", type=int, default=1, help="at a time (default 1)")
    sweep.add_argument(
        "--progress", default="text", choices=("json", "text"),
        help="text: a table, a line for each trial that ends; json: what all of them say",
    )  # fmt: skip
    study = commands.add_parser("study", help="tell how the trials of a sweep ended")
    study.add_argument("--dataset", type=Path, required=True, help="the snapshot's folder")
    study.add_argument("--output", type=Path, required=True, help="folder of the sweep")


def _add_common(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--dataset", type=Path, required=True, help="a snapshot's folder")
    option(
        "--output", type=Path, required=True, help="folder of the sweep; each trial has its own"
    )
    option(
        "--search", action="append", default=[], metavar="NAME=VALUES",
        help="learning_rate=1e-4..1e-1:log, width=8|16|32 …; may be given more than once",
    )  # fmt: skip
    option("--seed", type=int, default=0, help="of the runs, and the first of the sampler's")
    option("--pruner", **CHOICES["sweep"]["pruner"].argument, help="ends bad trials early")
    option(
        "run_options", nargs="*", metavar="-- RUN OPTION",
        help="after --: options of every run, as --epochs 20",
    )  # fmt: skip


def _run_sweep(options: argparse.Namespace) -> int:
    """Run one of the three commands."""
    from falaj.workloads.training import sweep  # noqa: PLC0415 - optuna takes a second to import

    if options.command == "study":
        if not (options.output / sweep.JOURNAL).exists():
            raise WorkloadError(f"{options.output} holds no study: there is no {sweep.JOURNAL}")
        study = sweep.open_study(options.output, options.dataset, 0, "none")
        print(json.dumps(sweep.summary(study), indent=2))
        return 0
    _refuse_ours(options.run_options, sends=options.command == "trial")
    stop = StopRequest()
    stop.install()
    if options.command == "trial":
        return sweep.run(options, options.run_options, stop)
    for name in ("trials", "parallel"):
        if getattr(options, name) < 1:
            raise WorkloadError(f"--{name} is {getattr(options, name)}: allowed is 1 or more")
    from falaj.workloads.training import tracking  # noqa: PLC0415 - TLS, for who sends alone
    from falaj.workloads.training.trials import Trials  # noqa: PLC0415 - imports optuna, too

    return Trials(options, stop, tracking.of_options(options)).run()


def _refuse_ours(words: list[str], *, sends: bool) -> None:
    """Refuse options of a run that are the sweep's; ``sends``: whether each trial is sent."""
    for word in words:
        if word.partition("=")[0] in ("--dataset", "--output", "--progress", "--json", "--seed"):
            raise WorkloadError(f"{word} is an option of the sweep: leave it out after --")
        if word.startswith("--tun"):
            raise WorkloadError(
                f"{word} after -- would measure beside other trials: measure before the sweep "
                "(`python -m falaj.workloads.training tune`), and give what it proposes after --"
            )
        if word.startswith(_TRACKING) and not sends:
            raise WorkloadError(
                f"{word} after -- would send each trial by itself: give --tracking before it to "
                "`sweep`, which sends them below a run of its own"
            )


def main(arguments: list[str]) -> int:
    """Run the command line; return one of `falaj.workloads.exits`, whatever happens."""
    options = build_parser().parse_args(arguments)

    alone = {
        "dataset": _dataset, "features": _features, "code": _code, "export": _export,
        "track": _track,
    }  # fmt: skip

    def chosen() -> int:
        if options.command in alone:
            return alone[options.command](options)
        if options.command in ("run", "tune"):
            return _run(options, arguments)
        return _run_sweep(options)

    return status_of(chosen)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.training",
        description="Make a versioned dataset from digits, pictures, a table or a text, and train "
        "a model on it.",
        epilog="Exit status: "
        + "; ".join(f"{each.code} {each.meaning}" for each in EXITS)
        + ". Several machines: see workloads/training/distributed.py for the variables that join "
        "them.",
    )
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="dataset|features|run|tune|sweep|trial|study|code|export|track",
    )
    _add_dataset(commands.add_parser("dataset", help="make a dataset snapshot"))
    features = commands.add_parser(
        "features", help="give a table's rows what feature tables knew by their time"
    )
    features.add_argument("--source", type=Path, required=True, help="a .csv or .parquet file")
    _add_features(features, required=True)
    features.add_argument("--encoding", help="of a CSV; default: as dataset has it")
    features.add_argument("--output", type=Path, required=True, help="a .csv or .parquet file")
    run = commands.add_parser("run", help="train a model on a snapshot")
    _add_run(run)
    add = run.add_argument
    add("--output", type=Path, required=True, help="folder of this run")
    add(
        "--tune", action="store_true",
        help="measure threads, processes, parts of a batch and reading ahead first, and take what "
        "is faster; what is learned from stays the same",
    )  # fmt: skip
    add(
        "--measured", type=Path, metavar="DIR",
        help="keeps what --tune measured, by digest of data, model and machine, so that it isn't "
        "measured again (default: each run measures)",
    )  # fmt: skip
    tune = commands.add_parser("tune", help="measure which settings of a run are faster here")
    _add_run(tune)
    add = tune.add_argument
    add("--output", type=Path, help="taken, so that a run's options can be; nothing is written")
    add(
        "--change-batch", action="store_true",
        help="try larger batches as well, which are another training",
    )  # fmt: skip
    add(
        "--change-precision", action="store_true",
        help="try what else the processor computes in as well, which is another training",
    )  # fmt: skip
    _add_sweep(commands)
    export = commands.add_parser(
        "export", help="write a language model unencrypted, as Llama's weights in safetensors"
    )
    export.add_argument("--run", type=Path, required=True, help="folder of the finished run")
    export.add_argument("--keyring", type=Path, help="key ring folder, of a sealed run")
    export.add_argument("--output", type=Path, required=True, help="a new folder")
    export.add_argument("--json", action="store_true", help="print one JSON object")
    track = commands.add_parser("track", help="send a run to a tracking server or file")
    track.add_argument("--run", type=Path, required=True, help="folder of the run")
    _add_tracking(track)
    track.add_argument("--json", action="store_true", help="print one JSON object")
    code = commands.add_parser("code", help="check the code of a model of your own, and name it")
    code.add_argument("--code", type=Path, required=True, metavar="DIR", help="its folder")
    code.add_argument("--model", required=True, metavar="MODULE:CLASS", help="the class")
    _add_option(code)
    return parser


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--source",
        required=True,
        help="digits, a .csv, .parquet or .txt file, a .jsonl file of conversations, a folder of "
        "pictures, or one of texts or of shards (.parquet, .arrow, .jsonl or .tar), which are "
        "streamed",
    )
    add("--target", help="column to predict (tables), or with --task language that of texts")
    add(
        "--task",
        **_TASK.argument,
        help="default: decided by the target column",
    )
    add("--output", type=Path, help="folder that snapshots are kept in, each under its digest")
    add("--keyring", type=Path, help="key ring folder; the rows are then encrypted at rest")
    add("--encoding", help="of a CSV or texts; default: UTF-8, or what a byte order mark says")
    add("--seed", type=int, default=0, help="fixes the split (default 0)")
    add("--holdout", type=float, default=0.2, help="share that training never sees (default 0.2)")
    add("--context", type=int, help="tokens that a text's model looks back on (default 128)")
    add(
        "--vocabulary", type=int, metavar="TOKENS",
        help="learn so many tokens of a text, as pairs of bytes (default: its characters; of "
        "conversations 1,024)",
    )  # fmt: skip
    add(
        "--vocabulary-of", type=Path, metavar="DIR",
        help="cut a text with the vocabulary of the language model that is to learn from it, of "
        "a run (sealed by --keyring or plain) or in Llama's form (default: the text's own)",
    )  # fmt: skip
    _add_features(parser, required=False)
    add("--dry-run", action="store_true", help="check and describe only, write nothing")
    add("--json", action="store_true", help="print the description as one JSON object")


def _add_features(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--features", metavar="JSON", required=required,
        help="feature tables, from which each row of a table gets what was known by its time: "
        '{"time": COLUMN, "tables": {NAME: {"source", "keys", "time", "columns", "withinDays", '
        '"delayHours"}}}',
    )  # fmt: skip


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", type=Path, required=True, help="a snapshot's folder")
    add("--keyring", type=Path, help="key ring folder; model and checkpoint are then encrypted")
    add("--epochs", type=int, help="most passes over the rows (default: by family and size)")
    add("--batch-size", type=int, help="rows of a step over all processes (default: by family)")
    add_hyperparameters(parser)
    add("--layers", type=int, help="of a language model (default 4)")
    add("--heads", type=int, help="of each layer of a language model (default 4)")
    add(
        "--key-value-heads", type=int,
        help="heads of keys and values; each serves as many of the others (default 2)",
    )  # fmt: skip
    add(
        "--class-weights",
        **_CHOICES["class_weights"].argument,
        help="weigh rare classes more (auto: of images, tempered where one has thrice the rows of "
        "another)",
    )
    add(
        "--model",
        default=_CHOICES["model"].default,
        metavar="|".join((*_CHOICES["model"].words, "MODULE:CLASS")),
        help="auto: of a table, a linear model, a network or gradient-boosted trees, as "
        "cross-validation says; network: that alone; mobilenet, efficientnet: light networks of "
        "images; else a torch.nn.Module of your own in --code, as mine.network:Network "
        "(default auto)",
    )
    add("--code", type=Path, metavar="DIR", help="folder of the code of a model of your own")
    add("--code-digest", metavar="SHA256", help="refuse other code than of this digest")
    _add_option(parser)
    add("--seed", type=int, default=0, help="default 0")
    add("--processes", type=int, help="data-parallel processes (default 1)")
    add("--precision", **_CHOICES["precision"].argument, help="default: by the hardware")
    add(
        "--device",
        **_CHOICES["device"].argument,
        help="default: GPUs where there are enough",
    )
    add("--threads", type=int, help="CPU threads of a process (default: its share of the cores)")
    add(
        "--read-ahead", type=int, metavar="BATCHES",
        help="of a streamed dataset, that wait for being learned from (default: as many as have "
        "8,192 rows, 2 to 64)",
    )  # fmt: skip
    add(
        "--tune-seconds", type=float, default=TUNING["seconds"].usual, metavar="S",
        help="that measuring takes at most (default 60)",
    )  # fmt: skip
    add(
        "--shard", type=int, default=1,
        help="processes that divide weights and optimiser among them (FSDP; default 1)",
    )  # fmt: skip
    add(
        "--tensor", type=int, default=1,
        help="processes that divide each layer's matrices, of a text or as a class of your own "
        "says (default 1)",
    )  # fmt: skip
    add(
        "--pipeline", type=int, default=1,
        help="processes that divide the layers, of a text (default 1)",
    )  # fmt: skip
    add(
        "--recompute", **_CHOICES["recompute"].argument,
        help="layers: compute what is in a layer again going back, to save memory (default none)",
    )  # fmt: skip
    add(
        "--compile", **_CHOICES["compile"].argument,
        help="the network by torch.compile; auto: a language model's layers on GPUs, where there "
        "is a C compiler (default auto)",
    )  # fmt: skip
    add(
        "--compression", **_CHOICES["compression"].argument,
        help="of gradients on their way between processes (default none)",
    )  # fmt: skip
    add(
        "--teacher", type=Path, metavar="DIR",
        help="folder of a finished run on the same dataset, whose answers are learned as well",
    )  # fmt: skip
    add("--distil-temperature", type=float, help="softens both models' answers (default 2)")
    add("--distil-weight", type=float, help="share of the teacher in the loss (default 0.7)")
    add(
        "--prune", type=float, default=TRAINING["prune"].usual, metavar="SHARE",
        help="of hidden units or channels, taken out while it learns (default 0, at most 0.9)",
    )  # fmt: skip
    add(
        "--quantisation-aware", action="store_true",
        help="learn the last three tenths of the epochs with the roundings of 8 bits",
    )  # fmt: skip
    add(
        "--start", type=Path, metavar="DIR",
        help="folder of a finished run, or of a model in Llama's form, whose weights it begins "
        "with (default: they are drawn)",
    )  # fmt: skip
    add(
        "--lora-rank", type=int, metavar="R",
        help="of a text, with --start: learn only what of this rank is added to the matrices "
        "(LoRA; default: learn all weights)",
    )  # fmt: skip
    add("--lora-alpha", type=float, help="divided by the rank, times what is added (default 2 R)")
    add(
        "--lora-matrices", **_CHOICES["lora_matrices"].argument,
        help="of each layer, that it is added to (default all)",
    )  # fmt: skip
    add("--checkpoint-every", type=int, default=1, help="epochs between checkpoints (default 1)")
    add(
        "--checkpoint-steps", type=int, metavar="STEPS",
        help="between checkpoints within an epoch (default: of a streamed dataset 1,000, else "
        "there are none)",
    )  # fmt: skip
    add(
        "--resume",
        default="auto",
        choices=("auto", "never"),
        help="auto: go on from a checkpoint of the same run; never: start afresh, replacing",
    )
    add(
        "--adopt", type=Path, metavar="DIR",
        help="take over what was trained before with the same data, parameters and code, from a "
        "folder of runs and of sweeps",
    )  # fmt: skip
    add("--progress", default="text", choices=("json", "text"), help="default: text")
    add("--json", action="store_true", help="the same as --progress json")
    add("--metrics", metavar="ADDRESS:PORT", help="serve figures for Prometheus (default: no)")
    _add_tracking(parser)


def _add_tracking(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--tracking", metavar="URL",
        help="MLflow tracking server that gets parameters, figures, environment and digests: "
        "https://, or http:// on the loopback interface",
    )  # fmt: skip
    add(
        "--tracking-file", type=Path, metavar="FILE",
        help="SQLite file in MLflow's form that gets them instead; made where it isn't there",
    )  # fmt: skip
    add("--tracking-experiment", metavar="NAME", help="what runs are kept under (default falaj)")
    add(
        "--tracking-secret", type=Path, metavar="FILE",
        help="with a token, or user:password (default: the server asks nobody)",
    )  # fmt: skip
    add(
        "--tracking-tag", action="append", default=[], metavar="NAME=VALUE",
        help="that the run has there; may be given more than once",
    )  # fmt: skip
    add("--tracking-authority", type=Path, metavar="PEM", help="whom to trust (default: as usual)")
    add(
        "--tracking-allow", action="append", default=[], metavar="HOST",
        help="outside one's own networks, but in the country; may be given more than once",
    )  # fmt: skip


def add_hyperparameters(parser: argparse.ArgumentParser) -> None:
    """Add those that mean the same wherever a model is trained."""
    add = parser.add_argument
    add("--learning-rate", type=float, help="peak rate (default: by family)")
    add("--weight-decay", type=float, help="default: by family")
    add("--patience", type=int, help="epochs without gain before stopping early (default 20)")
    add("--gradient-clip", type=float, help="largest gradient norm, 0: unlimited (default 1)")
    add(
        "--label-smoothing",
        type=float,
        help="share spread over all classes (default: 0.1 of images)",
    )
    add(
        "--accumulation", type=int, help="parts a batch is computed in, to save memory (default 1)"
    )
    add("--width", type=int, help="channels or hidden units (default: by family)")


def _add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", dest="options",
        help="given to a model of your own; a number, true, false, a JSON list or a text; may be "
        "given more than once",
    )  # fmt: skip


def _dataset(options: argparse.Namespace) -> int:
    from falaj.workloads.training import dataset as datasets  # noqa: PLC0415 - keeps --help fast
    from falaj.workloads.training.snapshot import open_keyring  # noqa: PLC0415

    output: Path | None = None if options.dry_run else options.output
    if output is None and not options.dry_run:
        raise WorkloadError("name the folder for the snapshot (--output), or use --dry-run")
    source = datasets.Source(
        options.source, options.target, options.task, options.encoding, options.seed,
        options.holdout, options.context, *_vocabulary(options), _feature_tables(options.features),
    )  # fmt: skip
    keyring, path = open_keyring(options.keyring), None
    found = datasets.made_before(source, output, keyring) if output is not None else None
    if found is not None:
        description, path = found
    elif output is None:
        description = datasets.build(source).description
    else:
        with datasets.staging(output) as stage:
            dataset = datasets.build(source, stage, keyring)
            path = datasets.write(dataset, output, keyring)
        description = dataset.description
    description = {**description, "path": str(path) if path else None}
    print(json.dumps(description, ensure_ascii=False) if options.json else summary(description))
    return 0


def _feature_tables(given: str | None) -> Features | None:
    if given is None:
        return None
    from falaj.workloads.training import feature_tables  # noqa: PLC0415 - imports pyarrow

    return feature_tables.parse(given)


def _features(options: argparse.Namespace) -> int:
    from falaj.workloads.training import feature_tables  # noqa: PLC0415 - keeps --help fast

    for note in feature_tables.write_joined(
        options.source, feature_tables.parse(options.features), options.output, options.encoding
    ):
        print(note)
    return 0


def _vocabulary(
    options: argparse.Namespace,
) -> tuple[int | Vocabulary | None, Template | None]:
    """What a text is to be cut with: so many tokens that are learned, or those of a model.

    And what that model's conversations are worded with, if it knows any.
    """
    size, folder = options.vocabulary, options.vocabulary_of
    if folder is None:
        return size, None
    if size is not None:
        raise WorkloadError(
            f"--vocabulary {size} learns tokens, and --vocabulary-of {folder} takes those of a "
            "model: leave one of both out"
        )
    from falaj.workloads.training.snapshot import open_keyring  # noqa: PLC0415 - keeps --help fast
    from falaj.workloads.training.start import (  # noqa: PLC0415 - imports torch
        template_of,
        vocabulary_of,
    )

    return vocabulary_of(folder, open_keyring(options.keyring)), template_of(folder)


def summary(description: dict[str, Any]) -> str:
    """Return a dataset's description for people."""
    rows, features, notes = description["rows"], description["features"], description["notes"]
    lines = [
        f"{description['task']} of {description['target']!r} from {len(features)} inputs",
        f"rows: {rows['train']:,} for training, {rows['held_out']:,} held out",
        *(f"note: {note}" for note in notes),
        f"digest: {description['digest']}",
        f"kept in: {description['path'] or '(dry run, nothing written)'}",
    ]
    return "\n".join(lines)


def _code(options: argparse.Namespace) -> int:
    read_options(options.options)
    code = read_folder(options.code)
    find(code, options.model)
    print(json.dumps({"digest": code.digest, "files": list(code.files)}, ensure_ascii=False))
    return 0


def _export(options: argparse.Namespace) -> int:
    from falaj.workloads.training import llama  # noqa: PLC0415 - imports torch
    from falaj.workloads.training.checkpoint import load_trained  # noqa: PLC0415
    from falaj.workloads.training.snapshot import open_keyring  # noqa: PLC0415

    files = llama.write(load_trained(options.run, open_keyring(options.keyring)), options.output)
    if options.json:
        print(json.dumps({"folder": str(options.output), "files": files}))
    else:
        print(f"{options.output}: {', '.join(files)}; none of it is encrypted or signed")
    return 0


def _track(options: argparse.Namespace) -> int:
    from falaj.workloads.training import launcher, tracking  # noqa: PLC0415 - imports torch

    destination = tracking.of_options(options)
    if destination is None:
        raise WorkloadError(
            "missing: --tracking with the address of a server, or --tracking-file with a file"
        )
    run = launcher.track(options.run, destination)
    if options.json:
        print(json.dumps({"run": run, "server": destination.place}))
    else:
        print(f"run {run} of {destination.shown} has the record of {options.run}")
    return 0


def requested_of(options: argparse.Namespace) -> Requested:
    """Return the parameters that were given to ``run`` or ``tune``, checked.

    Raises:
        WorkloadError: one is out of its bounds.
    """
    values = {name: getattr(options, name) for name in Requested.__dataclass_fields__}
    values["options"] = read_options(options.options)
    if values["processes"] is None:
        values["processes"] = int(TRAINING["processes"].usual)
    requested = Requested(**values)
    check(requested)
    return requested


def _given(options: argparse.Namespace) -> frozenset[str]:
    """The settings that were given, among those that are measured."""
    names = ("threads", "processes", "accumulation", "read_ahead", "batch_size")
    given = {name for name in names if getattr(options, name) is not None}
    return frozenset(given | ({"precision"} if options.precision != "auto" else set()))


def _run(options: argparse.Namespace, arguments: list[str]) -> int:
    requested = requested_of(options)
    TUNING["seconds"].check("--tune-seconds", options.tune_seconds)
    # Before torch is imported: that takes seconds in which a signal must not be lost.
    stop = StopRequest()
    stop.install()
    from falaj.workloads.training import launcher  # noqa: PLC0415 - imports torch

    if options.command == "tune":
        return launcher.tune(options, requested, stop, arguments, fixed=_given(options))
    style = "json" if options.json else options.progress
    return launcher.run(options, requested, style, stop, arguments, fixed=_given(options))
