"""Build the engine from its Go module, for networks that reach nothing but a Go module proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from engine.errors import EngineError, explain_os_error
from engine.guard import guarded
from engine.progress import Report, step
from engine.versions import Version, go_version, pins

MODULE = Path(__file__).with_name("gomodule")
QUESTION_SECONDS = 60


def find_go() -> tuple[Path, Version]:
    """The `go` command on the PATH and its version.

    Raises EngineError: there is none, it does not answer, or it is older than the pinned minimum.
    """
    needed = pins().go_minimum
    found = shutil.which("go")
    if found is None:
        raise EngineError(
            f"there is no `go` command on the PATH; install Go {needed} or newer (https://go.dev/dl)"
        )
    try:
        answer = subprocess.run(
            [found, "version"],
            capture_output=True,
            text=True,
            timeout=QUESTION_SECONDS,
            check=True,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
        version = go_version(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineError(
            f"{found} does not tell its version ({error}); repair the Go installation"
        ) from error
    if not version.at_least(needed):
        raise EngineError(
            f"{found} is Go {version}; building the engine needs Go {needed} or newer: "
            "install a newer one (https://go.dev/dl)"
        )
    return Path(found), version


def build_engine(target: Path, report: Report) -> None:
    """Compile the pinned engine into the file `target`.

    Raises EngineError: no usable Go, modules that cannot be had, a compilation that fails.
    """
    go, version = find_go()
    pinned = pins()
    work = Path(tempfile.mkdtemp(prefix="module-", dir=target.parent))
    try:
        # Go may want to write beside go.mod; our source folder may be read-only or shared.
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(MODULE / name, work / name)
        # A workspace file above the cache folder must not take part.
        env = {**os.environ, "GOWORK": "off"}
        if not version.at_least(pinned.go_toolchain):
            # The engine's module asks for this patch release; Go gets it from the module proxy.
            env["GOTOOLCHAIN"] = f"go{pinned.go_toolchain}+auto"
        total = _list_packages(go, work, env, report)
        with step(report, f"building pulumi {pinned.version} with Go {version}") as progress:
            compiled = 0

            def count(line: str) -> bool:
                nonlocal compiled
                if not _is_package(line):
                    return False
                compiled += 1
                progress.update(f"{compiled} packages compiled of at most {total}")
                return True

            variable = f"{pinned.go_version_variable}=v{pinned.version}"
            _run(
                [
                    *(str(go), "build", "-v", "-mod=readonly", "-buildvcs=false"),
                    *("-ldflags", f"-s -w -X {variable}"),
                    *("-o", str(target), pinned.go_package),
                ],
                work,
                env,
                count,
            )
    except OSError as error:
        raise explain_os_error(error, "building the engine") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _list_packages(go: Path, work: Path, env: dict[str, str], report: Report) -> int:
    """Fetch the modules that the engine needs; return how many packages it consists of."""
    with step(report, "getting the engine's Go modules") as progress:
        fetched = 0

        def count(line: str) -> bool:
            nonlocal fetched
            if not line.startswith("go: downloading "):
                return False
            fetched += 1
            progress.update(f"{fetched} modules fetched, now {line.split()[2]}")
            return True

        command = [str(go), "list", "-mod=readonly", "-deps", pins().go_package]
        return len(_run(command, work, env, count).splitlines())


def _is_package(line: str) -> bool:
    """Whether `go build -v` says here that it has compiled a package: one path, nothing else."""
    return bool(line) and " " not in line and not line.startswith(("#", "/", "."))


def _run(command: list[str], cwd: Path, env: dict[str, str], count: Callable[[str], bool]) -> str:
    """Run a Go command, handing its progress lines to `count`; return its standard output."""
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            guarded(command), cwd=cwd, env=env, stdout=output, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        said: list[str] = []
        try:
            for line in process.stderr or ():
                if not count(line.rstrip("\n")):
                    said.append(line)
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
        if code != 0:
            raise EngineError(_explain_failure(command, code, "".join(said)))
        output.seek(0)
        return output.read()


def _explain_failure(command: list[str], code: int, said: str) -> str:
    end = "\n".join(said.strip().splitlines()[-12:])
    if "no space left on device" in said:
        return f"no space left while building the engine; free space and run again\n{end}"
    hint = (
        "\nIf a module could not be fetched: set GOPROXY to a module proxy that this machine "
        "reaches."
        if any(word in said for word in ("dial tcp", "proxy", "checksum", "no such host"))
        else ""
    )
    return f"`{' '.join(command[:2])}` failed with exit code {code}:\n{end}{hint}"
