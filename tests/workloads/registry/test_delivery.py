"""Versions that go from a pod into a registry of images: numbers, repeats, aliases, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import LOST, REFUSED, IntegrityError, RegistryError
from falaj.workloads.registry import delivery, rotation, sending
from falaj.workloads.registry.__main__ import main
from falaj.workloads.registry.aliases import NothingSeen, Signer, newest
from falaj.workloads.registry.delivery import Content, Delivered, deliver
from falaj.workloads.registry.distribution import RegistryClient
from falaj.workloads.registry.keyring import KeyRing, pack, unpack
from falaj.workloads.registry.oci_layout import read_package
from falaj.workloads.registry.sealed import write_artifact
from falaj.workloads.registry.shelf import Shelf
from tests.stacks.images.registries import Registry, crane, running
from tests.workloads.registry.fronts import PASSWORD, QUICK, USER, basic, standing

MODEL = "digits"


@pytest.fixture
def registry(tmp_path: Path) -> Generator[Registry]:
    with running(tmp_path / "images") as made:
        yield made


@pytest.fixture
def shelf(registry: Registry) -> Shelf[RegistryClient]:
    return Shelf(registry.address, "models", RegistryClient(pauses=QUICK))


class Publisher:
    """Delivers content after content, each in a pod of its own: nothing is kept between."""

    def __init__(self, shelf: Shelf[RegistryClient], keyring: KeyRing, folder: Path) -> None:
        self.shelf, self.keyring, self.folder = shelf, keyring, folder
        self.said: list[str] = []

    def __call__(
        self, fields: dict[str, Any], data: bytes = b"weights", alias: str | None = "candidate"
    ) -> Delivered:
        staging = self.folder / f"staging-{len(list(self.folder.iterdir()))}"
        return deliver(
            self.shelf, Content(MODEL, {"model.onnx": data}, fields),
            Signer(self.keyring, NothingSeen()), alias=alias, staging=staging,
            say=self.said.append,
        )  # fmt: skip


@pytest.fixture
def publisher(shelf: Shelf[RegistryClient], keyring: KeyRing, tmp_path: Path) -> Publisher:
    folder = tmp_path / "stagings"
    folder.mkdir()
    return Publisher(shelf, keyring, folder)


def test_versions_are_numbered_by_the_registry(
    publisher: Publisher, fields: dict[str, Any], keyring: KeyRing, tmp_path: Path
) -> None:
    first, second = publisher(fields), publisher(fields, b"others")
    assert (first.package.version, second.package.version) == (1, 2)
    assert first.created
    assert second.created
    for number, done in enumerate((first, second), 1):
        for kind, image in (("package", done.package), ("keys", done.keys)):
            reference = f"{publisher.shelf.repository(MODEL)}@{image.itself.digest}"
            crane("pull", "--format=oci", reference, str(tmp_path / f"{kind}{number}"))
    package = read_package(
        tmp_path / "package2", tmp_path / "keys2", tmp_path / "open", keys=keyring,
        verify_key=keyring.verify_key(), digest=second.package.itself.digest,
    )  # fmt: skip
    assert package.read("model.onnx") == b"others"
    entry = newest(publisher.shelf, MODEL, "candidate", keyring.verify_key())
    assert entry is not None
    assert (entry.record.number, entry.record.version, entry.record.history) == (2, 2, (1,))


def test_the_same_again_is_the_version_that_is_there(
    publisher: Publisher, fields: dict[str, Any]
) -> None:
    first = publisher(fields)
    publisher(fields, b"others")
    again = publisher(fields)
    assert not again.created
    assert (again.package, again.keys) == (first.package, first.keys)
    assert publisher.shelf.tags(MODEL).keys() == {1, 2}
    # What a pod was to let stand for it stands for it, after all that came between.
    assert again.alias is not None
    assert again.alias.record.version == 1


def test_another_run_is_another_version(publisher: Publisher, fields: dict[str, Any]) -> None:
    publisher(fields)
    other = {**fields, "lineage": {**fields["lineage"], "run": "s" * 64}}
    assert publisher(other).package.version == 2


def test_no_alias_is_made_where_none_is_asked_for(
    publisher: Publisher, fields: dict[str, Any]
) -> None:
    assert publisher(fields, alias=None).alias is None
    assert not [each for each in crane("ls", publisher.shelf.repository(MODEL)).split() if
                each.startswith("alias")]  # fmt: skip


def test_a_version_without_keys_is_not_taken_for_one(
    publisher: Publisher, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = sending._send  # pyright: ignore[reportPrivateUsage]

    def half(shelf: Any, tag: str, *rest: Any) -> None:
        if "keys" in tag:
            raise KeyboardInterrupt
        sent(shelf, tag, *rest)

    monkeypatch.setattr(sending, "_send", half)
    with pytest.raises(KeyboardInterrupt):
        publisher(fields)
    monkeypatch.undo()
    done = publisher(fields)
    assert done.created
    assert done.package.version == 2


def test_another_signer_s_model_is_left_alone(
    publisher: Publisher, fields: dict[str, Any], other_keyring: KeyRing
) -> None:
    publisher(fields)
    publisher.keyring = other_keyring
    with pytest.raises(IntegrityError, match="a model's versions are one signer's"):
        publisher(fields, b"others")
    assert publisher.shelf.tags(MODEL).keys() == {1}


def test_who_is_overtaken_is_told_to_try_again(
    publisher: Publisher, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = delivery.push

    def late(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        publisher(fields, b"somebody else's")
        return signed(*arguments, **named)

    monkeypatch.setattr(delivery, "push", late)
    with pytest.raises(RegistryError, match="a version is never replaced"):
        publisher(fields)
    assert publisher(fields).package.version == 2


def test_a_ring_that_only_opens_delivers_nothing(
    publisher: Publisher, fields: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "packed").write_bytes(pack(publisher.keyring))
    publisher.keyring = unpack(tmp_path / "packed", tmp_path / "opens")
    with pytest.raises(Exception, match=r"private key is missing"):
        publisher(fields)
    assert publisher.shelf.tags(MODEL) == {}


# -- as pods run it ------------------------------------------------------------------------------


Pod = Callable[..., int]


@pytest.fixture
def pod(keyring: KeyRing, tmp_path: Path, fields: dict[str, Any]) -> Pod:
    """The command as pods run it, with the files that optimisation left; its exit status."""
    folder = tmp_path / "optimised"
    folder.mkdir(mode=0o700)
    context = f"optimization:{fields['lineage']['run']}:model.onnx".encode()
    write_artifact(folder / "model.onnx", b"sealed weights", keyring, context)
    (folder / "fields.json").write_text(json.dumps(fields))

    def run(to: str, *more: str) -> int:
        return main([
            "deliver", "--model", MODEL, "--from", str(folder), "--fields",
            str(folder / "fields.json"), "--keyring", str(keyring.path), "--to", to, "--json",
            *more,
        ])  # fmt: skip

    return run


def test_a_pod_delivers_what_was_sealed_for_it(
    registry: Registry, pod: Pod, capsys: pytest.CaptureFixture[str]
) -> None:
    to = f"{registry.address}/falaj/models"
    assert pod(to, "--alias", "candidate") == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["created"]
    assert told["version"] == 1
    assert told["reference"] == f"{to}/{MODEL}@{told['packageDigest']}"
    assert crane("digest", f"{to}/{MODEL}:v1") == told["packageDigest"]
    assert crane("digest", f"{to}/{MODEL}:v1.keys.1") == told["keysDigest"]
    assert "candidate stands for version 1" in said.err
    assert pod(to, "--alias", "candidate") == 0
    assert not json.loads(capsys.readouterr().out)["created"]


def test_a_pod_logs_in_with_the_file_that_it_was_given(
    registry: Registry, pod: Pod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with standing(registry.address, answer=basic) as front:
        to = f"{front.address}/models"
        assert pod(to) == LOST
        assert "refused access" in capsys.readouterr().err
        login = {"username": USER, "password": PASSWORD}
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"auths": {front.address: login}}))
        assert pod(to, "--login", str(path)) == 0
        said = capsys.readouterr()
        assert PASSWORD not in said.out + said.err


@pytest.mark.parametrize(
    ("to", "more", "words"),
    [
        ("models", (), "--to: given 'models'; allowed: HOST"),
        ("registry.example.ae/", (), "--to: given"),
        ("{registry}/models", ("--alias", "Not An Alias"), "alias"),
        ("{registry}/models", ("--alias", "candidate", "--days", "0"), "days: given 0"),
        ("{registry}/models", ("--file", "other.onnx"), "other.onnx"),
        ("{registry}/models", ("--login", "/nowhere/config.json"), "registry's login"),
        ("https://{registry}/models", (), "allowed: HOST"),
    ],
)
def test_what_a_pod_can_t_use_is_said(
    pod: Pod,
    registry: Registry,
    capsys: pytest.CaptureFixture[str],
    *,
    to: str,
    more: tuple[str, ...],
    words: str,
) -> None:
    assert pod(to.format(registry=registry.address), *more) == REFUSED
    assert words in capsys.readouterr().err
    assert RegistryClient().tags(f"{registry.address}/models/{MODEL}") == []


# -- key rings that sign -------------------------------------------------------------------------


def test_a_ring_is_packed_with_its_signing_key_where_that_is_asked_for(
    keyring: KeyRing, other_keyring: KeyRing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, opens = tmp_path / "signs.tar", tmp_path / "opens.tar"
    ring = str(keyring.path)
    assert main(["keyring", "pack", "--path", ring, "--to", str(packed), "--signs"]) == 0
    assert main(["keyring", "pack", "--path", ring, "--to", str(opens)]) == 0
    there = str(tmp_path / "there")
    unpacking = ["keyring", "unpack", "--path", there, "--from"]
    assert main([*unpacking, str(packed)]) == 2
    assert "belongs to no packed key ring" in capsys.readouterr().err
    assert main([*unpacking, str(opens), "--signs"]) == 2
    assert "it can't sign; make it with" in capsys.readouterr().err
    assert main([*unpacking, str(packed), "--signs"]) == 0
    copy = KeyRing.open(Path(there))
    assert copy.signing_key().public_key() == keyring.verify_key().current
    before = copy.signing_key_id
    rotation.rotate(copy)  # of one without a key of tokens, too
    assert copy.verify_key().ids[1:] == (before,)
    assert not (Path(there) / "tokens.pem").exists()
    (keyring.path / "signing.pem").write_bytes((other_keyring.path / "signing.pem").read_bytes())
    packed.write_bytes(pack(keyring, signs=True))
    assert main([*unpacking, str(packed), "--signs"]) == 2
    assert "isn't the key of its signing.pub.pem" in capsys.readouterr().err
