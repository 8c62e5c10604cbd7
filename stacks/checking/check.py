"""A check of several stacks, with what judged, who asked, and when.

Groups of stacks are checked side by side, each in a process of its own (the package's `worker`)
with state and keys of its own.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Final, cast

import psutil
import yaml
from pydantic import TypeAdapter

import falaj
from falaj.components.local import machine
from falaj.engine.errors import EngineError
from falaj.policies.model import PACKS, Rule, kind_of
from falaj.policies.reading.types import azure
from falaj.policies.reports.result import (
    CheckResult,
    CiRun,
    PackDigest,
    Provenance,
    Revision,
    RuleRecord,
    StackResult,
)
from falaj.policies.rules import all_rules
from falaj.policies.state import readable
from falaj.sandbox import activation
from falaj.sandbox.schema import Package
from falaj.sandbox.sdks import SDKS
from falaj.stacks.checking.recorded import team_rules
from falaj.stacks.checking.subject import Subject, groups
from falaj.stacks.command.console import say
from falaj.stacks.command.packs import POLICIES

# What judged: the packs, and the digest of all that they are made of.

#: Parts of `policies/` that rules are made of, whichever pack carries them.
_SHARED = ("model", "reading", "server", "controls")
_SUFFIXES = (".py", ".yaml", ".json")


def pack_digests(names: Iterable[str]) -> list[PackDigest]:
    """Name, version and SHA-256 of packs by the names of their folders."""
    return [_digest(name) for name in names]


def _digest(name: str) -> PackDigest:
    folder = POLICIES / name
    described = yaml.safe_load((folder / "PulumiPolicy.yaml").read_text(encoding="utf-8"))
    parts = [folder, POLICIES / "rules" / name, *(POLICIES / each for each in _SHARED)]
    files = [path for part in parts for path in part.rglob("*") if path.suffix in _SUFFIXES]
    files += POLICIES.glob("*.py")
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        digest.update(path.relative_to(POLICIES).as_posix().encode() + b"\0")
        digest.update(_digest_of(path))
    return PackDigest(
        f"falaj-{name.replace('_', '-')}", str(described["version"]), digest.hexdigest()
    )


@cache
def _digest_of(path: Path) -> bytes:
    # Every pack has the shared files. The same on every system: git may write other line ends.
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).digest()


# Groups of stacks side by side, each in a process of its own, whose state goes when it ends.

_RESULT = TypeAdapter(StackResult)
_PRINTED_LINES = 15
#: Seconds that an engine gets to end its plugins; it takes about one.
_END_SECONDS: Final = 20


class SideBySide:
    """One check of several stacks; says when each begins and ends."""

    def __init__(self, found: Sequence[Subject], strict: bool | None, jobs: int) -> None:
        self._subjects = found
        self._strict = strict
        self._jobs = jobs
        self._results: dict[str, StackResult] = {}
        self._started: dict[str, float] = {}
        self._ended = 0
        self._processes: list[subprocess.Popen[str]] = []
        self._is_stopped = False
        self._alone = Lock()

    def run(self) -> list[StackResult]:
        """Check them all; results are in the order of the stacks.

        State, stand-ins and keys of each group are in a folder of its own, which goes when it
        ends: what a person has up in the sandbox is neither read nor touched, and stacks that
        could not share an account don't meet.

        Raises:
            KeyboardInterrupt: somebody ended it, by Ctrl-C or SIGTERM; nothing of it goes on.
        """
        with _terminable(), ThreadPoolExecutor(self._jobs) as pool:
            running = [pool.submit(self._group, each) for each in groups(self._subjects)]
            try:
                for each in running:
                    each.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise
        return [self._results[each.stack.name] for each in self._subjects]

    def _stop(self) -> None:
        """End all processes; their engines first, which end their plugins."""
        with self._alone:
            self._is_stopped = True
        for each in self._processes:
            _signal_group(each, signal.SIGINT)
        deadline = time.monotonic() + _END_SECONDS
        for each in self._processes:
            try:
                each.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(each, signal.SIGKILL)

    def _begin(self, home: str, output: IO[str]) -> subprocess.Popen[str] | None:
        """Start a process, unless the check was ended meanwhile."""
        with self._alone:
            if self._is_stopped:
                return None
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "falaj.stacks.checking.worker"],
                env={
                    **activation.left(),
                    "FALAJ_HOME": home,
                    "PULUMI_HOME": str(Path(home) / "pulumi"),
                    machine.PLANS_ALONE: "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                # A group of its own, which is ended as one.
                start_new_session=True,
            )
            self._processes.append(process)
            return process

    def _group(self, group: Sequence[Subject]) -> None:
        project = group[0].stack.project
        task = {
            "project": str(project.root),
            "stacks": [each.stack.name for each in group],
            "given": {
                each.stack.name: str(each.stack.given) for each in group if each.stack.given
            },
            "strict": self._strict,
            # What is judged by another file than its own is nobody's ground.
            "grounds": [
                each.stack.name
                for each in group
                if each.stack.given is None and any(each.stack.name in one.chain for one in group)
            ],
        }
        with (
            tempfile.TemporaryDirectory(prefix="falaj-check-home-") as home,
            tempfile.TemporaryFile(mode="w+") as output,
        ):
            process = self._begin(home, output)
            if process is None:
                return
            with process:
                cast("IO[str]", process.stdin).write(json.dumps(task))
                cast("IO[str]", process.stdin).close()
                for line in cast("IO[str]", process.stdout):
                    self._take(json.loads(line))
            output.seek(0)
            tail = output.read().strip().splitlines()[-_PRINTED_LINES:]
        for each in group:
            if each.stack.name not in self._results:
                reason = "the check ended early (exit {}):\n{}"
                error = reason.format(process.returncode, "\n".join(tail))
                self._results[each.stack.name] = StackResult(
                    each.stack.name, project.name, "nobody", errors=(error,)
                )

    def _take(self, event: dict[str, str]) -> None:
        name = event["stack"]
        with self._alone:
            if event["event"] == "started":
                self._started[name] = time.monotonic()
                say(f"      {name} …")
                return
            result = _RESULT.validate_json(event["result"])
            self._results[name] = result
            self._ended += 1
            took = time.monotonic() - self._started[name]
            say(f"[{self._ended}/{len(self._subjects)}] {name}: {_verdict(result)} ({took:.1f} s)")


@contextmanager
def _terminable() -> Generator[None]:
    """SIGTERM, by which CI systems end a job, does what Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _verdict(result: StackResult) -> str:
    if result.errors and not result.resources:
        return "could not be checked"
    failing = sum(each.fails for each in result.outcomes)
    judged = f"{len(result.resources)} resources"
    if result.errors:
        return f"{judged}, {failing} findings, not wholly checked"
    return f"{judged}, {failing} findings" if failing else f"{judged}, clean"


def jobs_by_default() -> int:
    """As many processes as there are cores to run on."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


# Provenance: who checks, on what machine, in which run of a CI system, from which commit.

#: Seconds that git gets to look through the working tree.
_GIT_SECONDS: Final = 60
#: Variables by which a hook's git would look at its own repository instead of the project's.
_POINTS_ELSEWHERE: Final = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE", "GIT_PREFIX",
)  # fmt: skip
_NO_REPOSITORY: Final = "not a git repository"
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/@]*@")


def provenance_of(
    subjects: Sequence[Subject], environ: Mapping[str, str] | None = None
) -> Provenance:
    """Who checks these stacks, which are of one project, and from which commit of it.

    Args:
        subjects: the stacks; none where a state is judged without any project's settings, so
            that no commit has a part in it.
        environ: variables. Default: ours.
    """
    revision = None
    if subjects:
        root = subjects[0].stack.project.root
        files = (each.stack.path for each in subjects if each.stack.given is None)
        paths = [root / "Pulumi.yaml", *files]
        revision = revision_of(root, [os.path.relpath(each, root) for each in paths])
    return Provenance(
        # The account itself: variables such as USER say what somebody wrote into them.
        readable(psutil.Process().username()),
        readable(platform.node()),
        platform.python_version(),
        revision,
        ci_run(os.environ if environ is None else environ),
    )


def revision_of(root: Path, files: Sequence[str]) -> Revision | None:
    """The commit of a project's folder.

    Args:
        root: the folder.
        files: paths from there that belong to what is judged. A file that the repository leaves
            out, as those that it ignores, is a change: the commit doesn't have it.

    Returns:
        None where the project isn't under git's control: in no repository, or in one that has none
        of the files, as where a home folder is one.
    """
    try:
        status = _git(
            root, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z"
        )
        if status.returncode != 0:
            message = readable(status.stderr.strip())
            return (
                None
                if _NO_REPOSITORY in message
                else Revision("", problem=message or "git failed")
            )
        listed = _git(root, "ls-files", "-z", "--", *files).stdout.split("\0")
    except subprocess.TimeoutExpired:
        return Revision("", problem=f"git did not answer within {_GIT_SECONDS} seconds")
    except OSError as error:
        has_repository = any((each / ".git").exists() for each in (root, *root.parents))
        return Revision("", problem=f"git can't be run: {error}") if has_repository else None
    tracked = {os.path.normpath(each) for each in listed if each}
    if not tracked:
        return None
    lines = [each for each in status.stdout.split("\0") if each]
    commit = next((each.rpartition(" ")[2] for each in lines if "branch.oid" in each), "")
    missing = {os.path.normpath(each) for each in files} - tracked
    changed = bool(missing) or any(not each.startswith("# ") for each in lines)
    if commit == "(initial)":
        return Revision("", changed, "nothing is committed yet")
    return Revision(commit, changed)


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in _POINTS_ELSEWHERE}
    return subprocess.run(
        # Its lock on the index could stand in the way of what somebody does meanwhile.
        ["git", "--no-optional-locks", "-C", str(root), *arguments],
        env={**kept, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_GIT_SECONDS,
        check=False,
    )


def ci_run(environ: Mapping[str, str]) -> CiRun | None:
    """The run of GitHub Actions, GitLab or Azure Pipelines that variables describe, or None.

    Sources: https://docs.github.com/en/actions/reference/workflows-and-actions/variables,
    https://docs.gitlab.com/ci/variables/predefined_variables/ and
    https://learn.microsoft.com/en-us/azure/devops/pipelines/build/variables
    """

    def of(name: str) -> str:
        return _USER_IN_URL.sub("", readable(environ.get(name, "").strip()))

    if of("GITHUB_ACTIONS") == "true":
        run, attempt = of("GITHUB_RUN_ID"), of("GITHUB_RUN_ATTEMPT")
        repository = _joined(of("GITHUB_SERVER_URL"), "/", of("GITHUB_REPOSITORY"))
        url = _joined(repository, "/actions/runs/", run)
        return CiRun(
            "GitHub Actions",
            run,
            _joined(url, "/attempts/", attempt) or url,
            of("GITHUB_TRIGGERING_ACTOR") or of("GITHUB_ACTOR"),
            of("GITHUB_SHA"),
            repository,
        )
    if of("GITLAB_CI") == "true":
        return CiRun(
            "GitLab CI/CD", of("CI_JOB_ID"), of("CI_JOB_URL"), of("GITLAB_USER_LOGIN"),
            of("CI_COMMIT_SHA"), of("CI_PROJECT_URL"),
        )  # fmt: skip
    if of("TF_BUILD").lower() == "true":
        run = of("BUILD_BUILDID")
        project = _joined(of("SYSTEM_COLLECTIONURI").rstrip("/"), "/", of("SYSTEM_TEAMPROJECT"))
        return CiRun(
            "Azure Pipelines", run, _joined(project, "/_build/results?buildId=", run),
            of("BUILD_REQUESTEDFOR"), of("BUILD_SOURCEVERSION"), of("BUILD_REPOSITORY_URI"),
        )  # fmt: skip
    return None


def _joined(first: str, between: str, last: str) -> str:
    """Both with something between; nothing where one is missing."""
    return f"{first}{between}{last}" if first and last else ""


@dataclass(frozen=True)
class Beginning:
    """When a check began, and what was there then: its own runs may write into the project."""

    started: datetime.datetime
    provenance: Provenance
    rules: tuple[Rule, ...]
    """All that may judge: the packs', and the stacks' own."""


def begin(found: Sequence[Subject] = ()) -> Beginning:
    """Begin a check of stacks; of none where a state is judged without a project's settings."""
    own = {each.id: each for subject in found for each in team_rules(subject)}
    rules = (*all_rules(), *own.values())
    return Beginning(datetime.datetime.now(datetime.UTC), provenance_of(found), rules)


def check_now(found: Sequence[Subject], strict: bool | None = None, jobs: int = 1) -> CheckResult:
    """Preview stacks in the sandbox and judge them.

    Args:
        found: the stacks.
        strict: whether what can't be known fails. Default: as each stack says.
        jobs: how many at a time.
    """
    beginning = begin(found)
    return gathered(beginning, SideBySide(found, strict, jobs).run())


def gathered(beginning: Beginning, found: Sequence[StackResult]) -> CheckResult:
    """The result of a check that began then and ends now."""
    return CheckResult(
        beginning.started,
        datetime.datetime.now(datetime.UTC),
        falaj.__version__,
        beginning.provenance,
        tuple(pack_digests(PACKS)),
        tuple(found),
        tuple(RuleRecord.of(each) for each in beginning.rules),
    )


def unknown_types(rules: Iterable[Rule], judged: Collection[str]) -> Iterator[str]:
    """What to say of types that rules name and that nothing has: misspelt, they judge nothing.

    A type is passed over where its SDK isn't installed, for then nobody can tell.

    Args:
        rules: a team's own; those of the packs are held by tests.
        judged: types of the resources that were judged, which may be of any provider.
    """
    kinds = set(map(kind_of, judged))
    for rule in rules:
        for each in sorted(rule.types):
            only = replace(rule, types=frozenset({each}))
            if only.is_walker or any(map(only.concerns, kinds)):
                continue
            package = each.partition(":")[0]
            known = _types_of(package) if package in SDKS else frozenset[str]()
            if known is not None and not any(map(only.concerns, known)):
                yield (
                    f"the rule {rule.id} names the type {each}, which no SDK has that Falaj "
                    "knows and no resource that was judged, so nothing was judged by it there"
                )


@cache
def _types_of(package: str) -> frozenset[str] | None:
    """The types of an SDK, with what Azure's were called before; None where it isn't installed."""
    try:
        today = {kind_of(token) for token in Package(package).classes}
    except EngineError:
        return None
    prefix = "azure-native:"
    former = (azure(each.removeprefix(prefix)) for each in today if each.startswith(prefix))
    return frozenset(today).union(*former)
