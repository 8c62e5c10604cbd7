"""``falaj models copy`` between two registries on loopback, ended in the middle among others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.models.copying import CopiedModel
from tests.stacks.images.registries import Registry, crane, running
from tests.stacks.models.published import MODEL, Publisher, answer, run

LEFT = 3


def pushed(publisher: Publisher, home: Registry, *runs: str, model: str = MODEL) -> None:
    for each in runs:
        publisher.publish(each, model=model)
        assert publisher.push(home.address, model) == 0


def tags(registry: Registry, model: str = MODEL) -> dict[str, str]:
    """Tags of versions with their digests."""
    repository = f"{registry.address}/models/{model}"
    if f"models/{model}" not in crane("catalog", registry.address).split():
        return {}
    listed = [each for each in crane("ls", repository).split() if each.startswith("v")]
    return {tag: registry.digest(f"{repository}:{tag}") for tag in listed}


def copied(
    capsys: pytest.CaptureFixture[str], home: Registry, away: Registry, *more: str,
    status: int = 0,
) -> Any:  # fmt: skip
    return answer(capsys, "copy", home.address, away.address, *more, status=status)


def test_all_versions_come_over_with_their_keys_and_once(
    publisher: Publisher, home: Registry, away: Registry, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pushed(publisher, home, "first", "second")
    pushed(publisher, home, "other", model="churn")
    home.image("models/stranger", "not one of ours", tag="latest")
    home.image("tools/crane", "not a model", tag="v1")
    before = copied(capsys, home, away, "--dry-run", status=LEFT)
    (churn, credit) = before["models"]
    assert (churn["model"], credit["model"]) == ("churn", MODEL)
    assert sorted(credit["left"]) == ["v1", "v1.keys.1", "v2", "v2.keys.1"]
    assert set(credit["left"].values()) == {"would be copied"}
    assert credit["newestAtDestination"] is None
    assert before["recoveryPointSeconds"] >= 0
    assert crane("catalog", away.address) == ""
    done = copied(capsys, home, away)
    assert [(each["copied"], each["left"]) for each in done["models"]] == [([1], {}), ([1, 2], {})]
    assert done["recoveryPointSeconds"] == 0
    assert tags(away) == tags(home)
    assert tags(away, "churn") == tags(home, "churn")
    assert sorted(crane("catalog", away.address).split()) == ["models/churn", f"models/{MODEL}"]
    again = copied(capsys, home, away)
    assert [(each["copied"], each["there"]) for each in again["models"]] == [
        ([], [1]),
        ([], [1, 2]),
    ]
    # What came over is a package, whatever became of the first registry.
    arguments = ("--to", str(tmp_path / "taken"), "--keyring", str(publisher.keyring.path))
    assert run("pull", away.address, MODEL, *arguments) == 0


def test_what_is_new_is_copied_alone_and_keys_of_a_rotation_are_new(
    publisher: Publisher, home: Registry, away: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(publisher, home, "first")
    copied(capsys, home, away)
    publisher.rotate()
    pushed(publisher, home, "second")
    assert publisher.push(home.address, MODEL, "--version", "1") == 0
    (model,) = copied(capsys, home, away, MODEL, "--dry-run", status=LEFT)["models"]
    assert sorted(model["left"]) == ["v1.keys.2", "v2", "v2.keys.1"]
    assert (model["newestAtSource"], model["newestAtDestination"]) == (2, None)
    (model,) = copied(capsys, home, away, MODEL)["models"]
    assert (model["copied"], model["there"]) == ([1, 2], [])
    assert tags(away) == tags(home)


def test_a_tag_that_differs_is_refused_and_named(
    publisher: Publisher, home: Registry, away: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(publisher, home, "first", "second")
    away.image(f"models/{MODEL}", "planted", tag="v1")
    planted = tags(away)["v1"]
    done = copied(capsys, home, away, status=LEFT)
    (model,) = done["models"]
    assert (model["differs"], model["copied"]) == (["v1"], [2])
    assert planted in model["left"]["v1"]
    assert tags(away) == {**{tag: digest for tag, digest in tags(home).items()
                             if tag.startswith("v2")}, "v1": planted}  # fmt: skip
    assert 0 <= done["recoveryPointSeconds"] < 3600
    assert run("copy", home.address, away.address) == LEFT
    told = capsys.readouterr()
    assert "REFUSED: v1 stands for" in told.out
    assert f"hasn't {MODEL}:v1" in told.err


def test_what_is_no_package_is_not_copied_and_keeps_nothing_else_from_it(
    publisher: Publisher, home: Registry, away: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(publisher, home, "first", "second")
    home.image(f"models/{MODEL}", "planted", tag="v1")
    repository = f"{home.address}/models/{MODEL}"
    crane("tag", f"{repository}:v2", "v3")
    crane("tag", f"{repository}:v1.keys.1", "v2.keys.2")
    home.image(f"models/{MODEL}", "a list of contents", tag="v2.sbom")
    (model,) = copied(capsys, home, away, status=LEFT)["models"]
    assert "is no package" in model["left"]["v1"]
    assert "it was moved there" in model["left"]["v3"]
    assert "it was moved there" in model["left"]["v2.keys.2"]
    assert model["recoveryPointSeconds"] is None
    assert tags(away) == {}
    crane("delete", f"{repository}:v2.keys.2")
    (model,) = copied(capsys, home, away, status=LEFT)["models"]
    assert model["copied"] == [2]
    assert sorted(tags(away)) == ["v2", "v2.keys.1", "v2.sbom"]


def test_a_lost_source_is_told_and_a_lost_destination_too(
    publisher: Publisher, away: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path / "lost") as home:
        pushed(publisher, home, "first")
        sent = copied(capsys, home, away)["models"]
        assert sent[0]["copied"] == [1]
    for arguments in ((home.address, away.address), (away.address, home.address)):
        assert run("copy", *arguments) == 2
        assert f"{home.address} can't be reached" in capsys.readouterr().err
    shown = answer(capsys, "verify", away.address, MODEL, "--keyring", str(publisher.keyring.path))
    assert shown["opened"]


def test_a_copy_that_is_killed_goes_on_where_it_ended(
    publisher: Publisher, home: Registry, away: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(publisher, home, "first", "second", "third")
    command = [sys.executable, "-m", "falaj.stacks.command", "models", "copy", home.address,
               away.address]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "v2: copying v2.keys.1" in line:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert set(tags(away).items()) <= set(tags(home).items())
    before = copied(capsys, home, away, "--dry-run", status=LEFT)
    (model,) = before["models"]
    assert model["there"] in ([1], [1, 2])
    assert "v3" in model["left"]
    (model,) = copied(capsys, home, away)["models"]
    assert model["there"] + model["copied"] == [1, 2, 3]
    assert model["there"] == before["models"][0]["there"]
    assert tags(away) == tags(home)


def test_the_recovery_point_is_the_age_of_the_oldest_version_that_is_missing() -> None:
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    model = CopiedModel(MODEL, [1, 2, 3], there=[1])
    assert model.recovery_point(now) == 0
    model.leave("v3", "x", now - timedelta(minutes=5))
    model.leave("v2", "x", now - timedelta(hours=2))
    assert model.recovery_point(now) == 7200
    early = CopiedModel(MODEL, left={"v4": ""}, oldest_left=now + timedelta(hours=1))
    assert early.recovery_point(now) == 0, "the publisher's clock is ahead"
    model.leave("v4", "x", None)
    assert model.recovery_point(now) is None
    assert json.loads(json.dumps(model.to_json(now)))["recoveryPointSeconds"] is None
