"""Who checks, in which run, and from which commit: with a real git."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from falaj.policies.reports.result import CiRun, Revision
from falaj.stacks.checking.check import ci_run, provenance_of, revision_of
from falaj.stacks.checking.subject import subjects
from falaj.stacks.command.project import Project

FILES = ["Pulumi.yaml", "Pulumi.dev.yaml"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.ae", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def written(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    return folder


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    folder = written(tmp_path / "shop")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def head(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")


def test_a_clean_tree(committed: Path) -> None:
    assert revision_of(committed, FILES) == Revision(head(committed))


def test_without_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert revision_of(written(tmp_path), FILES) is None


@pytest.mark.parametrize("change", ["edit", "add", "stage", "remove"])
def test_a_changed_tree(committed: Path, change: str) -> None:
    match change:
        case "edit":
            (committed / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
        case "add":
            (committed / "__main__.py").write_text("")
        case "stage":
            (committed / "__main__.py").write_text("")
            git(committed, "add", ".")
        case _:
            (committed / "Pulumi.dev.yaml").unlink()
    assert revision_of(committed, FILES) == Revision(head(committed), changed=True)


def test_a_file_that_git_ignores_is_not_in_the_commit(committed: Path) -> None:
    (committed / ".gitignore").write_text("Pulumi.prod.yaml\n")
    git(committed, "add", ".")
    git(committed, "commit", "-qm", "second")
    (committed / "Pulumi.prod.yaml").write_text("config: {}\n")
    clean, whole = Revision(head(committed)), [*FILES, "Pulumi.prod.yaml"]
    assert revision_of(committed, FILES) == clean
    assert revision_of(committed, whole) == Revision(head(committed), changed=True)


def test_the_repository_around_a_project_that_is_not_in_it_says_nothing(committed: Path) -> None:
    """As where a home folder is a repository that ignores everything else."""
    (committed / ".gitignore").write_text("inner\n")
    assert revision_of(written(committed / "inner"), FILES) is None


def test_a_project_below_the_repositorys_root(tmp_path: Path) -> None:
    folder = written(tmp_path / "all" / "one shop")
    git(tmp_path / "all", "init", "-q")
    git(tmp_path / "all", "add", ".")
    git(tmp_path / "all", "commit", "-qm", "first")
    assert revision_of(folder, FILES) == Revision(head(folder))


def test_what_git_cannot_tell_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "shop")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    unborn = revision_of(folder, FILES)
    assert unborn
    assert (unborn.commit, unborn.problem) == ("", "nothing is committed yet")
    git(folder, "commit", "-qm", "first")
    # What git itself tests with: the folder belongs to somebody else, as in containers of CI.
    with monkeypatch.context() as patched:
        patched.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        others = revision_of(folder, FILES)
    assert others
    assert others.commit == ""
    assert "dubious ownership" in others.problem
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = revision_of(folder, FILES)
    assert missing
    assert "git can't be run" in missing.problem
    shutil.rmtree(folder / ".git")
    assert revision_of(folder, FILES) is None


def test_the_repository_of_a_hook_is_not_taken_for_the_projects(
    committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = written(tmp_path / "other")
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    found = revision_of(committed, FILES)
    monkeypatch.undo()
    assert found == Revision(head(committed))


def test_nothing_is_written_into_the_repository(committed: Path) -> None:
    index = committed / ".git" / "index"
    os.utime(committed / "Pulumi.yaml", (1, 1))  # git would like to refresh its index
    before = index.read_bytes()
    assert revision_of(committed, FILES)
    assert index.read_bytes() == before


GITHUB = {
    "GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "acme/shop", "GITHUB_RUN_ID": "17", "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_ACTOR": "first", "GITHUB_TRIGGERING_ACTOR": "second", "GITHUB_SHA": COMMIT,
}  # fmt: skip
GITLAB = {
    "GITLAB_CI": "true", "CI_JOB_ID": "18", "CI_JOB_URL": "https://gitlab.com/acme/shop/-/jobs/18",
    "GITLAB_USER_LOGIN": "somebody", "CI_COMMIT_SHA": COMMIT,
    "CI_PROJECT_URL": "https://gitlab.com/acme/shop",
}  # fmt: skip
AZURE = {
    "TF_BUILD": "True", "SYSTEM_COLLECTIONURI": "https://dev.azure.com/acme/",
    "SYSTEM_TEAMPROJECT": "shop", "BUILD_BUILDID": "19", "BUILD_REQUESTEDFOR": "Some Body",
    "BUILD_SOURCEVERSION": COMMIT,
    "BUILD_REPOSITORY_URI": "https://token:secret@dev.azure.com/acme/shop/_git/shop",
}  # fmt: skip


def test_runs_of_ci_systems() -> None:
    assert ci_run(GITHUB) == CiRun(
        "GitHub Actions", "17", "https://github.com/acme/shop/actions/runs/17/attempts/2",
        "second", COMMIT, "https://github.com/acme/shop",
    )  # fmt: skip
    assert ci_run(GITLAB) == CiRun(
        "GitLab CI/CD", "18", "https://gitlab.com/acme/shop/-/jobs/18", "somebody", COMMIT,
        "https://gitlab.com/acme/shop",
    )  # fmt: skip
    assert ci_run(AZURE) == CiRun(
        "Azure Pipelines", "19", "https://dev.azure.com/acme/shop/_build/results?buildId=19",
        "Some Body", COMMIT, "https://dev.azure.com/acme/shop/_git/shop",
    )  # fmt: skip


def test_no_secret_of_an_address_is_repeated() -> None:
    assert "secret" not in repr(ci_run(AZURE))
    assert "secret" not in repr(
        ci_run({**GITHUB, "GITHUB_SERVER_URL": "https://me:secret@github.com"})
    )


@pytest.mark.parametrize(
    "given",
    [{}, {"CI": "true"}, {"GITHUB_ACTIONS": "false"}, {"GITLAB_CI": ""}, {"TF_BUILD": "0"}],
)
def test_without_a_known_system_there_is_no_run(given: dict[str, str]) -> None:
    assert ci_run(given) is None


@pytest.mark.parametrize("marker", ["GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD"])
def test_what_a_system_does_not_say_is_empty(marker: str) -> None:
    found = ci_run({marker: "true"})
    assert found
    assert (found.run, found.url, found.actor, found.commit, found.repository) == ("",) * 5


def test_bytes_that_are_no_text_become_text() -> None:
    found = ci_run({**GITLAB, "GITLAB_USER_LOGIN": "a\udcff\x00\u202e"})
    assert found
    assert found.actor.encode("utf-8")


def test_the_account_is_the_processs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    found = provenance_of([], {})
    assert found.user == pwd.getpwuid(os.getuid()).pw_name
    assert found.host == platform.node()
    assert found.python_version == platform.python_version()
    # A state that is judged by no project's settings has no commit.
    assert (found.revision, found.ci) == (None, None)


def test_the_commit_is_that_of_the_stacks_project(committed: Path) -> None:
    found = provenance_of(subjects(Project.find(committed), ["dev"]), GITLAB)
    assert found.revision == Revision(head(committed))
    assert found.ci
    assert found.ci.system == "GitLab CI/CD"
