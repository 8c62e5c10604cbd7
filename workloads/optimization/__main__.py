"""``python -m falaj.workloads.optimization --run DIR --dataset DIR --output DIR``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from falaj.workloads.bounds import CHOICES, OPTIMIZATION
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.card_text import candidates

BAD_INPUT = 2

_CHOICES = CHOICES["optimization"]


def main(arguments: list[str]) -> int:
    """Run the command line; return 0, or 2 (refused, the reason is on stderr)."""
    options = build_parser().parse_args(arguments)
    try:
        result = _optimise(options)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    print(json.dumps(result, ensure_ascii=False) if options.json else summary(result))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.optimization",
        description="Export a trained model to ONNX, quantise it to 8 bits and a language model's "
        "weights to 4, and keep fewer bits only if they are accurate enough and faster on this "
        "machine.",
        epilog="Exit status: 0 done; 2 refused, the reason is on stderr.",
    )
    add = parser.add_argument
    add("--run", type=Path, required=True, help="folder of a finished training run")
    add("--dataset", type=Path, required=True, help="folder of the snapshot it was trained on")
    add("--output", type=Path, required=True, help="folder for the models and the record")
    add("--keyring", type=Path, help="key ring of run and dataset; the models are then encrypted")
    add(
        "--max-accuracy-drop",
        type=float,
        default=OPTIMIZATION["max_accuracy_drop"].usual,
        metavar="POINTS",
        help="most percentage points of accuracy (others: per cent of growth of the error or of "
        "the nats) that fewer bits may cost (default %(default)s)",
    )
    add(
        "--quantise",
        **_CHOICES["quantise"].argument,
        help="auto: try 8 bits, and 4 of a language model's weights; int8 or int4: that alone, "
        "even if it isn't faster; never: keep float (default auto)",
    )
    add(
        "--engine",
        **_CHOICES["engine"].argument,
        help="auto: whichever is fastest here of those that are installed and lose little enough "
        "accuracy; or one of them (default auto)",
    )
    add("--threads", type=int, default=1, help="threads while latency is measured (default 1)")
    add(
        "--data-class",
        **_CHOICES["data_class"].argument,
        help="of the data that the model was made from (default internal)",
    )
    add(
        "--least-accuracy",
        type=float,
        metavar="SHARE",
        help="held-out accuracy, 0 to 1, below which nothing is written (default: any will do)",
    )
    add(
        "--most-rmse",
        type=float,
        metavar="ERROR",
        help="of a regression: held-out error above which nothing is written (default: any will "
        "do)",
    )
    add(
        "--most-nats",
        type=float,
        metavar="NATS",
        help="of a language model: held-out nats of a character above which nothing is written "
        "(default: any will do)",
    )
    add(
        "--accept",
        **_CHOICES["accept"].argument,
        help="better: nothing is written of a model that is no better than guessing on held-out "
        "rows, or worse than --served; any: whatever it is (default better)",
    )
    add(
        "--served",
        type=Path,
        metavar="DIR",
        help="folder of the version that serves, REGISTRY/MODEL/versions/N (default: there is "
        "none)",
    )
    add(
        "--served-dataset",
        type=Path,
        metavar="DIR",
        help="snapshot that --served was trained on: it is compared on rows that it never "
        "learned from (default: it is gone)",
    )
    add("--json", action="store_true", help="print the record and the paths as one JSON object")
    return parser


def summary(result: dict[str, Any]) -> str:
    """Return the outcome for people: a line for each model, the decision, the place."""
    lines = [f"{label}: {value}" for label, value in candidates(result)]
    lines.append(f"engine: {result['engine']['reason']}")
    return "\n".join([*lines, result["reason"], f"kept in: {result['path']}"])


def _optimise(options: argparse.Namespace) -> dict[str, Any]:
    # Imported late: torch takes seconds, and --help and wrong options should not.
    from falaj.workloads.optimization.comparison import Gate  # noqa: PLC0415
    from falaj.workloads.optimization.pipeline import Request, optimise  # noqa: PLC0415
    from falaj.workloads.optimization.worth import open_served  # noqa: PLC0415
    from falaj.workloads.training.snapshot import open_keyring  # noqa: PLC0415

    keyring = open_keyring(options.keyring)
    served = None
    if options.served is not None:
        served = open_served(options.served, options.served_dataset, keyring)
    request = Request(
        run=options.run,
        dataset=options.dataset,
        output=options.output,
        keyring=keyring,
        bound_points=options.max_accuracy_drop,
        quantise=options.quantise,
        engine=options.engine,
        threads=options.threads,
        data_class=options.data_class,
        gate=Gate(options.least_accuracy, options.most_rmse, options.most_nats),
        accept=options.accept,
        served=served,
    )
    return optimise(request, lambda message: print(message, file=sys.stderr))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
