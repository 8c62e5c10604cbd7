"""What the exit status of a training process means, and what a scheduler makes of it.

The table stands here once. Whoever starts the workloads reads it from a file that this module
writes, and that a test compares with it::

    python -m falaj.workloads.exits > components/specification/workload_exits.json

A program of a team's own is judged by the same table. Its 1 is what Python ends with for any
exception that nobody caught, and what torchrun ends with whenever one of its processes failed,
however that one ended: nobody can tell a mistake in the program from a GPU that broke by it. So
it costs one attempt, and only what is surely the program's or the person's fault ends at once.
https://docs.python.org/3/library/sys.html#sys.exit,
https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/errors
/__init__.py (`ChildFailedError`, which torchrun lets through).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from falaj.workloads.errors import FAULT, HARDWARE, LOST, REFUSED, STOPPED

END: Final = "end"
"""The job is over at once: the same would come again."""
RETRY: Final = "retry"
"""All starts again from the last checkpoint, which costs one of the restarts that it may have."""
FREE: Final = "free"
"""All starts again from the last checkpoint, and it costs nothing."""
DONE: Final = "done"


@dataclass(frozen=True)
class Exit:
    """What one exit status means.

    Attributes:
        code: the status.
        name: a word for it.
        then: `DONE`, `END`, `RETRY` or `FREE`.
        meaning: for people.
    """

    code: int
    name: str
    then: str
    meaning: str


EXITS: Final = (
    Exit(0, "done", DONE, "the work is done"),
    Exit(
        FAULT,
        "unknown",
        RETRY,
        "an exception that nobody caught, of unknown cause",
    ),
    Exit(REFUSED, "refused", END, "arguments, settings or data that can't be used"),
    Exit(HARDWARE, "hardware", RETRY, "a GPU or its driver failed"),
    Exit(LOST, "lost", RETRY, "other processes or machines of the run have gone"),
    Exit(STOPPED, "stopped", FREE, "stopped on request, with a checkpoint"),
)
"""All that the workloads end with. Whatever else there is, signals above all, is tried again as
`RETRY` has it."""


def document() -> str:
    """Return the table as JSON."""
    return json.dumps([asdict(each) for each in EXITS], indent=1) + "\n"


if __name__ == "__main__":
    print(document(), end="")
