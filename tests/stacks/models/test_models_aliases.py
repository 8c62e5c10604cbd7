"""Aliases in registries: promoted, rolled back, renewed, copied; and records that lie."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry import aliases
from falaj.workloads.registry.keyring import KeyRing
from tests.stacks.images.registries import Registry, crane
from tests.stacks.models.published import MODEL, Publisher, answer, run

LEFT = 3
PRODUCTION = "production"


def pushed(publisher: Publisher, home: Registry, *runs: str) -> None:
    for each in runs:
        publisher.publish(each)
        assert publisher.push(home.address) == 0


def signed(publisher: Publisher) -> tuple[str, str]:
    return "--keyring", str(publisher.keyring.path)


def trusted(publisher: Publisher) -> tuple[str, str]:
    return "--verify-key", publisher.verify_key


def tag(number: int, alias: str = PRODUCTION) -> str:
    return f"alias.{alias}.{number:010d}"


class Site:
    """One who promotes in a registry, and asks what stands there."""

    def __init__(
        self, publisher: Publisher, registry: Registry, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.publisher, self.registry, self.capsys = publisher, registry, capsys

    def promote(self, version: int, *more: str) -> Any:
        return self._answer("promote", "--version", str(version), *signed(self.publisher), *more)

    def rollback(self, *more: str) -> Any:
        return self._answer("rollback", *signed(self.publisher), *more)

    def aliases(self, *more: str) -> list[dict[str, Any]]:
        return self._answer("aliases", *trusted(self.publisher), *more)["aliases"]

    def _answer(self, command: str, *more: str) -> Any:
        return answer(self.capsys, command, self.registry.address, MODEL, *more)

    def at(self, which: str) -> str:
        return f"{self.registry.address}/models/{MODEL}:{which}"

    def shown(self, *more: str) -> int:
        """The version that `production` stands for here."""
        found = self._answer("show", "--alias", PRODUCTION, *trusted(self.publisher), *more)
        return found["version"]

    def refused(self, *more: str, command: str = "show") -> str:
        """What is said where `production` can't be had."""
        self.capsys.readouterr()
        given = ("--alias", PRODUCTION, *trusted(self.publisher)) if command == "show" else ()
        assert run(command, self.registry.address, MODEL, *given, *more) == 2
        return self.capsys.readouterr().err


@pytest.fixture
def site(publisher: Publisher, home: Registry, capsys: pytest.CaptureFixture[str]) -> Site:
    return Site(publisher, home, capsys)


def test_a_version_is_promoted_and_found_by_its_alias(
    site: Site, publisher: Publisher, home: Registry, tmp_path: Path
) -> None:
    pushed(publisher, home, "first", "second")
    first = site.promote(1)
    assert (first["number"], first["version"], first["previous"]) == (1, 1, None)
    assert first["image"] == home.digest(site.at("v1"))
    assert site.shown() == 1
    # The newest version is another one; what nobody promoted isn't taken.
    assert answer(site.capsys, "show", home.address, MODEL)["version"] == 2
    second = site.promote(2, "--why", "fewer errors")
    assert (second["number"], second["previous"]) == (2, home.digest(site.at(tag(1))))
    assert second["why"] == "fewer errors"
    assert site.promote(2)["record"] == second["record"], "said once"
    assert run("verify", home.address, MODEL, "--alias", PRODUCTION, *signed(publisher)) == 0
    target = str(tmp_path / "taken")
    arguments = ("--alias", PRODUCTION, "--to", target, *trusted(publisher))
    assert run("pull", home.address, MODEL, *arguments) == 0
    assert json.loads((tmp_path / "taken" / "manifest.json").read_bytes())["version"] == 2
    assert [each["version"] for each in site.aliases()] == [2]
    assert [each["version"] for each in site.aliases("--all")] == [1, 2]


def test_a_rollback_is_a_new_record_and_goes_back_step_by_step(
    site: Site, publisher: Publisher, home: Registry
) -> None:
    pushed(publisher, home, "first", "second", "third")
    for version in (1, 2, 3):
        site.promote(version)
    assert (site.rollback()["number"], site.shown()) == (4, 2)
    assert (site.rollback()["number"], site.shown()) == (5, 1)
    assert "no earlier one to go back to" in site.refused(*signed(publisher), command="rollback")
    site.promote(3)
    crane("delete", site.at("v1"))
    assert "no earlier one" in site.refused(*signed(publisher), command="rollback")


def test_two_aliases_are_counted_each_for_itself(
    site: Site, publisher: Publisher, home: Registry
) -> None:
    pushed(publisher, home, "first", "second")
    site.promote(1)
    site.promote(2, "--alias", "candidate")
    # A name that looks like a version's tag is an alias like any other.
    site.promote(1, "--alias", "v1")
    assert {each["alias"]: (each["number"], each["version"]) for each in site.aliases()} == {
        "candidate": (1, 2), "production": (1, 1), "v1": (1, 1),
    }  # fmt: skip
    listed = answer(site.capsys, "list", home.address)["models"][0]["versions"]
    assert [each["tags"] for each in listed] == [["v1.keys.1"], ["v2.keys.1"]]


def test_a_record_is_renewed_and_an_expired_one_is_not_taken(
    site: Site, publisher: Publisher, home: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(publisher, home, "first")
    site.promote(1, "--days", "2")
    assert site.promote(1, "--days", "9")["number"] == 1
    renewed = site.promote(1, "--renew", "--days", "9")
    assert (renewed["number"], renewed["history"]) == (2, [])

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=10)

    with monkeypatch.context() as patched:
        patched.setattr(aliases, "datetime", Later)
        said = site.refused()
        assert "was valid until" in said
        assert "falaj models promote --renew" in said
        # Who signs says it again, without being asked to.
        assert site.promote(1)["number"] == 3
    assert site.shown() == 1


def test_a_registry_that_goes_back_is_found_out(
    site: Site, publisher: Publisher, home: Registry, own_data: Path
) -> None:
    pushed(publisher, home, "first", "second")
    site.promote(1)
    site.promote(2)
    assert site.shown() == 2
    crane("delete", site.at(tag(2)))
    assert "this machine has seen 2" in site.refused()
    # What comes before is the record's word, which is an older one here.
    assert "this machine has seen 2" in site.refused(*signed(publisher), command="rollback")
    assert site.shown("--older") == 1
    assert "this machine has seen 2" in site.refused(), "taken once, not for ever"
    # Whoever signs knows what they want: the next record is ahead of all that was seen.
    assert site.promote(1, "--renew")["number"] == 3
    assert site.shown() == 1
    seen = own_data / "models" / "seen.json"
    assert set(json.loads(seen.read_text()).values()) == {3}
    seen.write_text("[]")
    assert f"{seen} is damaged" in site.refused()


def test_records_that_lie_are_refused(
    site: Site, publisher: Publisher, home: Registry, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pushed(publisher, home, "first", "second")
    site.promote(1)
    site.promote(2)
    # An older record under a higher number, and another alias's.
    crane("copy", site.at(tag(1)), site.at(tag(3)))
    assert "holds record 1 of production" in site.refused()
    site.promote(1, "--alias", "candidate")
    crane("copy", site.at(tag(1, "candidate")), site.at(tag(3)))
    assert "holds record 1 of candidate" in site.refused()
    # Not a record at all.
    crane("copy", site.at("v1"), site.at(tag(3)))
    assert "needed: 'application/vnd.falaj.alias.v1+json'" in site.refused()
    home.image(f"models/{MODEL}", "anything", tag=tag(3))
    assert "is no package" in site.refused()
    # Nor does a promotion go over one that can't be read.
    arguments = ("--version", "1", *signed(publisher))
    assert "is no package" in site.refused(*arguments, command="promote")
    crane("delete", site.at(tag(3)))
    assert site.shown() == 2
    # Somebody else's key, whichever side has it.
    other = KeyRing.create(tmp_path / "other")
    capsys.readouterr()
    stranger = ("--version", "1", "--keyring", str(other.path))
    assert run("promote", home.address, MODEL, *stranger) != 0
    assert "not by the trusted" in capsys.readouterr().err


def test_another_models_record_is_no_record(
    site: Site, publisher: Publisher, home: Registry
) -> None:
    pushed(publisher, home, "first")
    publisher.publish("other", model="churn")
    assert publisher.push(home.address, "churn") == 0
    arguments = ("--version", "1", *signed(publisher))
    assert run("promote", home.address, "churn", *arguments) == 0
    crane("copy", f"{home.address}/models/churn:{tag(1)}", site.at(tag(1)))
    assert "it was moved there" in site.refused()


def test_a_version_that_was_replaced_behind_an_alias_is_refused(
    site: Site, publisher: Publisher, home: Registry
) -> None:
    pushed(publisher, home, "first", "second")
    site.promote(1)
    crane("delete", site.at("v1"))
    assert site.shown() == 1, "a digest stays, whatever becomes of its tag"
    digest = site.aliases()[0]["image"]
    crane("delete", f"{home.address}/models/{MODEL}@{digest}")
    assert "has no" in site.refused()


def test_what_cannot_be_promoted_is_told(
    site: Site, publisher: Publisher, home: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(publisher, home, "first")
    assert "has no alias 'production'; it has: none" in site.refused()
    said = site.refused("--version", "7", *signed(publisher), command="promote")
    assert "has no version 7; it has: 1" in said
    assert "can't name an alias" in site.refused(
        "--version", "1", "--alias", "Production", *signed(publisher), command="promote"
    )
    assert "make it with falaj models promote" in site.refused(
        *signed(publisher), command="rollback"
    )
    assert "give one of them" in site.refused("--version", "1")
    capsys.readouterr()
    assert run("show", home.address, MODEL, "--older") == 2
    assert "without --alias" in capsys.readouterr().err
    assert run("show", home.address, MODEL, "--alias", PRODUCTION) == 2
    assert "who says what it stands for?" in capsys.readouterr().err
    assert run("aliases", home.address, MODEL, *trusted(publisher)) == 0
    assert "has no aliases" in capsys.readouterr().out
    for days in ("0", "367"):
        assert run("promote", home.address, MODEL, "--version", "1", "--days", days,
                   *signed(publisher)) == 2  # fmt: skip


def test_a_record_that_somebody_makes_meanwhile_is_not_overwritten(
    site: Site, publisher: Publisher, home: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(publisher, home, "first", "second")
    site.promote(1)
    taken = aliases.newest

    def late(*arguments: Any) -> Any:
        found = taken(*arguments)
        crane("copy", site.at(tag(1)), site.at(tag(2)))
        return found

    monkeypatch.setattr(aliases, "newest", late)
    said = site.refused("--version", "2", *signed(publisher), command="promote")
    assert "was made meanwhile by somebody else" in said


def test_records_are_copied_after_their_versions(
    site: Site, publisher: Publisher, home: Registry, away: Registry,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pushed(publisher, home, "first", "second")
    site.promote(1)
    site.promote(2)
    elsewhere = Site(publisher, away, capsys)

    def copied(*more: str, status: int = 0) -> Any:
        return answer(capsys, "copy", home.address, away.address, *more, status=status)

    before = copied("--dry-run", status=LEFT)["models"][0]
    assert {tag(1), tag(2)} <= set(before["left"])
    done = copied()["models"][0]
    assert (done["records"], done["left"]) == ([tag(1), tag(2)], {})
    assert elsewhere.shown() == 2
    assert copied()["models"][0]["records"] == []
    # One that isn't there yet counts for the recovery point, and for who reads there.
    site.rollback()
    assert "this machine has seen 3" in elsewhere.refused()
    behind = copied("--dry-run", status=LEFT)
    assert behind["models"][0]["left"] == {tag(3): "would be copied"}
    assert behind["recoveryPointSeconds"] >= 0
    assert copied()["models"][0]["records"] == [tag(3)]
    assert elsewhere.shown() == 1
    # Where both sign the same number, neither wins.
    site.promote(2)
    crane("copy", elsewhere.at(tag(1)), elsewhere.at(tag(4)))
    differing = copied(status=LEFT)["models"][0]
    assert differing["differs"] == [tag(4)]
    assert "promote at one registry only" in differing["left"][tag(4)]


def test_a_record_waits_for_a_version_that_is_left(
    site: Site, publisher: Publisher, home: Registry, away: Registry,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pushed(publisher, home, "first", "second")
    site.promote(2)
    away.image(f"models/{MODEL}", "in the way", tag="v2")
    done = answer(capsys, "copy", home.address, away.address, status=LEFT)["models"][0]
    assert done["left"][tag(1)] == "comes after the versions that are left"
    assert tag(1) not in crane("ls", f"{away.address}/models/{MODEL}").split()


def test_the_time_of_a_record_is_utc_whatever_the_machines(
    site: Site, publisher: Publisher, home: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Dubai")
    pushed(publisher, home, "first")
    issued = datetime.fromisoformat(site.promote(1)["issued"])
    assert issued.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - issued) < timedelta(minutes=5)
