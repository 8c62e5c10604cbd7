"""A machine on which nobody has used Falaj yet: a fresh clone and an empty home folder.

Shared with the machine that the tests run on are its programs (git, make, Python, Go) and the
caches of downloads and builds, what Python compiled of others' packages among them; no
environment, no state, no settings.
"""

from __future__ import annotations

import hashlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]

#: Settings of a closed network's mirrors and certificates, without which nothing installs.
NETWORK = (
    "PIP_", "UV_INDEX", "UV_DEFAULT_INDEX", "SSL_CERT", "GOPROXY", "GOFLAGS", "GONOSUM", "GOSUMDB",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
PROGRAMS = ("git", "make", "go")
#: What makes who runs a command an ordinary user, whose own the files of the tests' user are.
ORDINARY_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
SYSTEM = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@cache
def _caches() -> dict[str, str]:
    """Folders of downloads and builds, by the variables that name them."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    asked = {"GOMODCACHE": "GOMODCACHE", "GOCACHE": "GOCACHE"}
    go = shutil.which("go")
    found = {
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(home / "uv"),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(home / "pip"),
        "FALAJ_CACHE": os.environ.get("FALAJ_CACHE") or str(home / "falaj"),
    }
    for name, variable in asked.items():
        if go:
            answer = subprocess.run(
                [go, "env", variable], capture_output=True, text=True, check=True
            )
            found[name] = answer.stdout.strip()
    return found


def _path() -> str:
    """Folders of the system's programs and of those that a newcomer has; no environment's."""
    python = Path(sys.base_prefix) / "bin"
    folders = [str(python)]
    folders += [str(Path(found).parent) for name in PROGRAMS if (found := shutil.which(name))]
    return os.pathsep.join(dict.fromkeys([*folders, *SYSTEM]))


@dataclass
class Machine:
    """A clone and a home folder; `prefix` puts each command into another setting."""

    clone: Path
    home: Path
    prefix: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        network = {name: value for name, value in os.environ.items() if name.startswith(NETWORK)}
        return {
            **network,
            **_caches(),
            "HOME": str(self.home),
            "PATH": _path(),
            "LANG": "C.UTF-8",
            "PYTHONPYCACHEPREFIX": str(self.compiled),
            **self.variables,
        }

    @property
    def compiled(self) -> Path:
        """Where Python keeps what it compiled: beside the home, for those that follow there."""
        return self.home.with_name("compiled")

    @property
    def data(self) -> Path:
        """Where Falaj keeps state and secrets."""
        return self.home / ".local" / "share" / "falaj"

    def run(self, command: str, status: int = 0, *, folder: Path | None = None) -> str:
        """Run a line in a shell, as a person would, without a terminal; what it printed."""
        done = self.start(command, folder=folder)
        try:
            printed, _ = done.communicate(timeout=1_500)
        except BaseException:
            os.killpg(done.pid, signal.SIGKILL)
            raise
        assert "Traceback" not in printed, f"$ {command}\n{printed}"
        assert done.returncode == status, f"$ {command}\n{printed}"
        return printed

    def start(self, command: str, *, folder: Path | None = None) -> subprocess.Popen[str]:
        """Start a line in a shell of its own session; its output and errors come together."""
        return subprocess.Popen(
            [*self.prefix, "bash", "-c", command],
            cwd=folder or self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(
        self, command: str, answers: Sequence[tuple[str, str]] = (), *, columns: int = 80
    ) -> str:
        """Run a line on a terminal and type an answer after each text that is waited for."""
        leader, follower = pty.openpty()
        os.set_inheritable(follower, True)
        subprocess.run(["stty", "cols", str(columns), "rows", "24"], stdin=follower, check=True)
        process = subprocess.Popen(
            [*self.prefix, "bash", "-c", command],
            cwd=self.clone,
            env={**self.environment, "TERM": "xterm"},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - makes the terminal ours, nothing else
        )
        os.close(follower)
        try:
            return _talk(process, leader, list(answers))
        finally:
            os.close(leader)

    def clean_status(self) -> str:
        """What git says of the clone; empty where nothing changed."""
        done = subprocess.run(
            ["git", "status", "--porcelain"],
            cwd=self.clone,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """Processes that were started from here, or work here."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                words = " ".join(process.cmdline())
                if str(self.home) in words or str(self.clone) in words:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _talk(process: subprocess.Popen[bytes], leader: int, answers: list[tuple[str, str]]) -> str:
    shown = b""
    deadline = time.monotonic() + 1_200
    while time.monotonic() < deadline:
        ready, _, _ = select.select([leader], [], [], 0.2)
        if ready:
            try:
                part = os.read(leader, 65_536)
            except OSError:  # the other side is closed
                part = b""
            if not part:
                break
            shown += part
            if answers and answers[0][0].encode() in shown:
                os.write(leader, answers.pop(0)[1].encode())
        elif process.poll() is not None:
            break
    else:
        process.kill()
    code = process.wait()
    text = shown.decode(errors="replace")
    assert not answers, f"never asked {answers[0][0]!r}:\n{text}"
    return f"{text}\n[exit {code}]"


def share_compiled(machine: Machine, environment: Path) -> None:
    """Let an environment have what was compiled of the same packages in another.

    The clouds' SDKs take half a minute. Python keeps it by the path of each module below
    PYTHONPYCACHEPREFIX, so links there lead all places to one; it looks at a module's time and
    size, and uv gives a module the time at which it unpacked it. Our own modules' times are the
    working tree's: each clone has its own.
    """
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    told = "".join([sys.version, sys.base_prefix, *(path.read_text() for path in locks)])
    digest = hashlib.sha256(told.encode()).hexdigest()
    shared = Path(_caches()["FALAJ_CACHE"]) / "compiled" / digest
    for name, place in (("python", Path(sys.base_prefix)), ("environment", environment)):
        # One's own alone: of a machine with a careless umask, all may write what lies inside.
        (shared / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        link = machine.compiled / place.relative_to(place.anchor)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(shared / name)
    for other in shared.parent.iterdir():
        if other != shared:
            shutil.rmtree(other, ignore_errors=True)


def clone_to(target: Path) -> Path:
    """A fresh clone of this working tree, with what isn't committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        source = ROOT / name
        if name.startswith("tests/") or not (source.is_file() or source.is_symlink()):
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target / name, follow_symlinks=False)
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.ae"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "clone"]):
        subprocess.run([*git, *arguments], cwd=target, check=True)
    return target


@contextmanager
def newcomer(folder: Path, name: str = "falaj") -> Iterator[Machine]:
    """A machine in a folder; whatever it leaves running is ended."""
    (folder / "home").mkdir(parents=True)
    made = Machine(clone_to(folder / name), folder / "home")
    share_compiled(made, made.clone / ".venv")
    try:
        yield made
    finally:
        left = made.processes()
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=10)
