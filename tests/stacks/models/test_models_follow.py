"""``falaj models follow``: what aliases stand for comes into a stack's file by itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.engine.errors import EngineError
from falaj.engine.files import data_home
from falaj.stacks.command import in_cluster, lifecycle
from falaj.stacks.command.call import Call
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane
from falaj.workloads.errors import IntegrityError
from falaj.workloads.registry import aliases
from falaj.workloads.registry.aliases import NothingSeen, Signer
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.rotation import rotate
from falaj.workloads.registry.shelf import Shelf
from tests.stacks.images.registries import Registry, crane
from tests.stacks.models.published import MODEL, Publisher, answer, run
from tests.stacks.models.test_models_pin import STACK, versions
from tests.stacks.models.test_models_pin import project as project  # noqa: PLC0414 - a fixture


class Site:
    """A stack whose service follows aliases, and the registry that has them."""

    def __init__(
        self, publisher: Publisher, home: Registry, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.publisher, self.home, self.file, self.capsys = publisher, home, file, capsys
        self.say(registry=home.address, canary=self.canary())

    def canary(self, **changes: Any) -> dict[str, Any]:
        key = Path(self.publisher.verify_key).read_text()
        return {"model": f"{MODEL}@candidate", "share": 10, "verifyKey": key, **changes}

    def say(self, *, registry: str | None = None, **changes: Any) -> None:
        """Change the file: the registry, and keys of the service; None removes one."""
        document = yaml.safe_load(self.file.read_text())
        if registry is not None:
            document["config"]["falaj:registry"] = registry
        service = document["config"]["falaj:inferenceServices"][MODEL]
        for key, value in changes.items():
            service[key] = value
            if value is None:
                del service[key]
        self.file.write_text(yaml.safe_dump(document))

    def push(self, count: int) -> None:
        for number in range(1, count + 1):
            self.publisher.publish(f"run {number}")
            assert self.publisher.push(self.home.address) == 0

    def promote(self, version: int, alias: str = "production", *more: str) -> None:
        ring = str(self.publisher.keyring.path)
        arguments = ("--version", str(version), "--alias", alias, "--keyring", ring, *more)
        assert run("promote", self.home.address, MODEL, *arguments) == 0

    def follow(self, *more: str) -> str:
        self.capsys.readouterr()
        assert run("follow", "--stack", STACK, *more) == 0, self.capsys.readouterr().err
        return self.capsys.readouterr().out

    def refused(self) -> str:
        self.capsys.readouterr()
        before = self.file.read_text()
        assert run("follow", "--stack", STACK) == 2
        assert self.file.read_text() == before
        return self.capsys.readouterr().err

    @property
    def record(self) -> int:
        document = yaml.safe_load(self.file.read_text())
        return document["config"]["falaj:inferenceServices"][MODEL]["canary"]["record"]

    @property
    def shares(self) -> list[tuple[int, int]]:
        return [(each["version"], each["weight"]) for each in versions(self.file)]


@pytest.fixture
def site(
    publisher: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> Site:
    return Site(publisher, home, project, capsys)


def test_aliases_become_digests_and_what_was_decided_no_canary(site: Site) -> None:
    site.push(2)
    site.promote(1)
    site.say(versions=None)
    said = site.follow()
    assert site.shares == [(1, 100)]
    assert "there is no alias candidate" in said
    site.promote(2, "candidate")
    before = site.file.read_text()
    assert "would be" in site.follow("--dry-run")
    assert site.file.read_text() == before
    assert "version 2 of credit (candidate) has 10 %, version 1" in site.follow()
    stable, canary = versions(site.file)
    assert site.shares == [(1, 90), (2, 10)]
    for entry in (stable, canary):
        at = f"{site.home.address}/models/{MODEL}:v{entry['version']}"
        assert entry["packageDigest"] == site.home.digest(at)
        assert entry["keysDigest"] == site.home.digest(f"{at}.keys.1")
    assert "says so already" in site.follow()
    # The file's own words about a version stay.
    site.say(versions=[stable, {**canary, "header": "next"}], canary=site.canary(share=20))
    site.follow()
    assert site.shares == [(1, 80), (2, 20)]
    assert versions(site.file)[1]["header"] == "next"
    # Withdrawn, as the judge does it; and tried once more before the file said so.
    assert site.record == 1
    site.promote(1, "candidate", "--why", "missed errors")
    site.promote(2, "candidate")
    site.follow()
    assert site.record == 3
    site.promote(1, "candidate", "--why", "missed errors")
    site.follow()
    assert site.shares == [(1, 100)]
    # Tried again, and promoted, as the judge does it.
    site.promote(2, "candidate")
    site.promote(2)
    assert "candidate stands for it, too" in site.follow()
    assert site.shares == [(2, 100)]


def test_a_canary_has_the_share_that_its_record_says_as_far_as_the_file_has_it(site: Site) -> None:
    site.push(2)
    site.promote(1)
    site.promote(2, "candidate")
    site.say(canary=site.canary(steps=[20, 40]))

    def follow(share: int) -> str:
        """After a judge's word, as it signs it."""
        signer = Signer(site.publisher.keyring, NothingSeen())
        shelf = Shelf(site.home.address, "models", Crane())
        aliases.promote(
            shelf, (MODEL, 2), "candidate", signer, renew=True, why=f"{share} % are next: good",
            share=share,
        )  # fmt: skip
        return site.follow()

    assert "UTC: 20 % are next: good" in follow(20)
    assert (site.shares, site.record) == ([(1, 80), (2, 20)], 2)
    # The stack says how far it may go, whatever was signed.
    follow(49)
    assert site.shares == [(1, 60), (2, 40)]
    # Of who renews it, it begins anew; and of a withdrawal the reason is told.
    site.promote(2, "candidate", "--renew")
    site.follow()
    assert site.shares == [(1, 90), (2, 10)]
    site.promote(1, "candidate", "--why", "missed errors: 3 %")
    assert "UTC: missed errors: 3 %" in site.follow()
    assert site.shares == [(1, 100)]


def test_what_was_rolled_back_is_not_tried_again(site: Site) -> None:
    site.push(3)
    site.promote(1)
    site.promote(2, "candidate")
    site.promote(2)
    ring = str(site.publisher.keyring.path)
    assert run("rollback", site.home.address, MODEL, "--keyring", ring) == 0
    assert "production stood for version 2, and was moved back from it" in site.follow()
    assert site.shares == [(1, 100)]
    # Signing the stable one anew takes no canary away; a newer one is tried, an older never.
    time.sleep(1.1)
    site.promote(3, "candidate")
    time.sleep(1.1)
    site.promote(1, "production", "--renew")
    site.follow()
    assert site.shares == [(1, 90), (3, 10)]
    site.promote(3)
    site.promote(2, "candidate")
    assert "candidate stands for the older version 2" in site.follow()
    assert site.shares == [(3, 100)]


def test_what_can_t_be_followed_leaves_the_file_as_it_is(
    site: Site, tmp_path: Path, project: Path
) -> None:
    site.push(1)
    assert "has no alias 'production'" in site.refused()
    site.promote(1)
    other = KeyRing.create(tmp_path / "other").path / "signing.pub.pem"
    site.say(canary=site.canary(verifyKey=other.read_text()))
    assert "not by the trusted" in site.refused()
    site.say(
        canary=site.canary(verifyKey="-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n")
    )
    assert "canary.verifyKey isn't an Ed25519 public key" in site.refused()
    site.say(canary=site.canary(model="other@candidate"))
    assert "given 'other@candidate'; allowed: credit@ALIAS" in site.refused()
    site.say(canary={"model": "credit@candidate"})
    assert "needed: model (MODEL@ALIAS), share (percent) and verifyKey" in site.refused()
    site.say(canary=None)
    assert "follows an alias" in site.follow()
    assert answer(site.capsys, "follow", "--stack", STACK) == {"services": {}}
    assert run("follow") == 2


def test_who_keeps_a_withdrawal_back_brings_no_canary_back(site: Site) -> None:
    site.push(2)
    site.promote(1)
    site.promote(2, "candidate")
    site.promote(1, "candidate")
    # The judge signs elsewhere: this machine has seen nothing of it.
    (data_home() / "models" / "seen.json").unlink()
    site.follow()
    assert site.shares == [(1, 100)]
    crane("delete", f"{site.home.address}/models/{MODEL}:alias.candidate.0000000002")
    assert "the registry is behind" in site.refused()


def test_a_former_key_starts_no_candidate_anew(site: Site) -> None:
    site.push(2)
    site.promote(1)
    site.promote(1, "candidate")
    site.promote(2, "candidate")
    rotate(site.publisher.keyring)
    site.promote(2, "candidate", "--renew")
    site.say(canary=site.canary())
    site.follow()
    assert site.shares == [(1, 90), (2, 10)]
    crane("delete", f"{site.home.address}/models/{MODEL}:alias.candidate.0000000003")
    assert "the registry is behind" in site.refused()


class ReachedError(EngineError):
    """The engine was asked for: the file was as it is to be deployed."""


@pytest.fixture
def up(site: Site, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`falaj up`, until it gets an engine."""
    stack = StackFile(STACK, Project.find())

    def engine(*_: Any, **__: Any) -> Any:
        raise ReachedError

    monkeypatch.setattr(Call, "engine", engine)
    monkeypatch.setattr(lifecycle, "prepare_cloud", lambda *_, **__: None)

    def bring_up(*, sandbox: bool = False) -> None:
        with pytest.raises(ReachedError):
            lifecycle.up(Call(stack, sandbox), details=False)

    return bring_up


def test_up_serves_what_the_aliases_stand_for(site: Site, up: Any) -> None:
    site.push(2)
    site.promote(1)
    site.promote(2, "candidate")
    site.say(versions=None)
    up()
    assert site.shares == [(1, 90), (2, 10)]
    # In the sandbox nobody is asked.
    site.promote(2)
    up(sandbox=True)
    assert site.shares == [(1, 90), (2, 10)]
    up()
    assert site.shares == [(2, 100)]


def test_the_status_says_what_an_alias_has_moved_to(
    site: Site, up: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push(2)
    site.promote(1)
    up()

    class Up:
        sandbox = False

        def exists(self) -> bool:
            return True

        def outputs(self) -> dict[str, Any]:
            return {"place": "aws/me-central-1"}

    monkeypatch.setattr(Call, "engine", lambda *_: Up())
    monkeypatch.setattr(in_cluster, "say_status", lambda *_: None)

    def status() -> tuple[str, str]:
        before = site.file.read_text()
        capsys.readouterr()
        assert lifecycle.status(Call(StackFile(STACK, Project.find()), sandbox=False)) == 0
        assert site.file.read_text() == before
        said = capsys.readouterr()
        return said.out, said.err

    assert "aliases have moved" not in status()[0]
    site.promote(2)
    said, _ = status()
    assert (
        f"credit: stacks/Pulumi.{STACK}.yaml has version 1 with 100 %, and its aliases have moved "
        "since: version 2 of credit (production) has all requests"
    ) in said
    assert said.splitlines()[-1].startswith("  serve it: ")
    assert said.endswith(" up\n")
    site.say(registry="127.0.0.1:1")
    said, complained = status()
    assert "aliases have moved" not in said
    assert "whether aliases have moved can't be told" in complained


def test_a_registry_that_is_away_keeps_nobody_from_deploying(
    site: Site, up: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site.push(1)
    site.promote(1)
    up()
    site.say(registry="127.0.0.1:1")
    up()
    assert "aliases aren't followed now, and versions stay as the file says" in (
        capsys.readouterr().err
    )
    assert site.shares == [(1, 100)]


def test_a_record_that_lies_is_not_deployed(site: Site, up: Any, tmp_path: Path) -> None:
    site.push(2)
    site.promote(1)
    up()
    site.promote(2)
    up()
    repository = f"{site.home.address}/models/{MODEL}"
    number = "alias.production.0000000003"
    crane("copy", f"{repository}:alias.production.0000000001", f"{repository}:{number}")
    stack = StackFile(STACK, Project.find())
    with pytest.raises(IntegrityError, match="it was moved there"):
        lifecycle.up(Call(stack, sandbox=False), details=False)
    crane("delete", f"{repository}:{number}")
    crane("delete", f"{repository}:alias.production.0000000002")
    with pytest.raises(StackError, match="the registry is behind"):
        lifecycle.up(Call(stack, sandbox=False), details=False)
    assert site.shares == [(2, 100)]
