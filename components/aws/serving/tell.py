"""Sends what a failed start of the server left in the machine's journal to the tier's log.

Only a running server's container writes there by itself; a key ring that may not be read, or an
image that can't be pulled, would be told in a journal that nobody can read. Runs on machines,
beside `fetch.py`, after each end of the server's unit (``tell.py SETTINGS``, a file), with what
systemd says of that end in its environment. Needs Python 3.9 and its standard library.

Settings: ``region``; ``log_group``, the name of the group.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import fetch  # beside it on the machine

#: 1,048,576 bytes are allowed in one call, counting 26 for each event: a character has 4 at most.
#: docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutLogEvents.html
_LINES = 100
_CHARACTERS = 2_000
_EXISTS = "ResourceAlreadyExistsException"


def journal(invocation: str) -> list[dict[str, Any]]:
    """The newest lines of one run of a unit, the oldest first, as events of a log."""
    # What was written last may be under way to the journal.
    subprocess.run(["journalctl", "--sync"], check=False)
    command = ["journalctl", "--no-pager", "--output=json", f"--lines={_LINES}"]
    done = subprocess.run(
        [*command, f"_SYSTEMD_INVOCATION_ID={invocation}"], check=True, stdout=subprocess.PIPE
    )
    return [_event(json.loads(line)) for line in done.stdout.splitlines() if line.strip()]


def _event(entry: dict[str, Any]) -> dict[str, Any]:
    """https://systemd.io/JOURNAL_EXPORT_FORMATS/#journal-json-format: text that isn't UTF-8 is a
    list of bytes, and time is in microseconds."""
    message = entry.get("MESSAGE") or ""
    if isinstance(message, list):
        message = bytes(cast("list[int]", message)).decode(errors="replace")
    # An event without text is refused.
    text = f"{entry.get('SYSLOG_IDENTIFIER', 'unit')}: {message}"
    return {
        "timestamp": int(entry["__REALTIME_TIMESTAMP"]) // 1_000,
        "message": text[:_CHARACTERS],
    }


def tell(settings: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Send events to a stream of the machine's own.

    Raises:
        RefusedError: the log, or the machine's own service, refused or can't be reached.
    """
    logs = fetch.Service("logs", settings["region"], fetch.credentials())
    place = {
        "logGroupName": settings["log_group"],
        "logStreamName": f"machine/{fetch.metadata('instance-id')}",
    }
    try:
        logs.ask("Logs_20140328.CreateLogStream", place)
    except fetch.RefusedError as refusal:
        if _EXISTS not in str(refusal):
            raise
    logs.ask("Logs_20140328.PutLogEvents", {**place, "logEvents": events})


if __name__ == "__main__":
    if os.environ.get("SERVICE_RESULT") == "success":
        sys.exit()
    try:
        found = journal(os.environ["INVOCATION_ID"])
        if found:
            tell(json.loads(Path(sys.argv[1]).read_text()), found)
    except (fetch.RefusedError, OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
