"""A stack on one machine trains a team's own model: what its file may say, and what `up` does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import validate
from tests.stacks.conftest import Project
from tests.stacks.in_mocks import shipped
from tests.workloads.training.test_own_packages import wheel

NAME = "mine.network:Network"
CODE = """
from torch import nn

class Network(nn.Module):
    def __init__(self, inputs, outputs, width=8):
        super().__init__()
        channels, height, side = inputs
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(channels * height * side, width), nn.BatchNorm1d(width),
            nn.ReLU(), nn.Linear(width, outputs),
        )

    def forward(self, images):
        return self.layers(images)
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "network.py").write_text(CODE)
    return folder.parent


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"code": None}, "training.code: missing; a model of your own needs its class"),
        ({"model": None}, "training.model: missing; a model of your own needs its class"),
        ({"model": None, "code": None}, "training.code: missing"),
        ({"model": "mine.network"}, "given 'mine.network'; allowed: auto, network, mobilenet"),
        ({"model": "mobile", "code": None, "options": None}, "or a module, ':' and a class in it"),
        (
            {"model": "mobilenet"},
            "training.code: given, but it is of a model of your own, and m",
        ),
        ({"model": "network", "code": None}, "training.options: given, but it is of a model of y"),
        ({"model": "mine.network:Net"}, "mine/network.py has no class 'Net'; it has Network"),
        ({"model": "mine.net:Network"}, "did you mean mine.network; it has mine.network"),
        ({"code": "absent"}, "absent; a relative path starts at the project's folder"),
        ({"code": "models/mine/network.py"}, "there is no folder"),
        ({"code": "x" * 300}, "File name too long"),
        ({"width": 8}, "training.width: given 8, but it is of Falaj's own models"),
        ({"options": {"width": None}}, "width is None: allowed are numbers (whole"),
        ({"options": {"width": {"a": 1}}}, "texts of up to 1,000 characters, true and"),
        ({"options": {"width": 10**400}}, "allowed are numbers (whole ones below 2^53"),
        ({"options": {"my-width": 1}}, "my-width"),
        ({"options": [1]}, "training.options"),
        ({"code": "unpinned"}, "unpinned/requirements.txt, line 1: 'peft' isn't pinned"),
        ({"code": "other"}, "other/requirements.txt pins other versions than Falaj's environment"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_settings(
    models: Path, change: dict[str, Any], words: str
) -> None:
    section = {"model": NAME, "code": "models", "options": {"width": 4}, **change}
    given = {key: value for key, value in section.items() if value is not None}
    for name, line in (("unpinned", "peft"), ("other", f"numpy==1.0 --hash=sha256:{'a' * 64}")):
        shutil.copytree(models, models.parent / name)
        (models.parent / name / "requirements.txt").write_text(line)
    values = {"falaj:platform": "local", "falaj:training": given}
    with pytest.raises(SettingsError) as caught:
        validate(values, models.parent, stack="local")
    assert words in str(caught.value)


@pytest.mark.parametrize("model", ["mobilenet", "efficientnet"])
@pytest.mark.parametrize(("dataset", "kind"), [("rows.csv", "table"), ("orders.txt", "text")])
def test_networks_of_images_are_refused_for_other_data(
    models: Path, model: str, dataset: str, kind: str
) -> None:
    (models.parent / dataset).write_text("a,b\n1,2\n")
    values = {
        "falaj:platform": "local", "falaj:training": {"model": model}, "falaj:dataset": dataset,
        **({"falaj:target": "b"} if kind == "table" else {}),
    }  # fmt: skip
    with pytest.raises(SettingsError) as caught:
        validate(values, models.parent, stack="local")
    said = f"given '{model}', which learns from images, and the dataset is a {kind}"
    assert f"training.model: {said}" in str(caught.value)
    assert "models of one's own" not in str(caught.value)


def test_a_class_says_itself_how_its_matrices_are_divided(models: Path) -> None:
    """Layers that others follow, and what is computed twice of them, are of Falaj's own alone."""
    section: dict[str, Any] = {"model": NAME, "code": "models"}
    values = {"falaj:platform": "local", "falaj:training": section}
    section["parallel"] = {"tensor": 2}
    settings: Any = validate(values, models.parent, stack="local")
    assert settings.training.all_processes == 2
    section |= {"parallel": {"tensor": 2, "pipeline": 2}, "recompute": "layers"}
    with pytest.raises(SettingsError) as caught:
        validate(values, models.parent, stack="local")
    assert "training.parallel.pipeline: given 2, which is of a language model's" in str(
        caught.value
    )
    assert "training.recompute: given 'layers'" in str(caught.value)
    assert "parallel.tensor" not in str(caught.value)


@pytest.mark.parametrize("word", ["auto", "network", "mobilenet", "efficientnet"])
def test_falaj_s_own_models_are_named_by_a_word(models: Path, word: str) -> None:
    values = {"falaj:platform": "local", "falaj:training": {"model": word, "width": 8}}
    settings: Any = validate(values, models.parent, stack="local")
    assert (settings.training.model, settings.training.width) == (word, 8)


@pytest.mark.parametrize("key", ["model", "code", "options"])
def test_pods_get_no_folder_and_the_refusal_says_what_to_do(key: str) -> None:
    config = shipped("onprem-workloads")
    notes = {**config["falaj:trainingJobs"]["notes"], key: "models"}
    with pytest.raises(SettingsError, match=r"unknown key; a folder .* image and program of a"):
        validate({**config, "falaj:trainingJobs": {"notes": notes}}, Path("stacks"), stack="x")


def test_plain_values_of_every_kind_are_taken(models: Path) -> None:
    options = {"width": 4, "rate": 0.5, "norm": True, "act": "relu", "sizes": [1, 2]}
    section = {"model": NAME, "code": "models", "options": options}
    values = {"falaj:platform": "local", "falaj:training": section}
    settings: Any = validate(values, models.parent, stack="local")
    assert settings.training.options == options


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_edited_code_trains_again_and_a_killed_training_goes_on(
    project: Project, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def configure(**training: Any) -> None:
        own = {"model": NAME, "code": str(models), "options": {"width": 16}, "batchSize": 256}
        project.configure(dataset="digits", training={**own, **training})

    configure(code=str(models / "absent"))
    done = project.falaj("preview")
    assert done.returncode == 2
    assert "there is no folder" in done.stdout

    configure(epochs=40)
    process = project.start("up")
    checkpoints = project.site.glob
    deadline = time.monotonic() + 120
    while not [*checkpoints("runs/*/checkpoint.sealed")] and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert [*checkpoints("runs/*/code.zip.sealed")]
    said = project.falaj("up")
    assert said.returncode == 0, said.stdout
    assert "going on from epoch" in said.stdout
    manifest = json.loads(
        next(project.site.glob("registry/*/versions/1/manifest.json")).read_text()
    )
    assert manifest["lineage"]["model"] == NAME
    project.up()
    assert len([*project.site.glob("registry/*/versions/*")]) == 1

    # Edited code, which wants a package of its own: only the command knows where that is.
    mirror = models.parent / "mirror"
    mirror.mkdir()
    (models / "requirements.txt").write_text(wheel(mirror, "falaj_tests_words"))
    edited = "from falaj_tests_words import word\n" + CODE.replace("ReLU", "SiLU")
    (models / "mine" / "network.py").write_text(edited)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(mirror))
    assert "codeSha256" in project.falaj("preview", "--details").stdout
    project.up()
    versions = {
        json.loads(each.read_text())["lineage"]["code"]
        for each in project.site.glob("registry/*/versions/*/manifest.json")
    }
    assert len(versions) == 2
