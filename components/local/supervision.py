"""Keeps a program running after the deployment has ended: systemd's user units, or supervisord."""

from __future__ import annotations

import contextlib
import fnmatch
import getpass
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xmlrpc.client
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast

from supervisor.xmlrpc import SupervisorTransport

from falaj.components.local import machine
from falaj.components.local.arguments import AUTO, SUPERVISORS
from falaj.components.local.machine import LocalError

# What a supervisor keeps running, and what it can say about it.

_LAUNCHER: Final = Path(__file__).with_name("provider") / "launch.py"

HANDED_ON: Final = (
    # Who runs it, where its files are, and how texts and times are written.
    "HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "LANG", "LANGUAGE", "LC_*", "TZ",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
    # Where Python and libraries are found, and whom they trust.
    "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "FALAJ_HOME", "FALAJ_CACHE",
    # Accelerators and threads.
    "CUDA_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME", "PYTORCH_*", "TORCH_*", "OMP_*", "KMP_*", "MKL_*", "OPENBLAS_*",
)  # fmt: skip
"""Variables of the environment that a program gets of the one that starts it, and no others: what
a shell holds beside them (passphrases, keys of clouds, tokens) is none of its business."""

_FOLDERS: Final = (
    "FALAJ_HOME", "FALAJ_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
)  # fmt: skip
"""Those that a unit of systemd names, as its manager knows nothing of a shell's: without them a
program would look for its files elsewhere. Others differ from shell to shell, and each difference
would be a restart."""

REFUSED: Final = 2
"""Exit status of a program that can't work with what it was given: it is not started again."""


_LINE_ENDS: Final = frozenset("\n\r\0")
"""What ends a line of supervisord's and systemd's files, quoted or not; a zero byte ends any
argument of a program."""


def is_on_lines(text: str) -> bool:
    """Whether a text can't stand on one line of a supervisor's file."""
    return not _LINE_ENDS.isdisjoint(text)


@dataclass(frozen=True)
class Program:
    """A program that is to be kept running.

    Attributes:
        name: short name; with `folder` it is unique on the machine.
        folder: where the supervisor keeps its own files; private to the program.
        command: absolute executable and arguments; never a secret.
        directory: working directory.
        stop_seconds: how long it may take to leave after SIGTERM.
        process_marks: what the command line of its process holds, by which it is recognised.
        environment: environment of the process.
        log_name: of the file in ``logs`` that supervisord keeps of what it prints. Default:
            ``server.log``.

    Raises:
        LocalError: its command, or a folder of its own or its environment, holds what no
            supervisor's file can say.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    directory: Path
    stop_seconds: int
    process_marks: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    log_name: str = "server.log"

    def __post_init__(self) -> None:
        folders = [self.environment.get(name, "") for name in _FOLDERS]
        for text in (*self.command, str(self.directory), str(self.folder), *folders):
            if is_on_lines(text):
                raise LocalError(
                    f"the program {self.name} can't be kept running: {text!r} holds a line break "
                    "or a zero byte, which no supervisor's file can say; choose another "
                    f"command, or another folder ({', '.join(_FOLDERS)})"
                )

    @property
    def files(self) -> Path:
        """Folder of the supervisor's own files."""
        return self.folder / "supervisor"

    @property
    def label(self) -> str:
        """A name that no other program of the machine has."""
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        return f"falaj-{digest}-{self.name}"

    @property
    def throttled_command(self) -> tuple[str, ...]:
        """The command behind the launcher that slows down repeated failures."""
        starts = str(self.files / "starts")
        names = ",".join(HANDED_ON)
        return (sys.executable, "-I", str(_LAUNCHER), starts, names, *self.command)

    def end_orphans(self) -> None:
        """End processes of this program that no supervisor looks after any more.

        Raises:
            LocalError: one doesn't end.
        """
        for pid in machine.find_processes(self.process_marks):
            machine.end_process(pid, self.process_marks, patience_s=self.stop_seconds)


@dataclass(frozen=True)
class Status:
    """What a supervisor says about a program.

    Attributes:
        running: whether the process is there (or is about to be started again).
        pid: its process id, if it is there.
        exit_status: with which status it ended, if it did and stays so.
        detail: in words.
    """

    running: bool
    pid: int | None = None
    exit_status: int | None = None
    detail: str = ""


class Supervisor(Protocol):
    """Keeps programs running: starts them again when they end, but not after exit status 2."""

    kind: str

    def start(self, program: Program) -> None:
        """Keep a program running from now on; one that runs already with these settings stays.

        Raises:
            LocalError: it can't be started.
        """
        ...

    def restart(self, program: Program) -> None:
        """Stop the program and start it again.

        Raises:
            LocalError: it can't be stopped or started.
        """
        ...

    def status(self, program: Program) -> Status:
        """What is true now; never raises for a supervisor that is gone."""
        ...

    def remove(self, program: Program) -> None:
        """Stop the program and forget it; nothing of either is left, and gone is fine.

        Raises:
            LocalError: it can't be stopped.
        """
        ...


def handed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that programs get."""
    return {
        name: value
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in HANDED_ON)
    }


# Supervision by the user's own systemd.

_SYSTEMCTL_S: Final = 10


def is_systemd_usable() -> bool:
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
        machine.make_folder(program.files)
        path = _unit_path(program)
        machine.make_missing_folders(path.parent)
        text = systemd_unit(program)
        changed = not path.is_file() or path.read_text(encoding="utf-8") != text
        running = self.status(program).running
        if changed:
            machine.write_file(path, text.encode(), 0o644)
            _require_systemctl("daemon-reload")
        if not running:
            program.end_orphans()
        _require_systemctl("reset-failed", _unit_name(program), may_fail=True)
        _require_systemctl("enable", _unit_name(program))
        _require_systemctl("restart" if changed and running else "start", _unit_name(program))

    def restart(self, program: Program) -> None:
        """Stop the process gracefully, then start it with the settings of now."""
        if self.status(program).running:
            _require_systemctl("stop", _unit_name(program))
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
            _require_systemctl("disable", "--now", _unit_name(program))
            path.unlink(missing_ok=True)
            _require_systemctl("daemon-reload")
            _require_systemctl("reset-failed", _unit_name(program), may_fail=True)
        program.end_orphans()
        machine.remove_tree(program.files)


def systemd_unit(program: Program) -> str:
    """The unit's text; see systemd.service(5) and systemd.exec(5)."""
    command = " ".join(_quote_for_systemd(part) for part in program.throttled_command)
    environment = "".join(
        # Unlike a command's, its dollars stand for themselves.
        f"Environment={_quote_for_systemd(f'{name}={value}').replace('$$', '$')}\n"
        for name in _FOLDERS
        if (value := program.environment.get(name))
    )
    return f"""\
[Unit]
Description=Falaj: {program.name}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
{environment}WorkingDirectory={str(program.directory).replace("%", "%%")}
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


def _quote_for_systemd(part: str) -> str:
    escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _unit_name(program: Program) -> str:
    return f"{program.label}.service"


def _unit_path(program: Program) -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "systemd" / "user" / _unit_name(program)


def _systemctl(*arguments: str, limit_s: float = _SYSTEMCTL_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemctl", "--user", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def _require_systemctl(*arguments: str, may_fail: bool = False) -> None:
    try:
        done = _systemctl(*arguments, limit_s=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(f"systemctl --user {' '.join(arguments)} failed: {error}") from None
    if done.returncode != 0 and not may_fail:
        reason = (done.stderr or done.stdout).strip()
        raise LocalError(f"systemctl --user {' '.join(arguments)} failed: {reason}")


# Supervision by supervisord, one for each program, where there is no systemd for users.

#: A socket's path may be 107 bytes long (unix(7)); supervisord first binds PATH.PID.
_LONGEST_SOCKET: Final = 107 - len(".4194304")
_SUPERVISORD_S: Final = 20.0
_GRACE_S: Final = 10
_GONE: Final = (OSError, http.client.HTTPException, xmlrpc.client.Error)

_ACTIVE: Final = {"RUNNING", "STARTING", "BACKOFF", "STOPPING"}


class Supervisord:
    """Talks to a daemonised supervisord over its private socket."""

    kind: str = "supervisord"

    def start(self, program: Program) -> None:
        """Keep the program running; changed settings restart the supervisor with it."""
        machine.make_folder(program.files)
        settings = _supervisord_settings(program)
        path = program.files / "supervisord.conf"
        unchanged = path.is_file() and path.read_text(encoding="utf-8") == settings
        if unchanged and _supervisord_answers(program):
            if self.status(program).pid is None:
                _supervisord_call(program, "startProcess", program.name)
            return
        self._end(program)
        machine.write_file(path, settings.encode())
        _supervisord_launch(program, path)

    def restart(self, program: Program) -> None:
        """Stop the process gracefully, then start it with the settings of now."""
        if _supervisord_answers(program) and self.status(program).pid is not None:
            _supervisord_call(program, "stopProcess", program.name)
        (program.files / "starts").unlink(missing_ok=True)
        self.start(program)

    def status(self, program: Program) -> Status:
        """What supervisord says."""
        try:
            info = cast(
                "dict[str, Any]",
                _proxy(program).supervisor.getProcessInfo(program.name),
            )
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
        machine.remove_tree(program.files)

    def _end(self, program: Program) -> None:
        pid = machine.read_pid(_supervisord_pid_file(program))
        marks = _supervisord_marks(program)
        with contextlib.suppress(*_GONE):
            _proxy(program).supervisor.shutdown()
        patience = program.stop_seconds + 2 * _GRACE_S
        deadline = time.monotonic() + patience
        while machine.is_process_running(pid, marks) and time.monotonic() < deadline:
            time.sleep(0.05)
        # Those that don't answer, or whose pid file is gone.
        for other in machine.find_processes(marks):
            machine.end_process(other, marks, patience_s=patience)
        program.end_orphans()
        _supervisord_socket(program).unlink(missing_ok=True)


def _supervisord_launch(program: Program, settings: Path) -> None:
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
    deadline = time.monotonic() + _SUPERVISORD_S
    while not _supervisord_answers(program):
        if time.monotonic() > deadline:
            log = program.files / "supervisord.log"
            raise LocalError(f"supervisord was started but doesn't answer; its log is {log}")
        time.sleep(0.05)


def _supervisord_settings(program: Program) -> str:
    """The configuration; see https://supervisord.org/configuration.html."""
    command = " ".join(_quote_for_supervisord(part) for part in program.throttled_command)
    log = program.folder / "logs" / program.log_name
    machine.make_folder(log.parent)
    return f"""\
[unix_http_server]
file={_plain(_supervisord_socket(program))}
chmod=0700

[supervisord]
identifier={program.label}
pidfile={_plain(_supervisord_pid_file(program))}
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
    if ";" in text or _COMMENT.search(text) or text != text.strip():
        raise LocalError(
            f"the folder {text!r} can't be used: its name holds a semicolon, a '#' behind a "
            "space, or a space at its end, which supervisord doesn't take; choose another data "
            "folder (FALAJ_HOME)"
        )
    return text.replace("%", "%%")


_COMMENT: Final = re.compile(r"\s#")
"""From here on supervisord takes a line for a comment, as from a semicolon behind a space."""


def _quote_for_supervisord(part: str) -> str:
    # supervisord splits with shlex: single quotes keep all but themselves. They end and begin anew
    # before what would begin a comment, quoted or not, if a space were before it.
    quoted = part.replace("'", "'\"'\"'").replace(";", "'';").replace("#", "''#")
    return f"'{quoted}'".replace("%", "%%")


def _supervisord_pid_file(program: Program) -> Path:
    return program.files / "supervisord.pid"


def _supervisord_marks(program: Program) -> tuple[str, ...]:
    return ("supervisor.supervisord", str(program.files / "supervisord.conf"))


def _supervisord_socket(program: Program) -> Path:
    """The socket: in the program's folder, or in a private short one when that is too long."""
    near = program.files / "control.sock"
    if len(os.fsencode(near)) <= _LONGEST_SOCKET:
        return near
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    folder = base / f"falaj-{os.getuid()}"
    machine.make_folder(folder)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise LocalError(f"{folder} belongs to someone else; set XDG_RUNTIME_DIR to a private one")
    digest = hashlib.sha256(os.fsencode(program.files)).hexdigest()[:16]
    return folder / f"{digest}.sock"


def _proxy(program: Program) -> Any:
    transport = SupervisorTransport(None, None, f"unix://{_supervisord_socket(program)}")
    # The address is not used: the transport knows the socket.
    return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)


def _supervisord_answers(program: Program) -> bool:
    try:
        state = cast("dict[str, Any]", _proxy(program).supervisor.getState())
    except _GONE:
        return False
    return state["statename"] == "RUNNING"


def _supervisord_call(program: Program, method: str, *arguments: str) -> None:
    try:
        getattr(_proxy(program).supervisor, method)(*arguments)
    except xmlrpc.client.Fault as fault:
        # Already in the wanted state: someone else was faster.
        if "ALREADY_STARTED" not in fault.faultString and "NOT_RUNNING" not in fault.faultString:
            raise LocalError(f"supervisord refused {method}: {fault.faultString}") from None
    except _GONE as error:
        raise LocalError(f"supervisord doesn't answer to {method}: {error}") from None


# Which supervisor this machine has.

KINDS: Final[Mapping[str, Callable[[], Supervisor]]] = dict(
    zip(SUPERVISORS, (Systemd, Supervisord), strict=True)
)


def choose(kind: str) -> Supervisor:
    """The supervisor of this kind; for ``auto`` systemd where the user has it, else supervisord.

    Raises:
        LocalError: systemd was asked for and is not there.
    """
    if kind == AUTO:
        kind = "systemd" if is_systemd_usable() else "supervisord"
    elif kind == "systemd" and not is_systemd_usable():
        raise LocalError(
            "supervisor: given 'systemd', but `systemctl --user` doesn't work for this user; "
            "allowed here: auto, supervisord"
        )
    return KINDS[kind]()
