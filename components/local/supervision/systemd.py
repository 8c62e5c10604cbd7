"""Supervision by the user's own systemd."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from falaj.components.local.machine import files
from falaj.components.local.machine.errors import LocalError
from falaj.components.local.supervision.program import REFUSED, Program, Status

_GRACE_S: Final = 10
_ASK_LIMIT_S: Final = 10


def is_usable() -> bool:
    """Whether the user has a systemd that runs units; false in most containers."""
    if shutil.which("systemctl") is None:
        return False
    try:
        asked = _systemctl("is-system-running")
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.strip() in {"running", "degraded", "starting"}


def survives_logout() -> bool:
    """Whether the user's systemd goes on without a session (``loginctl enable-linger``)."""
    return Path("/var/lib/systemd/linger", getpass.getuser()).exists()


class Systemd:
    """Writes a unit for each program and lets systemd keep it."""

    kind: str = "systemd"

    def start(self, program: Program) -> None:
        """Write the unit, enable it for the next login or boot, and start it."""
        files.make_folder(program.files)
        path = _unit_path(program)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = unit(program)
        changed = not path.is_file() or path.read_text(encoding="utf-8") != text
        running = self.status(program).running
        if changed:
            files.write_file(path, text.encode(), 0o644)
            _require("daemon-reload")
        if not running:
            program.end_orphans()
        _require("reset-failed", _unit_name(program), may_fail=True)
        _require("enable", _unit_name(program))
        _require("restart" if changed and running else "start", _unit_name(program))

    def restart(self, program: Program) -> None:
        """Stop the process gracefully, then start it with the settings of now."""
        if self.status(program).running:
            _require("stop", _unit_name(program))
        (program.files / "starts").unlink(missing_ok=True)
        self.start(program)

    def status(self, program: Program) -> Status:
        """What systemd says."""
        properties = "ActiveState,SubState,MainPID,ExecMainStatus"
        try:
            shown = _systemctl("show", "--property", properties, _unit_name(program)).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            return Status(running=False, detail=str(error))
        values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        state = values.get("ActiveState", "inactive")
        running = state in {"active", "activating", "reloading"}
        pid = int(values.get("MainPID") or 0) or None
        exit_status = None if running else int(values.get("ExecMainStatus") or 0)
        return Status(running, pid, exit_status, f"{state} ({values.get('SubState', '?')})")

    def remove(self, program: Program) -> None:
        """Stop and forget the unit."""
        path = _unit_path(program)
        if path.exists():
            _require("disable", "--now", _unit_name(program))
            path.unlink(missing_ok=True)
            _require("daemon-reload")
            _require("reset-failed", _unit_name(program), may_fail=True)
        program.end_orphans()
        files.remove_tree(program.files)


def unit(program: Program) -> str:
    """The unit's text; see systemd.service(5) and systemd.exec(5)."""
    command = " ".join(_quote(part) for part in program.throttled_command)
    return f"""\
[Unit]
Description=Falaj: {program.name}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={str(program.directory).replace("%", "%%")}
UMask=0077
Restart=on-failure
RestartSec=0
RestartPreventExitStatus={REFUSED}
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={program.stop_seconds + _GRACE_S}
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def _quote(part: str) -> str:
    escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _unit_name(program: Program) -> str:
    return f"{program.label}.service"


def _unit_path(program: Program) -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "systemd" / "user" / _unit_name(program)


def _systemctl(*arguments: str, limit_s: float = _ASK_LIMIT_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemctl", "--user", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def _require(*arguments: str, may_fail: bool = False) -> None:
    try:
        done = _systemctl(*arguments, limit_s=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(f"systemctl --user {' '.join(arguments)} failed: {error}") from None
    if done.returncode != 0 and not may_fail:
        reason = (done.stderr or done.stdout).strip()
        raise LocalError(f"systemctl --user {' '.join(arguments)} failed: {reason}")
