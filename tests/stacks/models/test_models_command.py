"""``falaj models`` on one registry: what is sent, shown, verified and fetched, and refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from falaj.workloads.registry.__main__ import main as registry_command
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.stacks.images.registries import Registry, crane
from tests.stacks.models.published import MODEL, Publisher, answer, run


def test_a_version_is_sent_once_and_comes_back_as_it_was(
    publisher: Publisher, home: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher.publish("first")
    assert publisher.push(home.address) == 0
    told = capsys.readouterr().out
    sent = answer(
        capsys, "push", home.address, MODEL, "--from", str(publisher.store.root),
        "--verify-key", publisher.verify_key,
    )  # fmt: skip
    assert sent["sent"] == []
    assert f"packageDigest: {sent['packageDigest']}" in told
    assert f"keysDigest: {sent['keysDigest']}" in told
    assert home.digest(f"{home.address}/models/{MODEL}:v1") == sent["packageDigest"]
    assert home.digest(f"{home.address}/models/{MODEL}:v1.keys.1") == sent["keysDigest"]

    listed = answer(capsys, "list", home.address)
    assert listed["models"] == [{
        "model": MODEL,
        "versions": [{"version": 1, "digest": sent["packageDigest"], "tags": ["v1.keys.1"]}],
    }]  # fmt: skip
    shown = answer(capsys, "show", home.address, MODEL, "--verify-key", publisher.verify_key)
    assert shown["manifest"] == publisher.package(1).manifest
    assert shown["artifactType"] == "application/vnd.falaj.package.v1+json"
    assert shown["signatureVerified"]
    verified = answer(
        capsys, "verify", home.address, MODEL, "--digest", sent["packageDigest"],
        "--keyring", str(publisher.keyring.path),
    )  # fmt: skip
    assert (verified["verified"], verified["opened"]) == (True, True)

    target = tmp_path / "taken"
    for _ in range(2):
        pulled = answer(
            capsys, "pull", home.address, MODEL, "--version", "1", "--to", str(target),
            "--verify-key", publisher.verify_key,
        )  # fmt: skip
        assert pulled["digest"] == sent["packageDigest"]
    there = tmp_path / "there"
    arguments = ["import", "--registry", str(there), "--model", MODEL, "--version", "1",
                 "--from", str(target), "--keyring", str(publisher.keyring.path)]  # fmt: skip
    assert registry_command(arguments) == 0
    package = Store(there).verify(MODEL, 1, publisher.keyring, publisher.keyring.verify_key())
    assert package.read("model.onnx") == b"weightsfirst"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".falaj")]


def test_the_newest_version_is_shown_and_a_missing_one_named(
    publisher: Publisher, home: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("first", "second"):
        publisher.publish(each)
        assert publisher.push(home.address) == 0
    shown = answer(capsys, "show", home.address, MODEL)
    assert (shown["version"], shown["signatureVerified"]) == (2, False)
    assert run("show", home.address, MODEL) == 0
    told = capsys.readouterr().out
    assert 'metrics: {"accuracy": 0.9}' in told
    assert "not verified: give --verify-key" in told
    assert run("show", home.address, MODEL, "--version", "3") == 2
    assert "has no version 3; it has: 1, 2" in capsys.readouterr().err
    assert run("show", home.address, "churn") == 2
    assert "has no model 'churn'; it has: credit" in capsys.readouterr().err
    digest = answer(capsys, "show", home.address, MODEL, "--version", "1")["digest"]
    assert run("show", home.address, MODEL, "--version", "2", "--digest", digest) == 2
    assert "is version 1 of credit, not 2" in capsys.readouterr().err


def test_a_rotation_sends_new_keys_beside_the_old_ones(
    publisher: Publisher, home: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher.publish("first")
    assert publisher.push(home.address) == 0
    old = home.digest(f"{home.address}/models/{MODEL}:v1.keys.1")
    publisher.rotate()
    sent = answer(
        capsys, "push", home.address, MODEL, "--from", str(publisher.store.root),
        "--keyring", str(publisher.keyring.path),
    )  # fmt: skip
    assert (sent["sent"], sent["keysTag"]) == (["v1.keys.2"], "v1.keys.2")
    assert home.digest(f"{home.address}/models/{MODEL}:v1.keys.1") == old
    # The retired key opens nothing any more, so that the newest keys have to be those taken.
    arguments = ("--to", str(tmp_path / "taken"), "--keyring", str(publisher.keyring.path))
    assert run("pull", home.address, MODEL, *arguments) == 0
    capsys.readouterr()
    again = answer(
        capsys, "push", home.address, MODEL, "--from", str(publisher.store.root),
        "--keyring", str(publisher.keyring.path),
    )  # fmt: skip
    assert again["sent"] == []


def test_a_version_is_never_replaced(
    publisher: Publisher, home: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher.publish("first")
    assert publisher.push(home.address) == 0
    before = home.digest(f"{home.address}/models/{MODEL}:v1")
    publisher.forget(1)
    publisher.publish("another")
    assert publisher.push(home.address) == 2
    assert "is never replaced" in capsys.readouterr().err
    assert home.digest(f"{home.address}/models/{MODEL}:v1") == before
    assert "v1.keys.2" not in crane("ls", f"{home.address}/models/{MODEL}")


def test_a_damaged_package_is_not_sent(
    publisher: Publisher, home: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher.publish("first")
    sealed = publisher.store.path(MODEL, 1) / "files" / "model.onnx.enc"
    content = bytearray(sealed.read_bytes())
    content[-1] ^= 1
    sealed.write_bytes(content)
    for trust in (("--keyring", str(publisher.keyring.path)),
                  ("--verify-key", publisher.verify_key)):  # fmt: skip
        where = ("push", home.address, MODEL, "--from", str(publisher.store.root))
        assert run(*where, *trust) == 2
        assert "isn't what was signed" in capsys.readouterr().err
    assert crane("catalog", home.address) == ""


@pytest.mark.parametrize("command", ["verify", "pull"])
def test_what_was_changed_in_the_registry_is_not_taken(
    publisher: Publisher, home: Registry, tmp_path: Path, command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    publisher.publish("first")
    assert publisher.push(home.address) == 0
    target = tmp_path / "taken"
    to = ["--to", str(target)] if command == "pull" else []
    stranger = KeyRing.create(tmp_path / "stranger")
    known = [command, home.address, MODEL, *to]
    assert run(*known, "--verify-key", str(stranger.path / "signing.pub.pem")) == 2
    assert "not by the trusted" in capsys.readouterr().err
    blob = home.blob(home.layer_of(f"{home.address}/models/{MODEL}:v1"))
    data = bytearray(blob.read_bytes())
    data[700] ^= 1
    blob.write_bytes(data)
    assert run(*known, "--verify-key", publisher.verify_key) == 2
    said = capsys.readouterr().err
    assert "error: " in said
    assert "Traceback" not in said
    assert not target.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".falaj")]


def test_another_image_under_a_versions_tag_is_no_package(
    publisher: Publisher, home: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    home.image("models/plain", "content")
    for command in (["show"], ["verify", "--verify-key", publisher.verify_key]):
        assert run(command[0], home.address, "plain", *command[1:]) == 2
        assert "is no package: its artifactType is None" in capsys.readouterr().err
    publisher.publish("first")
    assert publisher.push(home.address) == 0
    # A whole package under the tag of another version, and of another model.
    repository = f"{home.address}/models/{MODEL}"
    crane("tag", f"{repository}:v1", "v2")
    crane("copy", f"{repository}:v1", f"{home.address}/models/churn:v1")
    for model in (MODEL, "churn"):
        assert run("show", home.address, model) == 2
        assert "holds credit version 1: it was moved there" in capsys.readouterr().err


def test_a_package_without_its_keys_is_not_taken(
    publisher: Publisher, home: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher.publish("first")
    assert publisher.push(home.address) == 0
    repository = f"{home.address}/models/{MODEL}"
    crane("copy", f"{repository}:v1", f"{home.address}/other/models/{MODEL}:v1")
    arguments = ("--to", str(tmp_path / "taken"), "--verify-key", publisher.verify_key)
    assert run("pull", f"{home.address}/other", MODEL, *arguments) == 2
    assert "has no keys of version 1 (v1.keys.1 …)" in capsys.readouterr().err
    # Those of another version, under the tag of this one's.
    publisher.publish("second")
    assert publisher.push(home.address) == 0
    crane("tag", f"{repository}:v2.keys.1", "v1.keys.2")
    assert run("pull", home.address, MODEL, "--version", "1", *arguments) == 2
    assert "holds credit version 2: it was moved there" in capsys.readouterr().err
    assert not (tmp_path / "taken").exists()


def test_a_folder_that_holds_something_else_is_kept(
    publisher: Publisher, home: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("first", "second"):
        publisher.publish(each)
        assert publisher.push(home.address) == 0
    target = tmp_path / "taken"
    arguments = ("--to", str(target), "--verify-key", publisher.verify_key)
    assert run("pull", home.address, MODEL, "--version", "1", *arguments) == 0
    assert run("pull", home.address, MODEL, "--version", "2", *arguments) == 2
    assert "version 1, not credit version 2" in capsys.readouterr().err
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    arguments = ("--to", str(tmp_path / "notes"), "--verify-key", publisher.verify_key)
    assert run("pull", home.address, MODEL, *arguments) == 2
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"


def test_a_full_disk_is_told_before_anything_is_fetched(
    publisher: Publisher, home: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    publisher.publish("first")
    assert publisher.push(home.address) == 0
    full = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    arguments = ("--to", str(tmp_path / "taken"), "--verify-key", publisher.verify_key)
    assert run("pull", home.address, MODEL, *arguments) == 2
    assert "no space left for credit version 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "ghcr.io/somebody"], "images are kept in the country"),
        (["push", "1.dkr.ecr.us-east-1.amazonaws.com", MODEL, "--from", "x", "--keyring", "x"],
         "images are kept in the country"),
        (["show", "docker.io", MODEL], "images are kept in the country"),
        (["verify", "ghcr.io", MODEL, "--keyring", "x"], "images are kept in the country"),
        (["pull", "ghcr.io", MODEL, "--to", "x", "--keyring", "x"],
         "images are kept in the country"),
        (["copy", "ghcr.io", "127.0.0.1:1"], "images are kept in the country"),
        (["copy", "127.0.0.1:1", "quay.io/x"], "images are kept in the country"),
        (["copy", "127.0.0.1:1", "127.0.0.1:1/"], "which is SOURCE as well"),
        (["list", "https://registry.example.ae"], "without https://"),
        (["list", "127.0.0.1:1"], "can't be reached"),
        (["copy", "127.0.0.1:1", "127.0.0.1:2"], "can't be reached"),
        (["verify", "127.0.0.1:1", MODEL], "what nobody vouches for isn't sent or taken"),
        (["show", "127.0.0.1:1", "Credit"], "registries allow 1 to 64 lower-case letters"),
        (["show", "127.0.0.1:1", "../x"], "can't name a model"),
        (["push", "127.0.0.1:1", MODEL, "--from", "nowhere", "--keyring", "nowhere"],
         "nowhere"),
        (["list", "127.0.0.1:1", "--stack", "nobody"], "Pulumi.nobody.yaml"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_what_to_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err


def test_a_registry_that_lets_nobody_in_is_told(
    refusing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["list", refusing], ["show", refusing, MODEL],
                    ["copy", refusing, "127.0.0.1:1"]):  # fmt: skip
        assert run(*command) == 2
        assert f"crane auth login {refusing}" in capsys.readouterr().err
