"""Compile commands of a pinned Go module, for networks that reach nothing but a module proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.guard import guarded
from falaj.engine.progress import Report, step
from falaj.engine.versions import Version, go_version, pins

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
            f"{found} is Go {version}; building needs Go {needed} or newer: "
            "install a newer one (https://go.dev/dl)"
        )
    return Path(found), version


@dataclass(frozen=True)
class GoModule:
    """A Go module of ours that pins what is compiled: `go.mod` and `go.sum` in `folder`.

    Where a vendor's command is larger than what is needed of it, the folder has one of ours, which
    only names the vendor's packages. `toolchain` is the Go release that it asks for, and
    `variables` are set while linking.
    """

    folder: Path
    what: str
    toolchain: Version
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def files(self) -> tuple[Path, ...]:
        """What says what is compiled."""
        pins = (self.folder / name for name in ("go.mod", "go.sum"))
        return (*pins, *sorted(self.folder.glob("*.go")))


def compile_commands(
    module: GoModule, commands: Mapping[str, str], target: Path, report: Report
) -> None:
    """Compile each package of `commands` into the file of its name below the folder `target`.

    Raises EngineError: no usable Go, modules that cannot be had, a compilation that fails.
    """
    with _Workshop(module, target, report) as shop:
        total = len(shop.listed(list(commands.values())))
        flags = " ".join(
            ["-s", "-w", *(f"-X {key}={value}" for key, value in module.variables.items())]
        )
        compiled = 0
        with step(report, f"building {module.what} with Go {shop.version}") as progress:

            def count(line: str) -> bool:
                nonlocal compiled
                if not _is_package(line):
                    return False
                compiled += 1
                progress.update(f"{compiled} packages compiled of at most {total}")
                return True

            for name, package in commands.items():
                options = ["-v", "-mod=readonly", "-buildvcs=false", "-trimpath"]
                shop.go(
                    ["build", *options, "-ldflags", flags, "-o", str(target / name), package],
                    count,
                )


def module_folders(
    module: GoModule, paths: Sequence[str], scratch: Path, report: Report
) -> dict[str, Path]:
    """Where the pinned modules `paths` lie in Go's module cache, fetched if need be.

    Raises EngineError: no usable Go, modules that cannot be had.
    """
    with _Workshop(module, scratch, report) as shop, step(report, f"getting {module.what}"):
        shop.go(["mod", "download", *paths], lambda line: False)
        answer = shop.go(
            ["list", "-mod=readonly", "-m", "-f", "{{.Path}} {{.Dir}}", *paths], lambda line: False
        )
    return {
        path: Path(folder)
        for path, _, folder in (line.partition(" ") for line in answer.splitlines())
    }


class _Workshop:
    """A copy of the module that Go may write beside, and Go's settings."""

    def __init__(self, module: GoModule, target: Path, report: Report) -> None:
        self._command, self.version = find_go()
        self._module = module
        self._report = report
        self._above = target.parent
        # A workspace file above the cache folder must not take part.
        self._env = {**os.environ, "GOWORK": "off"}
        if not self.version.at_least(module.toolchain):
            # The module asks for this patch release; Go gets it from the module proxy.
            self._env["GOTOOLCHAIN"] = f"go{module.toolchain}+auto"

    def __enter__(self) -> _Workshop:
        try:
            self._work = Path(tempfile.mkdtemp(prefix="module-", dir=self._above))
            for file in self._module.files:
                shutil.copyfile(file, self._work / file.name)
        except OSError as error:
            raise explain_os_error(error, f"building {self._module.what}") from error
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._work, ignore_errors=True)

    def listed(self, packages: Sequence[str]) -> list[str]:
        """Fetch the modules that the packages need; return the packages they consist of."""
        with step(self._report, f"getting the Go modules of {self._module.what}") as progress:
            fetched = 0

            def count(line: str) -> bool:
                nonlocal fetched
                if not line.startswith("go: downloading "):
                    return False
                fetched += 1
                progress.update(f"{fetched} modules fetched, now {line.split()[2]}")
                return True

            return self.go(["list", "-mod=readonly", "-deps", *packages], count).splitlines()

    def go(self, arguments: Sequence[str], count: Callable[[str], bool]) -> str:
        """Run a Go command, handing its progress lines to `count`; return its standard output."""
        command = [str(self._command), *arguments]
        try:
            return self._run(command, count)
        except OSError as error:
            raise explain_os_error(error, f"building {self._module.what}") from error

    def _run(self, command: list[str], count: Callable[[str], bool]) -> str:
        with (
            tempfile.TemporaryFile("w+") as output,
            subprocess.Popen(
                guarded(command),
                cwd=self._work,
                env=self._env,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            lines: list[str] = []
            try:
                for line in process.stderr or ():
                    if not count(line.rstrip("\n")):
                        lines.append(line)
                code = process.wait()
            except BaseException:
                process.terminate()
                raise
            if code != 0:
                raise EngineError(
                    _explain_failure(command, code, "".join(lines), self._module.what)
                )
            output.seek(0)
            return output.read()


def _is_package(line: str) -> bool:
    """Whether `go build -v` says here that it has compiled a package: one path, nothing else."""
    return bool(line) and " " not in line and not line.startswith(("#", "/", "."))


def _explain_failure(command: list[str], code: int, output: str, what: str) -> str:
    end = "\n".join(output.strip().splitlines()[-12:])
    if "no space left on device" in output:
        return f"no space left while building {what}; free space and run again\n{end}"
    hint = (
        "\nIf a module could not be fetched: set GOPROXY to a module proxy that this machine "
        "reaches."
        if any(sign in output for sign in ("dial tcp", "proxy", "checksum", "no such host"))
        else ""
    )
    return f"`{' '.join(command[:2])}` failed with exit code {code}:\n{end}{hint}"
