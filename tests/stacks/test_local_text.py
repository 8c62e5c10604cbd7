"""A stack on one machine learns a text and continues others."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from falaj.components.local.provider.handler import Handler
from falaj.components.local.provider.resources.dataset import DatasetHandler
from falaj.components.local.provider.resources.training_run import TrainingRunHandler
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import LocalSettings, validate
from falaj.wire.values import Values
from tests.stacks.conftest import Project
from tests.stacks.on_machine import inputs_of
from tests.workloads.training.other_programs import ask_transformers

WORDS = ("قهوة", "شاي", "تمر", "coffee", "tea", "dates")
CONTEXT = 64
SMALL = {"epochs": 3, "width": 32, "layers": 3, "heads": 2, "keyValueHeads": 1, "context": CONTEXT}


@pytest.mark.parametrize(
    ("training", "told"),
    [
        ({}, {"processes": 1}),
        ({"parallel": {"data": 2}}, {"processes": 2}),
        (
            {
                "parallel": {"shard": 2, "tensor": 2, "pipeline": 4},
                "recompute": "layers",
                "compile": "never",
            },
            {
                "processes": 16,
                "shard": 2,
                "tensor": 2,
                "pipeline": 4,
                "recompute": "layers",
                "compile": "never",
            },
        ),
        ({"processes": 2, "compression": "powersgd"}, {"processes": 2, "compression": "powersgd"}),
    ],
)
def test_what_a_stack_says_of_a_division_reaches_its_training(
    training: dict[str, Any], told: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    values = {"falaj:platform": "local", "falaj:dataset": "notes.txt", "falaj:training": training}
    settings = validate(values, tmp_path, stack="notes")
    assert isinstance(settings, LocalSettings)
    checked = _asked_of_the_run(settings, tmp_path)
    keys = ("processes", "shard", "tensor", "pipeline", "recompute", "compile", "compression")
    assert {key: checked[key] for key in keys if key in checked} == told


def test_a_stack_may_learn_from_a_folder_of_texts(tmp_path: Path) -> None:
    folder = tmp_path / "notes" / "1971"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("words " * 20, encoding="utf-8")
    values: dict[str, Any] = {"falaj:platform": "local", "falaj:dataset": "notes"}
    sized = {"falaj:training": {"vocabulary": 300, "context": CONTEXT}}
    for task in ({}, {"falaj:task": "language"}):
        settings = validate(values | sized | task, tmp_path, stack="notes")
        assert isinstance(settings, LocalSettings)
        assert settings.is_text(tmp_path)
    checked = DatasetHandler().check({"site": "/site", "source": str(tmp_path / "notes")}, {})
    assert len(str(checked["sourceSha256"])) == 64
    for wrong in ({"falaj:target": "x"}, {"falaj:task": "regression"}):
        with pytest.raises(SettingsError, match=next(iter(wrong)).partition(":")[2]):
            validate(values | wrong, tmp_path, stack="notes")


def test_a_stack_may_learn_from_a_column_of_texts(tmp_path: Path) -> None:
    folder = tmp_path / "visits"
    folder.mkdir()
    (folder / "0.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    table: dict[str, Any] = {"falaj:platform": "local", "falaj:dataset": "visits"}
    values = table | {"falaj:task": "language"}
    with pytest.raises(SettingsError, match="need the column to predict"):
        validate(values, tmp_path, stack="visits")
    settings = validate(values | {"falaj:target": "text"}, tmp_path, stack="visits")
    assert isinstance(settings, LocalSettings)
    assert settings.is_text(tmp_path)
    settings = validate(table | {"falaj:target": "text"}, tmp_path, stack="visits")
    assert isinstance(settings, LocalSettings)
    assert not settings.is_text(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    values = {"falaj:platform": "local", "falaj:dataset": "rows.csv", "falaj:target": "b"}
    with pytest.raises(SettingsError, match=r"rows\.csv is a table; texts are in a"):
        validate(values | {"falaj:task": "language"}, tmp_path, stack="rows")


def test_a_stack_may_learn_from_conversations(tmp_path: Path) -> None:
    line = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(line), encoding="utf-8")
    values: dict[str, Any] = {"falaj:platform": "local", "falaj:dataset": path.name}
    sized = {"falaj:training": {"vocabulary": 300, "context": CONTEXT}}
    settings = validate(values | sized, tmp_path, stack="questions")
    assert isinstance(settings, LocalSettings)
    assert settings.is_text(tmp_path)
    checked = DatasetHandler().check({"site": "/site", "source": str(path)}, {})
    assert len(str(checked["sourceSha256"])) == 64
    with pytest.raises(SettingsError, match="target"):
        validate(values | {"falaj:target": "x"}, tmp_path, stack="questions")


def test_what_makes_networks_smaller_reaches_the_training(tmp_path: Path) -> None:
    (tmp_path / "taught").mkdir()
    (tmp_path / "taught" / "record.json").write_text("{}", encoding="utf-8")
    told = {"distilTemperature": 3.5, "distilWeight": 0.25, "prune": 0.5}
    training = {**told, "teacher": "taught", "quantisationAware": True}
    values = {"falaj:platform": "local", "falaj:dataset": "digits", "falaj:training": training}
    settings = validate(values, tmp_path, stack="digits")
    assert isinstance(settings, LocalSettings)
    checked = _asked_of_the_run(settings, tmp_path)
    assert {key: checked[key] for key in told} == told
    assert checked["teacher"] == str(tmp_path / "taught")
    assert checked["quantisationAware"] is True


def test_what_a_stack_says_of_tokens_reaches_its_dataset(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("words " * 20, encoding="utf-8")
    training = {"context": 64, "vocabulary": 1024}
    values = {"falaj:platform": "local", "falaj:dataset": "notes.txt", "falaj:training": training}
    settings = validate(values, tmp_path, stack="notes")
    assert isinstance(settings, LocalSettings)
    checked = _asked(settings, tmp_path, "Dataset", DatasetHandler())
    assert {key: checked[key] for key in training} == training
    assert not {"vocabulary", "vocabularyOf"} & {*_asked_of_the_run(settings, tmp_path)}


def test_what_a_training_begins_with_reaches_it_and_its_dataset(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    (tmp_path / "begun").mkdir()
    record = json.dumps({"classes": ["\ufffd", "a"]})
    (tmp_path / "begun" / "record.json").write_text(record, encoding="utf-8")
    told = {"loraRank": 4, "loraAlpha": 2.5, "loraMatrices": "units"}
    values = {
        "falaj:platform": "local", "falaj:dataset": "notes.txt",
        "falaj:training": {**told, "start": "begun"},
    }  # fmt: skip
    settings = validate(values, tmp_path, stack="notes")
    assert isinstance(settings, LocalSettings)
    checked = _asked_of_the_run(settings, tmp_path)
    assert {key: checked[key] for key in told} == told
    assert checked["start"] == str(tmp_path / "begun")
    cut = _asked(settings, tmp_path, "Dataset", DatasetHandler())
    assert cut["vocabularyOf"] == str(tmp_path / "begun")
    assert "vocabulary" not in cut
    values |= {"falaj:dataset": "digits", "falaj:training": {"start": "begun"}}
    settings = validate(values, tmp_path, stack="notes")
    assert isinstance(settings, LocalSettings)
    assert "vocabularyOf" not in _asked(settings, tmp_path, "Dataset", DatasetHandler())


def _asked_of_the_run(settings: LocalSettings, root: Path) -> Values:
    """What the provider takes of the run that a stack declares."""
    return _asked(settings, root, "TrainingRun", TrainingRunHandler())


def _asked(settings: LocalSettings, root: Path, kind: str, handler: Handler) -> Values:
    """What the provider takes of one of the stack's resources."""
    folders = {key: f"/{key}" for key in ("site", "dataset", "keyring") if key in handler.table}
    return handler.check({**inputs_of(settings, root, kind), **folders}, {})


def called(project: Project, said: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the call asks for that `up` printed, and the answer to it."""
    call = said.partition("Call it with curl:\n")[2].partition("\n\n")[0]
    assert "/v1/completions" in call
    # Not by make, as it is printed in a clone: it would install the copy into this environment.
    token = project.falaj("token").stdout
    done = subprocess.run(
        ["sh", "-c", call.partition("|")[2]], input=token, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return json.loads(call.partition("-d '")[2].partition("'")[0]), json.loads(done.stdout)


def goes_on(project: Project, prompt: str, most: int) -> str:
    """What other people's program makes of the weights of version 1."""
    with tempfile.TemporaryDirectory() as above:
        folder = f"{above}/weights"
        done = project.falaj("runs", "export", "1", "--output", folder)
        assert done.returncode == 0, done.stdout
        assert project.falaj("runs", "export", "1", "--output", folder).returncode == 2
        [other] = ask_transformers(
            [{"folder": folder, "tokens": [], "text": prompt, "more": most}]
        )
    return other["text"]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_text_is_learned_served_and_learned_again_when_it_grew(project: Project) -> None:
    def configure(**values: Any) -> None:
        project.configure(
            dataset=str(text), training=SMALL, optimization={"quantise": "never"}, **values
        )

    chosen = random.Random(3)
    text = project.home.parent / "orders.txt"
    text.write_text(" ".join(chosen.choice(WORDS) for _ in range(4_000)), encoding="utf-8")
    configure(batches={"all": {"inputs": [str(text)]}})
    refused = project.falaj("up")
    assert refused.returncode == 2
    assert "falaj:batches: given, but of a text a language model is learned" in refused.stdout

    configure()
    asked, answer = called(project, project.up())
    # One less than is looked back on, with the beginning.
    continued = answer["choices"][0]["text"]
    assert goes_on(project, asked["prompt"], CONTEXT - 1) == continued[: CONTEXT - 1]
    assert (answer["model"], answer["usage"]["completion_tokens"]) == ("orders", 64)
    # What was learned are words of these letters and single blanks.
    assert set(answer["choices"][0]["text"]) <= set("".join(WORDS)) | {" "}

    shown = project.pulumi("stack", "output", "--json", "-s", project.stack)
    evaluation = json.loads(shown.stdout)["evaluation"]
    assert evaluation["metric"] == "nats_per_character"
    assert 0 < evaluation["float"]["metric"] < 3

    demo = project.falaj("demo")
    assert demo.returncode == 0, demo.stdout
    assert "held-out windows, through the endpoint" in demo.stdout
    predicted = project.falaj("predict", str(text))
    assert predicted.returncode == 2
    assert "orders is a language model" in predicted.stdout

    with text.open("a", encoding="utf-8") as file:
        file.write(" ".join(chosen.choice(WORDS) for _ in range(4_000)))
    again = project.up()
    assert "Serving orders version 2 at " in again
    assert "against version 1" in again
    project.down()


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_text_is_learned_in_tokens_of_its_own(project: Project) -> None:
    chosen = random.Random(3)
    text = project.home.parent / "orders.txt"
    text.write_text(" ".join(chosen.choice(WORDS) for _ in range(4_000)), encoding="utf-8")
    project.configure(
        dataset=str(text), training=SMALL | {"vocabulary": 260},
        optimization={"quantise": "never"},
    )  # fmt: skip
    asked, answer = called(project, project.up())
    continued = answer["choices"][0]["text"]
    assert answer["usage"]["completion_tokens"] == asked["max_tokens"] == CONTEXT
    # As many characters as tokens that fit, of which one may be two of these words' bytes.
    some = goes_on(project, asked["prompt"], CONTEXT // 2)
    assert continued.startswith(some.rstrip("\ufffd"))

    demo = project.falaj("demo")
    assert demo.returncode == 0, demo.stdout
    assert "the token after each of" in demo.stdout
    assert "nats a character" in demo.stdout
    [run] = json.loads(project.falaj("runs", "list", "--json").stdout)
    assert run["data"]["vocabulary"]["size"] == 260
    assert {"nats_per_character", "nats_per_token", "bits_per_byte"} <= run["figures"].keys()
    project.down()
