from __future__ import annotations

import errno
from pathlib import Path

import pytest

from falaj.engine.files import data_home, stack_home
from falaj.sandbox.activation import CLUSTER_VARIABLE
from falaj.stacks.command import __main__ as command
from falaj.stacks.command import installation, project, scaffold
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import LocalSettings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with one template."""
    templates = tmp_path / "stacks" / "templates"
    templates.mkdir(parents=True)
    (templates / "local.yaml").write_text("config:\n  # Here.\n  falaj:platform: local\n")
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    return tmp_path


def stack_file(name: str) -> StackFile:
    return StackFile(name, Project.find())


def port_of(name: str) -> int:
    settings = stack_file(name).settings()
    assert isinstance(settings, LocalSettings)
    return settings.service.port


def test_a_new_stack_gets_a_port_that_no_other_has(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        assert command.main(["new", "--stack", name]) == 0
    assert (port_of("one"), port_of("two")) == (8443, 8444)
    assert "its server gets port 8444, as another stack has 8443" in capsys.readouterr().out
    assert "# Here." in stack_file("two").path.read_text(), "comments stay"
    # Of a stack of another project that is up.
    up = stack_home("elsewhere", "main") / "service" / "shop" / "service.json"
    up.parent.mkdir(parents=True)
    up.write_text('{"port": 8445}')
    # What can't be read takes no port.
    (folder / "stacks" / "Pulumi.broken.yaml").write_text("config: [")
    broken = stack_home("elsewhere", "other") / "service" / "shop" / "service.json"
    broken.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"port": [8446]}'):
        broken.write_text(text)
        (stack_file("three").path).unlink(missing_ok=True)
        assert command.main(["new", "--stack", "three"]) == 0
        assert port_of("three") == 8446
    # Its own, which is up while its file is made again, is no other's.
    own = stack_home("falaj", "three") / "service" / "shop" / "service.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"port": 8446}')
    stack_file("three").path.unlink()
    assert command.main(["new", "--stack", "three"]) == 0
    assert port_of("three") == 8446
    up.write_text('{"port": 8443}')
    assert command.main(["new", str(tmp_path / "own"), "--template", "local"]) == 0
    made = (tmp_path / "own" / "Pulumi.dev.yaml").read_text()
    assert "falaj:service.port: 8444" in made


@pytest.mark.parametrize("given", [".", "../link"])
def test_an_empty_folder_stays_the_one_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Whoever stands in it would see nothing in the one that took its place."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "link").symlink_to("own")
    monkeypatch.chdir(own)
    before = own.stat().st_ino
    assert command.main(["new", given, "--template", "local"]) == 0
    assert own.stat().st_ino == before
    assert (Path.cwd() / "Pulumi.dev.yaml").is_file()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_project_that_can_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    own = tmp_path / "own"
    own.mkdir()
    copy = scaffold.shutil.copyfile

    def full(source: Path, target: Path) -> None:
        copy(source, target)
        if target.parent == own and len(list(own.iterdir())) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(scaffold.shutil, "copyfile", full)
    assert command.main(["new", str(own), "--template", "local"]) == 2
    assert f"can't write {own}: No space left on device" in capsys.readouterr().err
    assert list(own.iterdir()) == []


def test_a_copy_of_a_file_is_no_stack(folder: Path) -> None:
    (folder / "stacks" / "Pulumi.one copy.yaml").write_text("config: {falaj:platform: local}\n")
    assert command.main(["new", "--stack", "two"]) == 0
    assert Project.find(folder).stack_names == ["two"]


@pytest.mark.parametrize(
    "text", ["config: {falaj:platform: aws}\nencryptionsalt: v1:x", "when: 2026-13-45", "[", "[1]"]
)
def test_a_file_that_cannot_be_read_has_no_salt(folder: Path, text: str) -> None:
    file = stack_file("one")
    assert (file.salt, file.is_in_cloud) == (None, False)
    file.path.write_text(text)
    is_good = "salt" in text
    assert (file.salt, file.is_in_cloud) == ("v1:x" if is_good else None, is_good)


@pytest.mark.parametrize("name", ["", "../escape", "a/b", "-x", ".hidden", "a b", "x" * 101])
def test_bad_stack_names_are_refused(name: str) -> None:
    with pytest.raises(StackError, match="stack name: given"):
        stack_file(name)


def test_unknown_stack_says_how_to_make_one(folder: Path) -> None:
    with pytest.raises(StackError, match="falaj new --stack shop --template local"):
        stack_file("shop").ensure()
    assert not (folder / "stacks" / "Pulumi.shop.yaml").exists()


def test_template_is_copied_once_and_never_over_a_persons_edits(folder: Path) -> None:
    stack = stack_file("local")
    assert stack.ensure()
    stack.path.write_text("config:\n  falaj:platform: local\n  falaj:retain: true\n")
    assert not stack.ensure()
    settings = stack.settings()
    assert isinstance(settings, LocalSettings)
    assert settings.retain
    assert stack.path.is_relative_to(folder)


def test_new_refuses_to_overwrite_and_unknown_templates(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["new", "--stack", "shop"]) == 0
    assert (folder / "stacks" / "Pulumi.shop.yaml").exists()
    assert command.main(["new", "--stack", "shop"]) == 2
    assert command.main(["new", "--stack", "other", "--template", "moon"]) == 2
    printed = capsys.readouterr().err
    assert "exists already; it was not touched" in printed
    assert "template: given 'moon'; allowed: local" in printed
    assert "Traceback" not in printed


@pytest.mark.usefixtures("folder")
def test_salt_goes_with_its_passphrase_but_not_with_encrypted_values() -> None:
    stack = stack_file("local")
    stack.ensure()
    plain = stack.path.read_text()
    stack.path.write_text("encryptionsalt: v1:abc=:v1:def\n" + plain)
    stack.forget_passphrase()
    assert stack.path.read_text() == plain
    secret = "encryptionsalt: v1:abc\n" + plain + "  falaj:x:\n    secure: v1:zzz\n"
    stack.path.write_text(secret)
    stack.forget_passphrase()
    assert stack.path.read_text() == secret


def test_data_home_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FALAJ_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert data_home() == tmp_path / "xdg" / "falaj"
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "own"))
    assert data_home() == tmp_path / "own"


@pytest.mark.parametrize("name", ["demo", "token", "rollback", "logs"])
def test_commands_on_a_stack_that_serves_nothing(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path))
    assert command.main([name]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: stack local serves nothing; start it with: make up")


def test_status_of_a_stack_that_is_not_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path))
    assert command.main(["status"]) == 0
    assert "is not up; start it with: make up\n" in capsys.readouterr().out


def test_settings_reference_lists_nested_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["settings"]) == 0
    printed = capsys.readouterr().out
    assert "falaj:training.epochs" in printed
    assert "a whole number from 1024 to 65535" in printed


def test_commands_that_are_told_go_where_this_one_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command of a stack on a test control plane names it as well."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path))
    stack = StackFile("onprem-cluster", Project.find(installation.ROOT))
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)
    assert "CLUSTER" not in project.command("up", stack, sandbox=True)
    monkeypatch.setenv(CLUSTER_VARIABLE, str(tmp_path / "cluster" / "kubeconfig"))
    told = project.command("up", stack, sandbox=True)
    assert told.endswith("STACK=onprem-cluster SANDBOX=1 CLUSTER=1")
    assert "luster" not in project.command("up", stack).replace("onprem-cluster", "")
    monkeypatch.setenv(CLUSTER_VARIABLE, "/srv/a plane/kubeconfig")
    told = project.command("up", stack, sandbox=True)
    assert told.endswith("--sandbox --cluster '/srv/a plane/kubeconfig'")
    assert "make" not in told
