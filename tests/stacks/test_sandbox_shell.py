"""In the sandbox's shell, settings are changed in the stack's file; all else is the engine's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from falaj.stacks.command import stand_in
from falaj.stacks.command.project import Project as RealProject
from falaj.stacks.command.stand_in import answer, parsed
from falaj.stacks.errors import StackError
from tests.stacks.conftest import Project
from tests.stacks.mistakes import SMB


@pytest.fixture
def real(tmp_path: Path) -> RealProject:
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    return RealProject.find(tmp_path)


@pytest.mark.parametrize(
    ("called", "own"),
    [
        ("config set falaj:tenant acme", "set --stack dev --project P -- falaj:tenant acme"),
        ("config set tenant acme", "set --stack dev --project P -- falaj:tenant acme"),
        ("config set --path falaj:a.b[0] 5", "set --stack dev --project P -- falaj:a.b[0] 5"),
        ("--color never config -s org/falaj/other set aws:region x --plaintext",
         "set --stack other --project P -- aws:region x"),
        ("config --stack=other set a b", "set --stack other --project P -- falaj:a b"),
        ("-C . -v3 config set -sother a b", "set --stack other --project P -- falaj:a b"),
        ("config set a -- -5", "set --stack dev --project P -- falaj:a -5"),
        ("config rm falaj:a", "rm --stack dev --project P -- falaj:a"),
        ("config remove --path a.b", "rm --stack dev --project P -- falaj:a.b"),
        ("config rm-all falaj:a falaj:b", "rm --stack dev --project P -- falaj:a falaj:b"),
    ],
)  # fmt: skip
def test_what_falaj_answers(real: RealProject, called: str, own: str) -> None:
    found = answer(called.split(), real, "dev")
    assert found == own.replace(" P ", f" {real.root} ").split()


@pytest.mark.parametrize(
    "called",
    ["", "config", "config get falaj:tenant", "config --json", "config set --help", "config -h",
     "config set a b --config-file other.yaml", "up --yes", "preview", "stack init config",
     "config nothing", "-- config", "stack output -s config", "logs --color config"],
)  # fmt: skip
def test_what_is_the_engines(real: RealProject, called: str) -> None:
    assert answer(called.split(), real, "dev") is None


@pytest.mark.parametrize(
    ("called", "said"),
    [
        ("config set --secret a b", "config set --secret: settings are read before anything is d"),
        ("config set a", "config set: given 1 words; allowed: KEY VALUE"),
        ("config set a b c", "config set: given 3 words; allowed: KEY VALUE"),
        ("config set a b --type int", "config set --type isn't taken in the sandbox's shell"),
        ("config set-all --plaintext a=b", "config set-all would change the sandbox's copy"),
        ("config cp -d other", "config cp would change the sandbox's copy"),
        ("config copy -d other", "config copy would change the sandbox's copy"),
        ("config refresh", "config refresh would change the sandbox's copy"),
        ("config env add x", "config env would change the sandbox's copy"),
        ("up -c falaj:tenant=x --yes", "up --config would change the sandbox's copy"),
        ("preview --config=falaj:tenant=x", "preview --config would change the sandbox's copy"),
        ("up -cfalaj:tenant=x", "up --config would change the sandbox's copy"),
    ],
)
def test_what_is_refused_says_what_to_do(real: RealProject, called: str, said: str) -> None:
    with pytest.raises(StackError) as refused:
        answer(called.split(), real, "dev")
    assert str(refused.value).startswith(f"pulumi {said}")
    assert "change settings with: falaj config set KEY VALUE" in str(refused.value)


def test_options_are_told_from_words() -> None:
    found = parsed(["-sx", "a", "--color=never", "-y", "--cwd", "d", "--", "-b", "--cwd"])
    assert found.plain == ["a", "-b", "--cwd"]
    assert found.options == {"-s": "x", "--color": "never", "-y": "", "--cwd": "d"}


ENGINE = """#!/bin/sh
echo "$0 $# $*"
echo "stack '$PULUMI_STACK'" >&2
[ "$1" = wait ] && kill -TERM $$
cat
exit 7
"""


def test_everything_else_reaches_the_engine_as_it_is(tmp_path: Path) -> None:
    engine = tmp_path / "an engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["pulumi", *words], cwd=tmp_path, input="typed", capture_output=True, text=True,
            env={**os.environ, "PATH": path}, check=False,
        )  # fmt: skip

    with stand_in.first_on_the_path(engine, tmp_path, os.environ["PATH"]) as path:
        done = call("up", "a  b", "")
        assert (done.returncode, done.stdout) == (7, f"{engine} 3 up a  b \ntyped")
        # A folder that is no copy of the sandbox's: its file is the engine's to write.
        done = call("config", "set", "a", "b  c")
        assert (done.returncode, done.stdout) == (7, f"{engine} 4 config set a b  c\ntyped")
        assert call("wait").returncode == -signal.SIGTERM
        # The shell's stack is none of another project's.
        other = tmp_path.parent
        for cwd, told in ((tmp_path, "dev"), (other, "")):
            asked = subprocess.run(
                ["pulumi", "stack"],
                cwd=cwd, input="", capture_output=True, text=True, check=False,
                env={**os.environ, "PATH": path, "PULUMI_STACK": "dev"},
            )  # fmt: skip
            assert f"stack '{told}'" in asked.stderr
        folder = Path(path.split(os.pathsep)[0])
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.engine
def test_settings_are_changed_in_the_stacks_own_file(project: Project) -> None:
    project.stack = "shop"
    project.file.write_text(SMB.replace("  falaj:owner:", "  # whom to ask\n  falaj:owner:"))
    before = project.file.read_text()
    lines = [
        "pulumi config set falaj:tenant bazaar || echo FAILED",
        "pulumi config set --path 'falaj:inference.maxInstances' 2 || echo FAILED",
        "pulumi config get falaj:tenant",
        "pulumi config get --path falaj:inference.maxInstances",
        "falaj config get inference.maxInstances",
        "falaj config set falaj:budget.monthlyUsd 600 || echo FAILED",
        "pulumi config set falaj:region westeurope; echo STATUS $?",
        "pulumi config set --secret falaj:tenant x; echo STATUS $?",
        "pulumi config cp --dest other; echo STATUS $?",
        "pulumi stack ls --json",
        "pulumi nonsense; echo STATUS $?",
        "exit 5",
    ]
    script = "#!/bin/sh\nexec sh -c '" + "\n".join(lines).replace("'", "'\\''") + "'\n"
    shell = project.root.parent / "typing"
    shell.write_text(script)
    shell.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "falaj.stacks.command", "shell", "--sandbox", "--stack", "shop"],
        cwd=project.root, env={**project.environment, "SHELL": str(shell)},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    assert done.returncode == 5, printed
    assert "FAILED" not in printed, printed
    told = done.stdout.splitlines()
    assert "stacks/Pulumi.shop.yaml:5:   falaj:tenant: bazaar" in told
    assert told[told.index("bazaar") : told.index("bazaar") + 3] == ["bazaar", "2", "2"]
    assert printed.count("STATUS 2") == 3, printed
    assert "falaj:region: given 'westeurope'; allowed on azure: uaenorth" in done.stderr
    assert "config cp would change the sandbox's copy" in done.stderr
    assert "STATUS 255" in printed or "STATUS 1" in printed
    listed = next(line for line in told if line.startswith("["))
    assert json.loads("\n".join(told[told.index(listed) : told.index("]") + 1]))
    assert project.file.read_text() == (
        before.replace("tenant: souq", "tenant: bazaar")
        .replace("maxInstances: 3", "maxInstances: 2")
        .replace("monthlyUsd: 500", "monthlyUsd: 600")
    )
