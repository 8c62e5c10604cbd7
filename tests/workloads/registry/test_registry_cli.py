import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry.__main__ import main
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.sealed import seal
from falaj.workloads.registry.store import Store


class Cli:
    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.registry, self.ring, self.out = root / "registry", root / "keyring", root / "out"
        self._capsys = capsys

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *arguments: str | Path) -> dict[str, Any]:
        code, out, error = self.run(*arguments, "--json")
        assert code == 0, error
        assert out.count("\n") == 1
        return json.loads(out)

    def refused(self, *arguments: str | Path) -> str:
        code, out, error = self.run(*arguments)
        assert code == 2
        assert out == ""
        assert error.startswith("error: ")
        assert "Traceback" not in error
        return error

    def model(self, command: str, *more: str | Path) -> list[str | Path]:
        return [command, "--registry", self.registry, "--model", "digits", *more]

    def publish(self) -> list[str | Path]:
        return self.model("publish", "--keyring", self.ring, "--from", self.out,
                          "--fields", self.out / "fields.json")  # fmt: skip


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, Any]) -> Cli:
    cli = Cli(tmp_path, capsys)
    cli.out.mkdir()
    (cli.out / "fields.json").write_text(json.dumps(fields))
    (cli.out / "model.onnx").write_bytes(b"one")
    return cli


def test_mistakes_are_one_clear_error(cli: Cli) -> None:
    assert "keyring create" in cli.refused("keyring", "show", "--path", cli.ring)
    assert "keyring create" in cli.refused(*cli.publish())
    cli.json("keyring", "create", "--path", cli.ring)
    assert "none: publish one first" in cli.refused(*cli.model("promote", "--version", "1"))
    assert "no alias" in cli.refused(*cli.model("rollback"))
    assert "no alias" in cli.refused(*cli.model("verify", "--keyring", cli.ring))
    assert "no model 'digits'" in cli.refused("list", "--registry", cli.registry,
                                              "--model", "digits")  # fmt: skip
    assert "has no versions" in cli.refused(*cli.model("prune", "--keep", "1"))
    assert "no folder" in cli.refused("keyring", "rotate", "--path", cli.ring,
                                      "--rewrap", cli.registry)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "isn't valid JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "lacks dataset, lineage, inputs, outputs"),
        ('{"colour": 1}', "unknown field 'colour'; allowed: dataset"),
        ('{"dataset": 3}', "dataset is a number; allowed: an object"),
    ],
)
def test_bad_fields_are_refused(cli: Cli, content: str, reason: str) -> None:
    cli.json("keyring", "create", "--path", cli.ring)
    (cli.out / "fields.json").write_text(content)
    assert reason in cli.refused(*cli.publish())


def test_bad_files_are_refused(cli: Cli) -> None:
    keyring = KeyRing.create(cli.ring)
    assert "there is no file" in cli.refused(*cli.publish(), "--file", "weights.onnx")
    assert "can't name a file" in cli.refused(*cli.publish(), "--file", "../keyring/signing.pem")
    seal(cli.out / "model.onnx.sealed", b"one", keyring, b"x")
    assert "both" in cli.refused(*cli.publish())
    (cli.out / "model.onnx").unlink()
    assert "--context" in cli.refused(*cli.publish())


def test_registry_that_is_a_file_is_refused(cli: Cli) -> None:
    KeyRing.create(cli.ring)
    cli.registry.write_text("a file")
    assert "registry" in cli.refused(*cli.publish())
    assert "a file" in cli.registry.read_text()


def test_tampered_package_is_refused(cli: Cli, package: Package) -> None:
    (package.path / "files" / "model.onnx.enc").write_bytes(b"changed")
    error = cli.refused(*cli.model("verify", "--version", "1", "--keyring", cli.ring))
    assert "model.onnx of digits version 1" in error
    error = cli.refused(*cli.model("promote", "--version", "1", "--keyring", cli.ring))
    assert "changed" in error
    assert Store(cli.registry).aliases("digits") == {}


def test_untrusted_signer_is_refused(cli: Cli, package: Package, other_keyring: KeyRing) -> None:
    key = other_keyring.path / "signing.pub.pem"
    verify = cli.model("verify", "--version", "1", "--keyring", cli.ring, "--verify-key")
    assert "not by the trusted" in cli.refused(*verify, key)
    assert "isn't an Ed25519 public key" in cli.refused(*verify, cli.out / "model.onnx")
    alone = cli.model("show", "--version", "1", "--verify-key", key)
    assert "without --keyring" in cli.refused(*alone)


@pytest.mark.parametrize(
    "arguments",
    [[], ["keyring"], ["keyring", "create"], ["publish"], ["prune", "--keep", "x"], ["sign"]],
)
def test_wrong_usage_leaves_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_keyring_commands(cli: Cli) -> None:
    made = cli.json("keyring", "create", "--path", cli.ring)
    assert set(made) == {"path", "primary", "versions", "signing_key_id", "token_key_id"}
    assert cli.json("keyring", "create", "--path", cli.ring) == made
    assert cli.json("keyring", "show", "--path", cli.ring) == made
    rotated = cli.json("keyring", "rotate", "--path", cli.ring, "--rewrap", cli.out)
    assert (rotated["primary"], rotated["versions"], rotated["retired"]) == ("2", ["2"], ["1"])
    assert rotated["signing_key_id"] != made["signing_key_id"]
    assert rotated["token_key_id"] != made["token_key_id"]
    job = cli.out / "state.jobs" / "a.answer.sealed"
    job.parent.mkdir()
    job.write_bytes(b"cut")
    rotated = cli.json("keyring", "rotate", "--path", cli.ring, "--rewrap-expiring", cli.out)
    assert rotated["retired"] == ["2"]
    assert [str(job) in each for each in rotated["damaged"]] == [True]
    assert cli.json("keyring", "shred", "--path", cli.ring)["shredded"]
    assert not cli.ring.exists()


def test_the_way_of_a_version(cli: Cli) -> None:
    cli.json("keyring", "create", "--path", cli.ring)
    first = cli.json(*cli.publish())
    assert (first["version"], first["created"]) == (1, True)
    assert set(first) == {"model", "version", "path", "digest", "created"}
    assert cli.json(*cli.publish()) == {**first, "created": False}
    (cli.out / "model.onnx").write_bytes(b"two")
    assert cli.json(*cli.publish())["version"] == 2
    promote = cli.model("promote", "--version")
    assert cli.json(*promote, "1", "--keyring", cli.ring)["previous"] is None
    moved = cli.json(*promote, "2", "--keyring", cli.ring)
    expected = {"model": "digits", "alias": "production", "version": 2, "previous": 1}
    assert moved == expected
    verified = cli.json(*cli.model("verify", "--keyring", cli.ring))
    assert (verified["version"], verified["files"]) == (2, {"model.onnx": 3})
    assert cli.json(*cli.model("rollback", "--keyring", cli.ring))["version"] == 1
    shown = cli.json(*cli.model("show"))
    assert (shown["manifest"]["version"], shown["verified"]) == (1, False)
    assert cli.json(*cli.model("show", "--keyring", cli.ring))["verified"]
    listed = cli.json("list", "--registry", cli.registry)["models"][0]["versions"]
    assert [version["aliases"] for version in listed] == [["production"], []]
    assert cli.json(*cli.model("prune", "--keep", "1", "--protect", "1")) == {
        "model": "digits", "removed": [], "kept": [1, 2],
    }  # fmt: skip
    log = cli.json("audit", "--registry", cli.registry)
    assert [event["action"] for event in log["events"]] == [
        "publish", "publish", "promote", "promote", "rollback",
    ]  # fmt: skip


def test_sealed_files_are_published_without_touching_the_disk(
    cli: Cli, fields: dict[str, Any]
) -> None:
    keyring = KeyRing.create(cli.ring)
    (cli.out / "model.onnx").unlink()
    run = fields["lineage"]["run"]
    context = f"optimization:{run}:model.onnx".encode()
    seal(cli.out / "model.onnx.sealed", b"sealed", keyring, context)
    before = sorted(cli.out.iterdir())
    cli.json(*cli.publish())
    assert sorted(cli.out.iterdir()) == before
    package = Store(cli.registry).load("digits", 1, keyring, keyring.verify_key())
    assert package.read("model.onnx") == b"sealed"


def test_texts_for_people(cli: Cli) -> None:
    assert cli.run("keyring", "create", "--path", cli.ring)[1].startswith("key ring ")
    assert cli.run("list", "--registry", cli.registry)[1].endswith("holds no models\n")
    assert "published digits version 1" in cli.run(*cli.publish())[1]
    assert "version 1, before: nothing" in cli.run(*cli.model("promote", "--version", "1"))[1]
    assert "<- production" in cli.run("list", "--registry", cli.registry)[1]
    (cli.registry / "digits" / "versions" / "1" / "manifest.json").write_text("{")
    assert "damaged" in cli.run("list", "--registry", cli.registry)[1]
    assert "manifest" in cli.refused(*cli.model("show"))


def test_the_module_starts_without_heavy_imports() -> None:
    code = (
        "import sys, falaj.workloads.registry.__main__\n"
        "heavy = {'torch', 'numpy', 'onnx', 'pydantic', 'pulumi'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_interruption_says_to_run_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_path: Path) -> KeyRing:
        raise KeyboardInterrupt

    monkeypatch.setattr(KeyRing, "create", interrupted)
    code, out, error = cli.run("keyring", "create", "--path", cli.ring)
    assert (code, out) == (75, "")
    assert "run it again" in error
