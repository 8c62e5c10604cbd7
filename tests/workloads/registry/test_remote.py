"""Packages that come from a registry of images: what is refused, and what arrives."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import LOST
from falaj.workloads.registry import reaching
from falaj.workloads.registry.__main__ import main
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Store
from tests.workloads.registry.fronts import QUICK
from tests.workloads.registry.images import Sent, forge, manifest_of, send
from tests.workloads.registry.remotes import BASIC, Kept, serving

NAME = "models/digits"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Generator[Kept]:
    """A registry; whoever waits for it doesn't wait long."""
    monkeypatch.setattr(reaching, "PAUSES", QUICK)
    with serving(NAME) as found:
        yield found


@pytest.fixture
def sent(package: Package, tmp_path: Path) -> Sent:
    """The package as images, in folders."""
    return send(package, tmp_path / "sent")


@dataclass(frozen=True)
class Machine:
    """A machine that takes version 1 of digits from the registry."""

    folder: Path
    kept: Kept
    digests: tuple[str, str]
    keyring: KeyRing

    def take(self, *more: str, **changes: str) -> int:
        """Run the command; its exit status."""
        options = {
            "--registry": str(self.folder / "registry"), "--keyring": str(self.keyring.path),
            "--model": "digits", "--version": "1",
            "--repository": f"{self.kept.address}/{NAME}",
            "--package-digest": self.digests[0], "--keys-digest": self.digests[1],
            **{f"--{name.replace('_', '-')}": value for name, value in changes.items()},
        }  # fmt: skip
        given = [part for each in options.items() for part in each if each[1]]
        return main(["import", *given, *more])

    def login(self, host: str = "", **entry: str) -> str:
        """A file with a login."""
        path = self.folder / "login.json"
        path.write_text(json.dumps({"auths": {host or self.kept.address: entry}}))
        return str(path)


@pytest.fixture
def machine(sent: Sent, kept: Kept, keyring: KeyRing, tmp_path: Path) -> Machine:
    folder = tmp_path / "machine"
    folder.mkdir()
    return Machine(folder, kept, (kept.add(sent.image), kept.add(sent.keys)), keyring)


def refused(machine: Machine, capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """The command said these words, showed no trace and left no version."""
    said = capsys.readouterr().err
    for each in words:
        assert each in said, said
    assert "Traceback" not in said
    assert Store(machine.folder / "registry").versions("digits") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repository": "models/digits:v1"}, "--repository: given"),
        ({"repository": "https://registry.example.ae/models/digits"}, "--repository: given"),
        ({"package_digest": "v1"}, "--package-digest: given 'v1'"),
        ({"keys_digest": "sha256:abc"}, "--keys-digest: given 'sha256:abc'"),
        ({"keys_digest": ""}, "--keys-digest: missing"),
        ({"repository": ""}, "--repository: missing"),
        ({"from": "/somewhere"}, "--from and --repository: given together"),
        ({"keys": "/somewhere"}, "--keys and --repository: given together"),
        ({"version": "2"}, "is version 1 of digits, not version 2 of digits"),
        ({"model": "letters"}, "is version 1 of digits, not version 1 of letters"),
        ({"login": "/nowhere/config.json"}, "/nowhere/config.json"),
    ],
)
def test_is_refused(
    machine: Machine, capsys: pytest.CaptureFixture[str], changes: dict[str, str], words: str
) -> None:
    assert machine.take(**changes) == 2
    refused(machine, capsys, words)


def test_without_any_source_it_is_said_which_there_are(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine.take(repository="", package_digest="", keys_digest="") == 2
    refused(machine, capsys, "--from: missing", "--repository with --package-digest")


def test_an_image_that_is_not_there(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.take(package_digest="sha256:" + "0" * 64) == LOST
    refused(machine, capsys, "has no", "falaj publish", "MANIFEST_UNKNOWN")


def test_a_registry_that_sends_another_image(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (f"/v2/{NAME}/manifests/{each}" for each in machine.digests)
    machine.kept.content[first] = machine.kept.content[second]
    assert machine.take() == 2
    refused(machine, capsys, f"sent {machine.digests[1]} for")


def test_the_two_images_in_each_others_place(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    package, keys = machine.digests
    assert machine.take(package_digest=keys, keys_digest=package) == 2
    refused(machine, capsys, "needed: 'application/vnd.falaj.package")


def test_layers_and_configurations_that_were_changed(
    machine: Machine, sent: Sent, capsys: pytest.CaptureFixture[str]
) -> None:
    document = manifest_of(sent.image)
    for part in (*document["layers"], document["config"]):
        path = f"/v2/{NAME}/blobs/{part['digest']}"
        before = machine.kept.content[path]
        machine.kept.content[path] = before[:-600] + bytes([before[-600] ^ 1]) + before[-599:] \
            if len(before) > 600 else before[:-1] + b" "  # fmt: skip
        assert machine.take() == 2
        refused(machine, capsys)
        machine.kept.content[path] = before
    assert machine.take() == 0


def test_a_layer_that_goes_on_or_ends_early(
    machine: Machine, sent: Sent, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"/v2/{NAME}/blobs/{manifest_of(sent.image)['layers'][-1]['digest']}"
    before = machine.kept.content[path]
    machine.kept.content[path] = before[:-512]
    assert machine.take() == LOST
    refused(machine, capsys, "ended after", "can't be had")
    # Nobody reads on after what the manifest names.
    machine.kept.content[path] = before + b"more"
    assert machine.take() == 0


def test_a_package_that_another_key_signed(
    machine: Machine, other_keyring: KeyRing, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine.take(keyring=str(other_keyring.path)) == 2
    refused(machine, capsys)


def test_keys_of_another_package(
    machine: Machine, sent: Sent, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(sent.keys, lambda document: document["subject"].update(digest="sha256:" + "1" * 64))
    assert machine.take(keys_digest=machine.kept.add(sent.keys)) == 2
    refused(machine, capsys, "they are another package's")


@pytest.mark.parametrize("status", [403, 418])
def test_what_the_registry_says_is_told(
    machine: Machine, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    machine.kept.status = status
    assert machine.take() == LOST
    refused(machine, capsys, f"answers {status}", "the registry's own words")


def test_a_registry_that_fails_is_asked_again_and_then_named(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.kept.status = 503
    assert machine.take() == LOST
    refused(machine, capsys, "answers 503")
    assert len(machine.kept.asked) == len(QUICK) + 1


def test_a_registry_that_is_away(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.take(repository=f"127.0.0.1:1/{NAME}") == LOST
    refused(machine, capsys, "127.0.0.1:1 can't be reached")


@pytest.mark.parametrize("demand", ["basic", "bearer"])
def test_a_login_that_is_missing_or_of_another_registry(
    machine: Machine, capsys: pytest.CaptureFixture[str], demand: str
) -> None:
    machine.kept.demand = demand
    assert machine.take() == LOST
    refused(machine, capsys, "login")
    assert machine.take(login=machine.login("other.example.ae", auth=BASIC)) == 2
    refused(machine, capsys, f"has no login for {machine.kept.address}", "other.example.ae")
    assert machine.take(login=machine.login(auth="d3Jvbmc6eA==")) == LOST
    refused(machine, capsys, "answers 401", "what that may do there")


@pytest.mark.parametrize("text", ["[]", "{}", '{"auths": []}'])
def test_a_file_of_logins_that_is_none(
    machine: Machine, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = machine.folder / "login.json"
    path.write_text(text)
    assert machine.take(login=str(path)) == 2
    refused(machine, capsys, "config.json")


def test_a_login_is_sent_to_the_registry_alone(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.kept.demand = "bearer"
    machine.kept.realm = "https://elsewhere.example/token"
    assert machine.take(login=machine.login(auth=BASIC)) == LOST
    refused(machine, capsys, "elsewhere.example", "registry's own host alone")


# What arrives


@pytest.mark.parametrize("demand", ["", "basic", "bearer"])
def test_a_package_is_taken_over_and_stands_for_production(machine: Machine, demand: str) -> None:
    machine.kept.demand = demand
    assert machine.take(login=machine.login(auth=BASIC)) == 0
    served = Store(machine.folder / "registry").load(
        "digits", "production", machine.keyring, machine.keyring.verify_key()
    )
    assert served.read("model.onnx") == bytes(range(256))
    # Each part is asked for once, but for what a login was asked of.
    parts = machine.kept.paths("blobs")
    assert len(parts) == len(set(parts))


def test_a_refresh_token_is_exchanged_for_one_of_the_repository(machine: Machine) -> None:
    machine.kept.demand = "bearer"
    assert machine.take(login=machine.login(identitytoken="refresh")) == 0
    (form,) = machine.kept.forms
    assert form["grant_type"] == ["refresh_token"]
    assert form["refresh_token"] == ["refresh"]
    assert form["service"] == ["here"]
    # Not what the registry proposes.
    assert form["scope"] == [f"repository:{NAME}:pull"]


def test_layers_are_fetched_from_elsewhere_without_the_login(machine: Machine, kept: Kept) -> None:
    with serving(NAME) as store:
        store.content = dict(kept.content)
        kept.demand, kept.redirect = "basic", f"http://{store.address}"
        assert machine.take(login=machine.login(auth=BASIC)) == 0
        assert store.asked
        assert not [headers for _, headers in store.asked if "authorization" in headers]


def test_a_transfer_that_breaks_off_goes_on(machine: Machine) -> None:
    machine.kept.break_off = 6
    assert machine.take() == 0
    ranges = [headers["range"] for _, headers in machine.kept.asked if "range" in headers]
    assert ranges
    assert all(each.startswith("bytes=") and each != "bytes=0-" for each in ranges)


def test_again_nothing_but_the_manifest_is_fetched(machine: Machine) -> None:
    assert machine.take() == 0
    machine.kept.asked.clear()
    assert machine.take() == 0
    assert machine.kept.paths("blobs") == []


def test_another_package_of_the_same_number_is_refused(
    machine: Machine, fields: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine.take() == 0
    store = Store(tmp_path / "second")
    other = {**fields, "metrics": {"accuracy": 0.5}}
    store.publish("digits", {"model.onnx": b"other"}, other, machine.keyring)
    keyring = machine.keyring
    again = send(store.load("digits", 1, keyring, keyring.verify_key()), tmp_path / "again")
    digests = (machine.kept.add(again.image), machine.kept.add(again.keys))
    assert machine.take(package_digest=digests[0], keys_digest=digests[1]) == 2
    said = capsys.readouterr().err
    assert "a version is never replaced" in said
    served = Store(machine.folder / "registry").load(
        "digits", "production", keyring, keyring.verify_key()
    )
    assert served.read("model.onnx") == bytes(range(256))
