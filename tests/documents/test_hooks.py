"""The hooks before a commit need nothing but this environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.newcomer import documents

CONFIGURATION = documents.ROOT / ".pre-commit-config.yaml"
PROGRAMS = Path(sys.executable).parent


def test_hooks_fetch_nothing_and_call_what_is_there() -> None:
    repositories = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["repos"]
    assert [each["repo"] for each in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert [each["id"] for each in hooks] == ["ruff", "ruff-format", "import-rules"]
    for hook in hooks:
        assert hook["language"] == "system"
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/")
        assert (PROGRAMS / Path(program).name).is_file()


@pytest.mark.slow
def test_a_commit_of_wrong_code_is_stopped(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.ae"]
    # Variables of a repository in whose hook these tests may run are not this one's.
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    environment["PRE_COMMIT_HOME"] = str(tmp_path / "cache")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=clone, env=environment, capture_output=True, text=True, check=False
        )

    clone = tmp_path / "clone"
    (clone / ".venv").mkdir(parents=True)
    (clone / ".venv" / "bin").symlink_to(PROGRAMS)
    # The import rules are asked for as well, of a project that has nothing but its rules.
    (clone / "alone").mkdir()
    (clone / "alone" / "__init__.py").write_text("")
    (clone / "pyproject.toml").write_text(
        "[tool.importlinter]\nroot_packages = ['alone']\n"
        "[[tool.importlinter.contracts]]\nname = 'a'\ntype = 'forbidden'\n"
        "source_modules = ['alone']\nforbidden_modules = ['json']\n"
        "[tool.ruff]\nline-length = 99\n"
    )
    text = (clone / "pyproject.toml").read_text()
    external = "[tool.importlinter]\ninclude_external_packages = true\n"
    (clone / "pyproject.toml").write_text(text.replace("[tool.importlinter]\n", external))
    (clone / ".pre-commit-config.yaml").write_text(CONFIGURATION.read_text(encoding="utf-8"))
    (clone / ".gitignore").write_text(".venv\n.*_cache/\n__pycache__/\n")
    run(*git, "init", "-q")
    installed = run(".venv/bin/pre-commit", "install")
    assert installed.returncode == 0, installed.stderr
    run(*git, "add", "-A")
    good = run(*git, "commit", "-m", "good")
    assert good.returncode == 0, good.stdout + good.stderr
    (clone / "alone" / "__init__.py").write_text("import json\nimport os\nx = { 1:2 }\n")
    run(*git, "add", "-A")
    bad = run(*git, "commit", "-m", "bad")
    assert bad.returncode == 1
    said = bad.stdout + bad.stderr
    assert said.count("Failed") == 3, said
