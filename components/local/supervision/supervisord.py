"""Supervision by supervisord, one for each program, where there is no systemd for users."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
import xmlrpc.client
from pathlib import Path
from typing import Any, Final, cast

from supervisor.xmlrpc import SupervisorTransport

from falaj.components.local.machine import files, processes
from falaj.components.local.machine.errors import LocalError
from falaj.components.local.supervision.program import REFUSED, Program, Status

#: A socket's path may be 107 bytes long (unix(7)); supervisord first binds PATH.PID.
_LONGEST_SOCKET: Final = 107 - len(".4194304")
_ANSWER_LIMIT_S: Final = 20.0
_GRACE_S: Final = 10
_GONE: Final = (OSError, http.client.HTTPException, xmlrpc.client.Error)

_ACTIVE: Final = {"RUNNING", "STARTING", "BACKOFF", "STOPPING"}


class Supervisord:
    """Talks to a daemonised supervisord over its private socket."""

    kind: str = "supervisord"

    def start(self, program: Program) -> None:
        """Keep the program running; changed settings restart the supervisor with it."""
        files.make_folder(program.files)
        settings = _settings(program)
        path = program.files / "supervisord.conf"
        unchanged = path.is_file() and path.read_text(encoding="utf-8") == settings
        if unchanged and _answers(program):
            if self.status(program).pid is None:
                _call(program, "startProcess", program.name)
            return
        self._end(program)
        files.write_file(path, settings.encode())
        _launch(program, path)

    def restart(self, program: Program) -> None:
        """Stop the process gracefully, then start it with the settings of now."""
        if _answers(program) and self.status(program).pid is not None:
            _call(program, "stopProcess", program.name)
        (program.files / "starts").unlink(missing_ok=True)
        self.start(program)

    def status(self, program: Program) -> Status:
        """What supervisord says."""
        try:
            info = cast("dict[str, Any]", _proxy(program).supervisor.getProcessInfo(program.name))
        except _GONE:
            return Status(running=False, detail="its supervisor is not running")
        state = str(info["statename"])
        pid = int(info["pid"]) or None
        ended = state in {"EXITED", "FATAL"}
        return Status(
            running=state in _ACTIVE,
            pid=pid,
            exit_status=int(info["exitstatus"]) if ended else None,
            detail=str(info["spawnerr"] or info["description"] or state.lower()),
        )

    def remove(self, program: Program) -> None:
        """Shut the supervisor down with its program."""
        self._end(program)
        files.remove_tree(program.files)

    def _end(self, program: Program) -> None:
        pid = processes.read_pid(_pid_file(program))
        words = _words(program)
        with contextlib.suppress(*_GONE):
            _proxy(program).supervisor.shutdown()
        patience = program.stop_seconds + 2 * _GRACE_S
        deadline = time.monotonic() + patience
        while processes.is_running(pid, words) and time.monotonic() < deadline:
            time.sleep(0.05)
        # Those that don't answer, or whose pid file is gone.
        for other in processes.find(words):
            processes.end(other, words, patience_s=patience)
        program.end_orphans()
        _socket(program).unlink(missing_ok=True)


def _launch(program: Program, settings: Path) -> None:
    (program.files / "starts").unlink(missing_ok=True)
    # It daemonises itself: a new session, so it outlives the deployment and its terminal.
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.supervisord", "-c", str(settings)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=program.directory,
        env=dict(program.environment),
        check=False,
    )
    if done.returncode != 0:
        raise LocalError(f"supervisord can't start: {(done.stderr or done.stdout).strip()}")
    deadline = time.monotonic() + _ANSWER_LIMIT_S
    while not _answers(program):
        if time.monotonic() > deadline:
            log = program.files / "supervisord.log"
            raise LocalError(f"supervisord was started but doesn't answer; its log is {log}")
        time.sleep(0.05)


def _settings(program: Program) -> str:
    """The configuration; see https://supervisord.org/configuration.html."""
    command = " ".join(_quote(part) for part in program.throttled_command)
    log = program.folder / "logs" / "server.log"
    files.make_folder(log.parent)
    return f"""\
[unix_http_server]
file={_plain(_socket(program))}
chmod=0700

[supervisord]
identifier={program.label}
pidfile={_plain(_pid_file(program))}
logfile={_plain(program.files / "supervisord.log")}
logfile_maxbytes=1MB
logfile_backups=1
childlogdir={_plain(program.files)}
umask=077
nodaemon=false

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[program:{program.name}]
command={command}
directory={_plain(program.directory)}
autostart=true
; Status 0 (asked to leave) and {REFUSED} (can't work with what it was given) are not restarted;
; startsecs=0 makes that hold from the first second, and the launcher slows down other failures.
autorestart=unexpected
exitcodes=0,{REFUSED}
startsecs=0
stopsignal=TERM
stopwaitsecs={program.stop_seconds + _GRACE_S}
killasgroup=true
redirect_stderr=true
; This one is expanded twice (supervisor 4.3).
stdout_logfile={_plain(Path(_plain(log)))}
stdout_logfile_maxbytes=5MB
stdout_logfile_backups=2
"""


def _plain(path: Path) -> str:
    text = str(path)
    if "\n" in text or ";" in text:
        raise LocalError(
            f"the folder {text!r} can't be used: its name holds a line break or a semicolon, "
            "which supervisord doesn't take; choose another data folder (FALAJ_HOME)"
        )
    return text.replace("%", "%%")


def _quote(part: str) -> str:
    # supervisord splits with shlex; single quotes keep all but themselves.
    quoted = "'" + part.replace("'", "'\"'\"'") + "'"
    return _plain(Path(quoted)) if "/" in part else quoted.replace("%", "%%")


def _pid_file(program: Program) -> Path:
    return program.files / "supervisord.pid"


def _words(program: Program) -> tuple[str, ...]:
    return ("supervisor.supervisord", str(program.files / "supervisord.conf"))


def _socket(program: Program) -> Path:
    """The socket: in the program's folder, or in a private short one when that is too long."""
    near = program.files / "control.sock"
    if len(os.fsencode(near)) <= _LONGEST_SOCKET:
        return near
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"falaj-{os.getuid()}"
    files.make_folder(folder)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise LocalError(f"{folder} belongs to someone else; set XDG_RUNTIME_DIR to a private one")
    digest = hashlib.sha256(os.fsencode(program.files)).hexdigest()[:16]
    return folder / f"{digest}.sock"


def _proxy(program: Program) -> Any:
    transport = SupervisorTransport(None, None, f"unix://{_socket(program)}")
    # The address is not used: the transport knows the socket.
    return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)


def _answers(program: Program) -> bool:
    try:
        state = cast("dict[str, Any]", _proxy(program).supervisor.getState())
    except _GONE:
        return False
    return state["statename"] == "RUNNING"


def _call(program: Program, method: str, *arguments: str) -> None:
    try:
        getattr(_proxy(program).supervisor, method)(*arguments)
    except xmlrpc.client.Fault as fault:
        # Already in the wanted state: someone else was faster.
        if "ALREADY_STARTED" not in fault.faultString and "NOT_RUNNING" not in fault.faultString:
            raise LocalError(f"supervisord refused {method}: {fault.faultString}") from None
    except _GONE as error:
        raise LocalError(f"supervisord doesn't answer to {method}: {error}") from None
