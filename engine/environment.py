"""Make the Python environment: `python3 engine/environment.py [--extra NAME …] [--venv FOLDER]`.

Any Python from 3.11 on can run this file before anything is installed: it needs nothing but the
standard library. It makes the virtual environment, installs uv into it with pip, lets uv install
what the hashed requirement files pin, and adds the project itself. A stamp in the environment
makes a second run instant; extras add up over runs, and only one that is new is installed then.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036  whoever runs this has not been checked yet
    sys.exit(
        f"error: Falaj needs Python 3.11 or newer, but this is {sys.version.split()[0]} "
        f"({sys.executable}); install a newer one and run again with PYTHON=/path/to/python3.11"
    )

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    # Started as a script: this folder comes first on the path, where our package's parent belongs.
    sys.path[0] = str(ROOT)

from falaj.engine.errors import EngineError, explain_os_error  # noqa: E402
from falaj.engine.files import cache_home  # noqa: E402
from falaj.engine.progress import Progress, Report, step, to_stderr  # noqa: E402

REQUIREMENTS = ROOT / "requirements"
STAMP = "falaj-environment.json"
BOOTSTRAP, BASE = "bootstrap", "base"
TAIL_LINES = 15
#: The first pip that knows `--python`.
_PIP_FOR_OTHERS = (22, 3)
#: The group of entry points by which a package offers policy rules, as its file names it
#: (`policies/team_rules.py`).
_RULES = "[falaj.rules]"


@dataclass(frozen=True)
class Stamp:
    """What an environment holds: `complete` is false from the first change on until the last."""

    python: str
    extras: list[str]
    digests: dict[str, str]
    complete: bool

    @classmethod
    def read(cls, venv: Path) -> Stamp | None:
        """The stamp of the environment in `venv`; None when it has none that can be read."""
        try:
            return cls(**json.loads((venv / STAMP).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, venv: Path) -> None:
        """Put the stamp into `venv`, whole or not at all."""
        handle, temporary = tempfile.mkstemp(prefix=f".{STAMP}-", dir=venv)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(self), file, indent=1)
            Path(temporary).replace(venv / STAMP)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def ensure_environment(venv: Path, extras: Sequence[str], report: Report = to_stderr) -> bool:
    """Make `venv` hold what the locks pin for `extras` and those that it has already.

    Returns whether anything was done. Raises EngineError: an unknown extra, a Python without venv,
    no network, a full disk, a requirement that does not match its hash.
    """
    try:
        with _only_run(venv, report):
            before = Stamp.read(venv)
            python = _python_of(venv)
            wanted = Stamp(
                python=python or "",
                extras=sorted({*extras, *(before.extras if before else ())}),
                digests={},
                complete=True,
            )
            files = [BOOTSTRAP, BASE, *wanted.extras]
            digests = {name: _digest(_requirement_file(name)) for name in files}
            digests["project"] = _digest(ROOT / "pyproject.toml")
            if before and python and before == Stamp(python, wanted.extras, digests, True):
                return False
            if python is None:
                _make_venv(venv, report)
            python = _python_of(venv)
            if python is None:
                raise EngineError(f"{venv}/bin/python does not run; remove {venv} and run again")
            # A stamp that does not say complete: this environment is being changed.
            Stamp(python, wanted.extras, {}, False).write(venv)
            # What the stamp names is there as it was locked: extras are added, and nothing goes.
            added = (
                before is not None
                and before.complete
                and before.python == python
                and before.digests.items() <= digests.items()
            )
            exactly = before is not None and not added and not _offers_rules(venv)
            _install(venv, files, exactly=exactly, project=not added, report=report)
            Stamp(python, wanted.extras, digests, True).write(venv)
            return True
    except OSError as error:
        raise explain_os_error(error, f"making the environment in {venv}") from error


def known_extras() -> list[str]:
    """The extras that have a requirement file."""
    names = {path.stem for path in REQUIREMENTS.glob("*.txt")}
    return sorted(names - {BOOTSTRAP, BASE})


def _requirement_file(name: str) -> Path:
    path = REQUIREMENTS / f"{name}.txt"
    if not path.is_file():
        raise EngineError(f"unknown extra {name!r}; it must be one of {', '.join(known_extras())}")
    return path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def _only_run(venv: Path, report: Report) -> Generator[None]:
    """Let one run at a time change `venv`; the kernel frees the lock however the run ends."""
    name = hashlib.sha256(str(venv).encode()).hexdigest()[:16]
    folder = cache_home()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"environment-{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another run that is making the environment")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _python_of(venv: Path) -> str | None:
    """The version of the environment's Python; None when there is none that runs."""
    question = "import sys; print('.'.join(map(str, sys.version_info[:3])), sys.prefix)"
    try:
        answer = subprocess.run(
            [str(venv / "bin" / "python"), "-I", "-c", question],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version, prefix = answer.stdout.rstrip("\n").split(" ", 1)
    # An environment that was moved, or whose base Python was replaced by another minor version.
    library = venv / "lib" / "python{}.{}".format(*version.split(".")[:2])
    return version if Path(prefix).resolve() == venv.resolve() and library.is_dir() else None


def _make_venv(venv: Path, report: Report) -> None:
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise EngineError(
            f"{sys.executable} lacks the module {' and '.join(missing)}; install it "
            "(Debian and Ubuntu: the package python3-venv) and run again"
        )
    # Making it anew removes what is there: never somebody's folder that is no environment.
    if venv.exists() and not (venv / "pyvenv.cfg").is_file() and any(venv.iterdir()):
        raise EngineError(
            f"{venv} exists and is no virtual environment; name another folder with --venv"
        )
    # Unpacking and compiling the pip that Python brings takes longer than all else here together.
    options = ["--clear", *(["--without-pip"] if _has_pip() else [])]
    with step(report, f"making the virtual environment {venv}") as progress:
        _run([sys.executable, "-m", "venv", *options, str(venv)], progress)


def _has_pip() -> bool:
    """Whether the Python that runs this has a pip that installs into another environment."""
    from importlib import metadata  # noqa: PLC0415 - most runs make no environment

    try:
        version = metadata.version("pip").split(".")
    except metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in version[:2] if part.isdigit()) >= _PIP_FOR_OTHERS


def _pip(venv: Path) -> list[str]:
    """The pip of an environment, or that of the Python that runs this where it has none yet."""
    python = str(venv / "bin" / "python")
    if any((venv / "lib").glob("python*/site-packages/pip/__main__.py")):
        return [python, "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", python]


def _install(
    venv: Path, files: Sequence[str], *, exactly: bool, project: bool, report: Report
) -> None:
    """Install uv with pip, then the pinned packages with uv, then the project itself.

    `exactly` removes what no lock names; not done in an environment that somebody else made.
    """
    python, uv = str(venv / "bin" / "python"), str(venv / "bin" / "uv")
    paths = [str(_requirement_file(name)) for name in files]
    if not _has_uv(venv):
        with step(report, "installing uv") as progress:
            options = ["--disable-pip-version-check", "--no-compile", "--require-hashes"]
            _run([*_pip(venv), "install", *options, "-r", paths[0]], progress)
    env = _uv_environment(python)
    count = sum(_count_pins(Path(path)) for path in paths)
    # Where Python may not keep what it has compiled (PYTHONDONTWRITEBYTECODE), every command would
    # compile the clouds' SDKs anew, for seconds each time: uv does it once, here.
    compiled = ["--compile-bytecode"] if sys.dont_write_bytecode else []
    with step(report, f"installing {count} pinned packages") as progress:
        # Locks name all that is needed, and leave out what requirements ask for and nobody is to
        # have (`make lock`): `sync` looks for nothing more either.
        added = ["install", "--no-deps", *_each("-r", paths)]
        command = ["sync", *paths] if exactly else added
        _run(
            [uv, "pip", *command, *compiled, "--require-hashes", "--python", python],
            progress,
            env=env,
            show=report is to_stderr and sys.stderr.isatty(),
        )
    if not project:
        return
    with step(report, "installing the project") as progress:
        options = ["--no-deps", "--no-build-isolation", "--python", python]
        # One line with the project's folder: the default is a module that every start would run.
        options += ["--config-setting", "editable_mode=compat"]
        # setuptools writes that line as the locale says, and not every one can.
        told = env | {"LC_ALL": "C.UTF-8"}
        packages = _packages_of(python)
        _run([uv, "pip", "install", *options, "-e", str(ROOT)], progress, env=told)
        point_from(packages)


def _packages_of(python: str) -> Path:
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def point_from(packages: Path) -> None:
    """Write the way to a project in such a folder from where its environment's packages are.

    Python reads these lines as the locale says, before anything else: from a folder with an Arabic
    name, in a shell or a service without a locale, it wouldn't start at all.
    """
    way = os.path.relpath(ROOT, packages)
    if str(ROOT).isascii() or not way.isascii():
        return
    for file in packages.glob("__editable__.falaj-*.pth"):
        file.write_text(f"{way}\n", encoding="ascii")


def _offers_rules(venv: Path) -> bool:
    """Whether somebody put a package with policy rules of their own there.

    No lock names it: were it removed with what else none names, what its rules demand would pass
    from then on, and nobody would be told.
    """
    found = (venv / "lib").glob("python*/site-packages/*.dist-info/entry_points.txt")
    return any(_RULES in each.read_text(encoding="utf-8").splitlines() for each in found)


def _has_uv(venv: Path) -> bool:
    """Whether the environment has the uv that is pinned."""
    pin = re.search(r"^uv==(\S+)", _requirement_file(BOOTSTRAP).read_text(), re.MULTILINE)
    found = list(
        (venv / "lib").glob(f"python*/site-packages/uv-{pin[1]}.dist-info" if pin else "")
    )
    return bool(pin and found and (venv / "bin" / "uv").is_file())


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [argument for value in values for argument in (option, value)]


def _count_pins(path: Path) -> int:
    return len(re.findall(r"^[\w.-]+(?:\[[^\]]*\])?==", path.read_text(), re.MULTILINE))


def _uv_environment(python: str) -> dict[str, str]:
    """Our variables, with pip's settings for a package mirror under the names that uv reads.

    A machine in a closed network is set up for pip (pip.conf, PIP_*); it should not have to be
    set up again for uv.
    """
    env = dict(os.environ)
    answer = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    pip: dict[str, str] = {}
    for line in answer.stdout.splitlines():
        name, separator, value = line.partition("=")
        if separator:
            pip[name.rsplit(".", 1)[-1]] = value.strip("'\"")
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "cert": "SSL_CERT_FILE",
    }
    for ours, theirs in names.items():
        if ours in pip:
            env.setdefault(theirs, " ".join(pip[ours].replace("\\n", " ").split()))
    # Another environment that happens to be active must not be the one that is changed.
    env.pop("VIRTUAL_ENV", None)
    return env


def _run(
    command: list[str],
    progress: Progress,
    env: dict[str, str] | None = None,
    show: bool = False,
) -> None:
    """Run a step's command; its last lines are kept for an error, its latest one is the progress.

    `show` gives it the terminal, for its own progress bars.
    """
    if show:
        if subprocess.run(command, env=env, check=False).returncode != 0:
            _fail(command, [])
        return
    lines: list[str] = []
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                if text := line.strip():
                    lines.append(text)
                    progress.update(text[:80])
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
    if code != 0:
        _fail(command, lines)


_REASONS = {
    r"No space left|os error 28|Errno 28|Disk quota": (
        "no space left while installing; free space and run again"
    ),
    r"do not match the hashes|[Hh]ash mismatch": (
        "a package is not what was pinned (its hash differs): a proxy or a mirror changed it, "
        "and nothing of it was installed"
    ),
    r"dns error|Could not connect|Connection|timed out|Failed to fetch|No matching distribution": (
        "the package index cannot be reached, or does not have what is pinned; check the network, "
        "or set PIP_INDEX_URL to a mirror, and run again"
    ),
}


def _fail(command: list[str], lines: list[str]) -> NoReturn:
    text = "\n".join(lines)
    reason = next((why for sign, why in _REASONS.items() if re.search(sign, text)), None)
    name = " ".join([Path(command[0]).name, *command[1:3]])
    tail = "\n  ".join(lines[-TAIL_LINES:])
    raise EngineError((reason or f"`{name}` failed") + (f"\n  {tail}" if tail else ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment; 0 done, 2 it cannot be made."""
    parser = argparse.ArgumentParser(description="Make the Python environment from the locks.")
    parser.add_argument("--extra", action="append", default=[], help=", ".join(known_extras()))
    parser.add_argument("--venv", default=".venv", help="folder, relative to the project")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    try:
        ensure_environment(ROOT / given.venv, given.extra)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; run again to continue", file=sys.stderr)
        return 130
    return 0


def _leave(number: int, frame: object) -> NoReturn:
    """SIGTERM takes the same way out as Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
