"""``falaj sweep``: what is refused, what trials are told, and a real sweep that is taken."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from falaj.engine.commands import INTERRUPTED
from falaj.stacks.command import service
from falaj.stacks.command.__main__ import main
from falaj.stacks.command.project import StackFile
from falaj.stacks.settings import LocalSettings
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training.tracking import PARENT
from tests.stacks.conftest import Project
from tests.stacks.test_local_own_model import CODE, NAME
from tests.workloads.inference.serving import Pki
from tests.workloads.training.tracking_server import Store, serving

RATE = "learningRate=1e-3..1e-2:log"


class Shop:
    """A project with the stack ``dev``, which has keys, and what its sweeps are called with."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.site = home / "projects" / "shop" / "dev"
        self.calls: list[list[str]] = []
        assert main(["new", str(folder), "--template", "local"]) == 0
        KeyRing.create(self.site / "keyring")

    def set(self, *pairs: str) -> None:
        assert main(["config", "set", "--project", str(self.folder), *pairs]) == 0

    def sweep(self, *arguments: str) -> int:
        return main(["sweep", "--project", str(self.folder), *arguments])

    def called(self, *arguments: str) -> tuple[list[str], list[str]]:
        """The words of the sweep and those of every trial."""
        assert self.sweep(*arguments) == 0
        words = self.calls.pop()
        cut = words.index("--")
        return words[:cut], words[cut + 1 :]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    made = Shop(tmp_path / "shop", tmp_path / "home")

    def call(words: list[str]) -> int:
        made.calls.append(words)
        return 0

    monkeypatch.setattr(service, "run_workload", call)
    return made


@pytest.fixture
def unread(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are named by what they would be taken from, and none is taken."""

    def named(_stack: StackFile, settings: LocalSettings) -> Path:
        return shop.site / "datasets" / f"{settings.dataset}-{settings.split.seed}"

    monkeypatch.setattr("falaj.stacks.command.sweep._dataset", named)


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


@pytest.mark.parametrize(
    ("search", "reason"),
    [
        (("epochs=1..3",), "allowed: learningRate, weightDecay, batchSize, width, gradientClip"),
        (("learning_rate=1..3",), "allowed: learningRate"),
        (("width",), "as NAME=LOW..HIGH"),
        (("",), "as NAME=LOW..HIGH"),
        (("labelSmoothing=0..0.1",), "allowed: learningRate"),
        (("options.width=1..3",), "trains no model of its own"),
        (("width=1|2", "width=3|4"), "each name once"),
    ],
)
def test_what_the_file_cannot_say_is_refused(
    shop: Shop, capsys: pytest.CaptureFixture[str], search: tuple[str, ...], reason: str
) -> None:
    assert shop.sweep(*(f"--search={each}" for each in search)) == 2
    assert reason in capsys.readouterr().err
    assert shop.calls == []


def test_a_stack_without_keys_is_to_come_up_first(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in [*(shop.site / "keyring").rglob("*")]:
        each.unlink()
    (shop.site / "keyring").rmdir()
    assert shop.sweep("--search", RATE) == 2
    assert "has no keys yet" in capsys.readouterr().err


def test_a_cluster_has_sweeps_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--stack", "onprem-workloads", "--search", RATE]) == 2
    assert "falaj:sweeps" in capsys.readouterr().err


def test_trials_train_as_the_file_says_but_for_what_is_searched(shop: Shop) -> None:
    shop.set(
        "falaj:training.epochs", "7", "falaj:training.learningRate", "0.5",
        "falaj:training.seed", "9", "falaj:training.width", "12",
    )  # fmt: skip
    words, every = shop.called("--search", RATE, "--trials", "3", "--parallel", "2")
    assert words[:2] == ["falaj.workloads.training", "sweep"]
    assert value(words, "--search") == "learning_rate=1e-3..1e-2:log"
    assert value(words, "--seed") == "9"
    assert (value(words, "--trials"), value(words, "--parallel")) == ("3", "2")
    assert Path(value(words, "--dataset")).parent == shop.site / "datasets"
    assert (value(every, "--epochs"), value(every, "--width")) == ("7", "12")
    assert value(every, "--keyring") == str(shop.site / "keyring")
    assert "--learning-rate" not in every
    assert "--seed" not in every


def test_trials_divide_the_model_as_the_file_says(shop: Shop) -> None:
    usual = shop.called("--search", RATE)[1]
    assert value(usual, "--processes") == "1"
    assert not {"--parallel", "--shard", "--recompute", "--compression"} & {*usual}
    shop.set("falaj:training.parallel.data", "2", "falaj:training.compression", "float16")
    every = shop.called("--search", RATE)[1]
    assert (value(every, "--processes"), value(every, "--compression")) == ("2", "float16")
    shop.set("falaj:training.compression", "none", "falaj:training.parallel.shard", "3")
    every = shop.called("--search", RATE)[1]
    assert (value(every, "--processes"), value(every, "--shard")) == ("6", "3")
    assert not {"--tensor", "--pipeline", "--compression"} & {*every}


def test_trials_are_made_as_small_as_the_file_says(shop: Shop) -> None:
    usual = shop.called("--search", RATE)[1]
    assert not {"--teacher", "--distil-weight", "--prune", "--quantisation-aware"} & {*usual}
    (shop.site / "taught").mkdir()
    (shop.site / "taught" / "record.json").write_text("{}")
    shop.set(
        "falaj:training.teacher", str(shop.site / "taught"), "falaj:training.distilWeight", "0.5",
        "falaj:training.prune", "0.25", "falaj:training.quantisationAware", "true",
    )  # fmt: skip
    every = shop.called("--search", RATE)[1]
    assert value(every, "--teacher") == str(shop.site / "taught")
    assert (value(every, "--distil-weight"), value(every, "--prune")) == ("0.5", "0.25")
    assert "--quantisation-aware" in every
    assert "True" not in every


def test_a_sweep_is_sent_where_the_stacks_run_is(shop: Shop, tmp_path: Path) -> None:
    usual, every = shop.called("--search", RATE)
    assert "--tracking" not in usual
    authority = tmp_path / "authority.pem"
    authority.touch()
    shop.set(
        "falaj:training.tracking.server", "https://10.0.0.7:5000",
        "falaj:training.tracking.experiment", "churn",
        "falaj:training.tracking.authority", str(authority),
        "falaj:training.tracking.allowedHosts", "[a.example.ae, b.example.ae]",
    )  # fmt: skip
    words, same = shop.called("--search", RATE)
    assert (value(words, "--output"), same) == (value(usual, "--output"), every)
    at = words.index("--tracking")
    assert words[at : at + 10] == [
        "--tracking", "https://10.0.0.7:5000", "--tracking-experiment", "churn",
        "--tracking-authority", str(authority), "--tracking-allow", "a.example.ae",
        "--tracking-allow", "b.example.ae",
    ]  # fmt: skip


def test_trials_begin_with_what_the_file_says(shop: Shop) -> None:
    usual = shop.called("--search", RATE)[1]
    assert not {"--start", "--lora-matrices"} & {*usual}
    (shop.site / "begun").mkdir()
    (shop.site / "begun" / "record.json").write_text("{}")
    shop.set("falaj:training.start", str(shop.site / "begun"))
    every = shop.called("--search", RATE)[1]
    assert value(every, "--start") == str(shop.site / "begun")
    assert "--lora-rank" not in every
    words, every = shop.called("--search", "loraRank=2|8")
    assert value(words, "--search") == "lora_rank=2|8"
    assert value(every, "--start") == str(shop.site / "begun")


@pytest.mark.usefixtures("unread")
def test_another_sweep_has_another_folder_and_the_same_goes_on(shop: Shop, tmp_path: Path) -> None:
    def folder(*arguments: str) -> str:
        return value(shop.called("--search", RATE, *arguments)[0], "--output")

    first = folder()
    assert Path(first).parent == shop.site / "runs"
    assert folder("--trials", "50", "--parallel", "3") == first
    # What the file says of what is searched is of no importance, and so it goes on after --take.
    shop.set("falaj:training.learningRate", "0.002")
    assert folder() == first
    others = [folder("--pruner", "none"), folder("--search", "width=8|16")]
    words, _ = shop.called("--search", "width=8|16", "--search", RATE)
    assert value(words, "--output") == others[-1]
    shop.set("falaj:training.epochs", "5")
    others.append(folder())
    shop.set("falaj:split.seed", "8")
    others.append(folder())
    models = tmp_path / "models" / "mine"
    models.mkdir(parents=True)
    (models / "network.py").write_text(CODE)
    shop.set("falaj:training.model", NAME, "falaj:training.code", str(models.parent))
    others.append(folder())
    (models / "network.py").write_text(CODE.replace("ReLU", "SiLU"))
    others.append(folder())
    assert len({first, *others}) == len(others) + 1


@pytest.mark.usefixtures("unread")
def test_options_of_a_model_of_ones_own_are_searched_and_the_others_kept(
    shop: Shop, tmp_path: Path
) -> None:
    models = tmp_path / "models" / "mine"
    models.mkdir(parents=True)
    (models / "network.py").write_text(CODE)
    shop.set(
        "falaj:training.model", NAME, "falaj:training.code", str(models.parent),
        "falaj:training.options", '{width: 4, act: "1", norm: true}',
    )  # fmt: skip
    words, every = shop.called("--search", "options.width=8|16")
    assert value(words, "--search") == "option.width=8|16"
    given = [every[at + 1] for at, each in enumerate(every) if each == "--option"]
    assert given == ['act="1"', "norm=true"]
    assert (value(every, "--model"), value(every, "--code")) == (NAME, str(models.parent))


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_best_trial_is_published_without_training_again(
    project: Project, tmp_path: Path
) -> None:
    store, pki = Store(), Pki(tmp_path / "pki")
    with serving(store, pki) as url:
        _publish(project, store, {"server": url, "authority": str(pki.folder / "ca.crt")})


def _publish(project: Project, store: Store, tracking: dict[str, Any]) -> None:
    """Bring a stack up, sweep, and bring it up with the best trial, under a tracking server."""
    training: dict[str, Any] = {"epochs": 2, "batchSize": 256, "tracking": tracking}
    project.configure(dataset="digits", training=training, optimization={"accept": "any"})
    assert "has the record" in project.up()
    (first,) = store.runs.values()
    assert first["status"] == "FINISHED"
    assert {step for key, step, *_ in first["metrics"] if key == "loss"} == {1, 2}
    search = ("--search", "width=6..12", "--trials", "3", "--parallel", "2")
    process = project.start("sweep", *search, "--take")
    assert process.stdout is not None
    while not process.stdout.readline().startswith("trial "):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert "trials are left: the same command goes on" in rest
    assert not [
        each
        for each in psutil.process_iter(["cmdline"])
        if str(project.site / "runs") in " ".join(each.info["cmdline"] or ())
    ]

    done = project.falaj("sweep", *search, "--take")
    assert done.returncode == 0, done.stdout
    assert "3 trials, 2 at a time" in done.stdout
    assert "has this sweep and its trials" in done.stdout
    trials = [each for each in store.runs.values() if PARENT in each["tags"]]
    (sweep,) = [each for each in store.runs.values() if each not in [first, *trials]]
    assert (sweep["status"], len(trials)) == ("FINISHED", 3)
    assert store.runs[sweep["tags"]["falaj.best.run"]] in trials
    assert "publish it, without training again" in done.stdout
    [folder] = project.site.glob("runs/sweep-*")
    assert not [*folder.rglob("model")]
    assert len([*folder.rglob("model.sealed")]) + done.stdout.count("cut short") == 3
    said = project.falaj("up")
    assert said.returncode == 0, said.stdout
    assert f"taken over from {folder}" in said.stdout
    assert len(store.runs) == 5, "the trial that serves is a run of the server already"
    manifests = {
        json.loads(each.read_text())["lineage"]["run"]
        for each in project.site.glob("registry/*/versions/*/manifest.json")
    }
    trials = {json.loads(each.read_text())["identity"] for each in folder.glob("*/record.json")}
    assert manifests & trials
    again = project.falaj("sweep", *search, "--json")
    told = [json.loads(line) for line in again.stdout.splitlines() if line.startswith("{")]
    assert [each["event"] for each in told] == [*["trial"] * 3, "tracked", "study"]
