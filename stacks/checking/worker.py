"""A process that checks stacks one after another: `python -m falaj.stacks.checking.worker`.

Reads what to do from standard input and answers with a line of JSON for each event; what the
commands below it print goes to standard error, which its parent shows when something fails.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from falaj.engine.commands import INTERRUPTED
from falaj.engine.errors import EngineError
from falaj.policies.reports.result import StackResult
from falaj.stacks.checking.preview import check_stack
from falaj.stacks.checking.subject import subject_of
from falaj.stacks.command.project import Project, StackFile

_RESULT = TypeAdapter(StackResult)


def main() -> int:
    """Check the stacks that standard input names, until somebody ends it."""
    interrupted = False

    def note(*_: object) -> None:
        # The engine was told as well: it ends its plugins, and then the check of this stack ends.
        nonlocal interrupted
        interrupted = True

    signal.signal(signal.SIGINT, note)
    task: dict[str, Any] = json.load(sys.stdin)
    project = Project.find(Path(task["project"]))
    # Whatever is said below, by us or by the engine, must not mix with the events.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as events:
        os.dup2(2, 1)
        for name in task["stacks"]:
            if interrupted:
                return INTERRUPTED
            print(json.dumps({"event": "started", "stack": name}), file=events, flush=True)
            given = task["given"].get(name)
            stack = StackFile(name, project, Path(given) if given else None)
            try:
                result = _checked(stack, task["strict"], name in task["grounds"])
            except KeyboardInterrupt:
                # An operation on what the stack stands on was told, and it alone.
                return INTERRUPTED
            text = _RESULT.dump_json(result).decode()
            done = {"event": "done", "stack": name, "result": text}
            print(json.dumps(done), file=events, flush=True)
    return 0


def _checked(stack: StackFile, strict: bool | None, is_ground: bool) -> StackResult:
    try:
        return check_stack(subject_of(stack), strict=strict, is_ground=is_ground)
    except EngineError as error:
        return StackResult(stack.name, stack.project.name, "nobody", errors=(str(error),))


if __name__ == "__main__":
    sys.exit(main())
