"""``python -m falaj.workloads.batch run|open``: predictions for files, and sealed ones opened.

Exit statuses are those of the workloads: 0 done, 2 refused, 75 stopped with what was done kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from falaj.workloads.batch import prediction
from falaj.workloads.batch.prediction import Batch, Request, StoppedError
from falaj.workloads.bounds import BATCH, DECIMALS
from falaj.workloads.errors import REFUSED, STOPPED, WorkloadError
from falaj.workloads.files import replacing
from falaj.workloads.registry.keyring import KeyRing, read_public_key
from falaj.workloads.registry.sealed import SUFFIX as SEALED
from falaj.workloads.registry.store import PRODUCTION
from falaj.workloads.training.stopping import StopRequest

DONE: Final = 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="falaj.workloads.batch", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="predict the rows of files")
    option = run.add_argument
    option(
        "inputs", nargs="+", type=Path, metavar="FILE",
        help=".csv, .jsonl or .parquet, a folder of them, or a dataset snapshot",
    )  # fmt: skip
    option(
        "--output", type=Path, required=True, metavar="FILE",
        help=".csv, .jsonl or .parquet; sealed it gets .sealed behind",
    )  # fmt: skip
    option("--registry", type=Path, required=True, help="the registry's folder")
    option("--model", required=True, help="the model's name")
    which = run.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="default: what --alias stands for")
    which.add_argument("--alias", default=PRODUCTION, help="default: %(default)s")
    option(
        "--keyring", type=Path, required=True, metavar="DIR",
        help="opens the package, seals the output",
    )  # fmt: skip
    option(
        "--package-keyring", type=Path, metavar="DIR",
        help="opens the package in its stead, of a model whose keys aren't those of the output",
    )  # fmt: skip
    option(
        "--verify-key", type=Path, metavar="FILE",
        help="trusted public key, PEM; default: signing.pub.pem of what opens the package",
    )  # fmt: skip
    option(
        "--keep", action="append", default=[], metavar="COLUMN",
        help="column of the input that goes along; may be given again, '*' is all; default: none",
    )  # fmt: skip
    option("--encoding", help="of CSV files; default: UTF-8, or what the byte order mark says")
    option(
        "--decimal", choices=tuple(DECIMALS),
        help="what stands before decimals; default: told by each column",
    )  # fmt: skip
    option("--plain", action="store_true", help="don't seal the output")
    option(
        "--skip-bad-rows", action="store_true",
        help="write rows that can't be predicted to a file beside; default: refuse",
    )  # fmt: skip
    option(
        "--raw-text", action="store_true",
        help="in a CSV, leave text as it is that a spreadsheet would take for a formula",
    )  # fmt: skip
    option("--threads", type=int, help="of the runtime; default: one for each core")
    option(
        "--shard", default="0/1", metavar="I/N",
        help="which of N equal shares of the rows, from 0; default: all rows",
    )  # fmt: skip
    option("--restart", action="store_true", help="throw away what an earlier run has done")
    option("--overwrite", action="store_true", help="replace an output that is there")
    option("--dry-run", action="store_true", help="check model and rows; write nothing")
    option(
        "--progress", choices=("text", "json"), default="text",
        help="text on stderr, or an event a line on stdout; default: %(default)s",
    )  # fmt: skip
    option("--json", action="store_true", help="print one JSON object on the last line")
    show = commands.add_parser("open", help="write sealed predictions out in plain")
    show.add_argument("sealed", type=Path, metavar="FILE", help="the .sealed file")
    show.add_argument("--keyring", type=Path, required=True, metavar="DIR", help="its key ring")
    show.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; a person's mistake never shows a trace."""
    options = parser().parse_args(arguments)
    try:
        return _open(options) if options.command == "open" else _run(options)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except StoppedError:
        print("stopped; what was done is kept, run it again to go on", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        # The reader of our output left (``… | head``). Nothing more can be said to it.
        sys.stderr.close()
        return REFUSED


def _run(options: argparse.Namespace) -> int:
    stop = StopRequest()
    stop.install()
    progress = Progress(options.progress)
    batch = Batch(_request(options))
    for note in _notes(batch):
        progress.say(note)
    batch.survey(progress.tell, stop.asked)
    if options.dry_run:
        answer: dict[str, Any] = {
            "dry_run": True, "rows": batch.rows, "bad_rows": batch.bad_rows,
            "columns": batch.columns, "path": str(batch.path), **batch.job(),
        }  # fmt: skip
        text = (
            f"{batch.rows:,} rows can be read, {batch.bad_rows:,} of them are bad; "
            f"{batch.path} would get the columns {', '.join(batch.columns)}"
        )
    else:
        answer = batch.run(progress.tell, stop.asked, progress.say)
        text = _summary(answer)
    progress.end()
    print(json.dumps(answer, ensure_ascii=False) if options.json else text, flush=True)
    return DONE


def _notes(batch: Batch) -> list[str]:
    notes: list[str] = []
    if batch.others:
        notes.append(f"{batch.others:,} files of other kinds are left out")
    if batch.beside:
        shown = ", ".join(map(repr, batch.beside[:20])) + (", …" if len(batch.beside) > 20 else "")
        notes.append(f"columns that the model doesn't take: {shown}")
    return notes


def _summary(answer: dict[str, Any]) -> str:
    model = answer["model"]
    lines = [
        f"{answer['rows']:,} rows predicted by {model['name']} version {model['version']}: "
        f"{answer['path']}"
    ]
    if answer["already"]:
        lines[0] += " (was done already)"
    if answer["bad_rows"]:
        lines.append(f"{answer['bad_rows']:,} bad rows: {answer['bad_rows_file']}, beside it")
    if answer["escaped"]:
        lines.append(
            f"{answer['escaped']:,} texts that a spreadsheet would run as a formula got ' before "
            "them; --raw-text leaves them as they are"
        )
    return "\n".join(lines)


def _request(options: argparse.Namespace) -> Request:
    threads = options.threads
    if threads is None:
        threads = min(len(os.sched_getaffinity(0)), int(BATCH["threads"].high))
    else:
        BATCH["threads"].check("--threads", threads)
    output: Path = options.output
    return Request(
        inputs=tuple(options.inputs),
        output=output.with_name(output.name.removesuffix(SEALED)),
        registry=options.registry,
        model=options.model,
        keyring=KeyRing.open(options.keyring),
        package_keyring=KeyRing.open(options.package_keyring) if options.package_keyring else None,
        version=options.version,
        alias=options.alias,
        verify_key=read_public_key(options.verify_key) if options.verify_key else None,
        keep=tuple(options.keep),
        encoding=options.encoding,
        decimal=options.decimal,
        plain=options.plain,
        skip_bad_rows=options.skip_bad_rows,
        raw_text=options.raw_text,
        threads=threads,
        shard=_shard(options.shard),
        restart=options.restart,
        overwrite=options.overwrite,
    )


def _shard(text: str) -> tuple[int, int]:
    share, _, shares = text.partition("/")
    bound = BATCH["shards"]
    if not (share.isdecimal() and shares.isdecimal() and bound.allows(int(shares))):
        raise WorkloadError(
            f"--shard is {text!r}: allowed is I/N, N from {bound.description}, I from 0 to N-1"
        )
    if int(share) >= int(shares):
        raise WorkloadError(f"--shard is {text!r}: allowed is 0/{shares} to {int(shares) - 1}/…")
    return int(share), int(shares)


def _open(options: argparse.Namespace) -> int:
    pieces = prediction.opened(options.sealed, KeyRing.open(options.keyring))
    if options.output is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return DONE
    if options.output.resolve() == options.sealed.resolve():
        raise WorkloadError("--output is the sealed file itself: give another place")
    with replacing(options.output) as file:
        for piece in pieces:
            file.write(piece)
    print(f"wrote {options.output}, in plain", file=sys.stderr)
    return DONE


_EVERY_SECONDS: Final = {"json": 1.0, "text": 5.0}
_TERMINAL_SECONDS: Final = 0.2


@dataclass
class Progress:
    """Says how far a run is, now and then.

    Args:
        style: ``json`` (an event a line on stdout) or ``text`` (on stderr).
    """

    style: str
    _doing: str = ""
    _from: int = 0
    _begun: float = 0.0
    _said: float = field(default_factory=time.monotonic)

    def tell(self, doing: str, rows: int, of: int) -> None:
        """Say what is done, how many rows of how many, how fast and how long it will take."""
        now = time.monotonic()
        if doing != self._doing:
            # What an earlier run has done says nothing about how fast this one is.
            self._doing, self._from, self._begun = doing, rows, now
        in_place = self.style == "text" and sys.stderr.isatty()
        every = _TERMINAL_SECONDS if in_place else _EVERY_SECONDS[self.style]
        if now - self._said < every:
            return
        self._said = now
        speed = (rows - self._from) / max(now - self._begun, 1e-9)
        message = f"{doing}: {rows:,} rows, {speed:,.0f}/s"
        if of:
            message += f", {rows / of:.0%}"
            if speed:
                message += f", {max(0, of - rows) / speed:,.0f} s left"
        self._write(message, end="\r" if in_place else "\n", rows=rows, of=of)

    def say(self, message: str) -> None:
        """Say something that stays."""
        self._write(message)

    def end(self) -> None:
        """Leave the line that was written over."""
        if self.style == "text" and sys.stderr.isatty():
            sys.stderr.write("\x1b[K")
            sys.stderr.flush()

    def _write(self, message: str, end: str = "\n", **fields: Any) -> None:
        if self.style == "json":
            print(json.dumps({"event": "progress", **fields, "message": message}), flush=True)
        else:
            clear = "\x1b[K" if end == "\r" else ""
            sys.stderr.write(f"{message}{clear}{end}")
            sys.stderr.flush()
