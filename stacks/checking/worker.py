"""A process that checks stacks one after another: `python -m stacks.checking.worker`.

Reads what to do from standard input and answers with a line of JSON for each event; what the
commands below it print goes to standard error, which its parent shows when something fails.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from engine.errors import EngineError
from policies.reports.result import StackResult
from stacks.checking.preview import check_stack
from stacks.checking.subject import subject_of
from stacks.command.project import Project, StackFile

_RESULT = TypeAdapter(StackResult)


def main() -> int:
    """Check the stacks that standard input names."""
    task: dict[str, Any] = json.load(sys.stdin)
    project = Project.find(Path(task["project"]))
    events = sys.stdout
    for name in task["stacks"]:
        print(json.dumps({"event": "started", "stack": name}), file=events, flush=True)
        # Whatever says something below must not mix with the events.
        with contextlib.redirect_stdout(sys.stderr):
            try:
                result = check_stack(subject_of(StackFile(name, project)), strict=task["strict"])
            except EngineError as error:
                result = StackResult(name, project.name, "preview", errors=(str(error),))
        text = _RESULT.dump_json(result).decode()
        print(json.dumps({"event": "done", "stack": name, "result": text}), file=events, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
