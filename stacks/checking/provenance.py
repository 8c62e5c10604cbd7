"""Finds out who checks, on what machine, in which run of a CI system, and from which commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from falaj.policies.reports.result import CiRun, Provenance, Revision
from falaj.policies.state import readable
from falaj.stacks.checking.subject import Subject

#: Seconds that git gets to look through the working tree.
_PATIENCE: Final = 60
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
        paths = [root / "Pulumi.yaml", *(each.stack.path for each in subjects)]
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
            said = readable(status.stderr.strip())
            return None if _NO_REPOSITORY in said else Revision("", problem=said or "git failed")
        listed = _git(root, "ls-files", "-z", "--", *files).stdout.split("\0")
    except subprocess.TimeoutExpired:
        return Revision("", problem=f"git did not answer within {_PATIENCE} seconds")
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
        timeout=_PATIENCE,
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
