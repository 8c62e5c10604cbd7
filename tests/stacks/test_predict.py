"""``falaj predict`` and ``falaj unseal``, for a stack that serves a model on this machine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from falaj.engine.files import stack_home
from falaj.stacks.command.__main__ import main
from falaj.stacks.command.predict import Reference
from falaj.stacks.errors import StackError
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a stack that serves a table's model, and a file of rows."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    own = {"config": {"falaj:platform": "local"}}
    (folder / "stacks/Pulumi.local.yaml").write_text(yaml.safe_dump(own))
    site = Site(stack_home("falaj", "local"))
    site.document["model"] = "table"
    site.publish(models.table())
    told = site.root / "service" / "table"
    told.mkdir(parents=True)
    (told / "service.json").write_text(json.dumps({**site.document, "alias": "production"}))
    (folder / "rows.csv").write_text("id,age,city\n1,5,x\n2,,y\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_predictions_are_sealed_in_the_site_and_opened(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "rows.csv", "--stack", "local", "--keep", "id"]) == 0
    sealed = stack_home("falaj", "local") / "batches" / "rows.predictions.csv.sealed"
    said = capfd.readouterr().out
    opening = [str(sealed), "--output", "rows.predictions.csv", "--stack", "local"]
    assert said.splitlines()[-1].endswith(f" unseal {shlex.join(opening)}")
    assert main(["unseal", str(sealed), "--stack", "local"]) == 0
    assert capfd.readouterr().out == "row,id,score,label\n1,1,5.0,x\n2,2,40.0,y\n"
    words = ["--stack", "local", "--plain", "--model", "table:1", "--format", "jsonl"]
    assert main(["predict", "rows.csv", *words]) == 0
    assert "unseal" not in capfd.readouterr().out
    assert len((project / "rows.predictions.jsonl").read_text().splitlines()) == 2
    (project / "dashed.csv").write_text("-id,age,city\n1,5,x\n")
    assert main(["predict", "dashed.csv", "--stack", "local", "--keep=-id", "--dry-run"]) == 0
    assert main(["predict", "rows.csv", "--model", "table@candidate", "--dry-run"]) == 2
    assert "no alias 'candidate'" in capfd.readouterr().err


@pytest.mark.slow
def test_who_names_the_wrong_stack_is_told_which_to_name(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("other", "down"):
        (project / f"stacks/Pulumi.{name}.yaml").write_text("config: {falaj:platform: local}\n")
    site = Site(stack_home("falaj", "other"))
    told = site.root / "service" / "digits"
    told.mkdir(parents=True)
    (told / "service.json").write_text(json.dumps({**site.document, "alias": "production"}))
    assert main(["predict", "rows.csv", "--stack", "local"]) == 0
    sealed = stack_home("falaj", "local") / "batches" / "rows.predictions.csv.sealed"
    capfd.readouterr()
    broken = stack_home("falaj", "down") / "service" / "digits" / "service.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    assert main(["unseal", str(sealed), "--stack", "other"]) == 2
    broken.unlink()
    printed = capfd.readouterr()
    assert "lies in the folder of stack local: give --stack local" in printed.err
    assert printed.out == ""
    elsewhere = project / sealed.name
    sealed.rename(elsewhere)
    sealed.with_name("rows.predictions.csv.json").rename(project / "rows.predictions.csv.json")
    assert main(["unseal", str(elsewhere), "--stack", "other"]) == 2
    assert "give it with --stack: local\n" in "".join(capfd.readouterr())
    assert main(["unseal", str(elsewhere), "--stack", "local"]) == 0
    capfd.readouterr()
    assert main(["unseal", "none.sealed", "--stack", "other"]) == 2
    assert "--stack" not in "".join(capfd.readouterr())


@pytest.mark.usefixtures("project")
def test_what_contradicts_itself_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "rows.csv", "--output", "o.csv", "--format", "csv"]) == 2
    assert "--format: is told by the name of --output" in capfd.readouterr().err
    assert main(["predict", "rows.csv", "--stack", "local", "--model", "a@b:c"]) == 2
    assert "credit@production or credit:7" in capfd.readouterr().err


def test_references() -> None:
    assert Reference.of("credit").options("production") == [
        "--model", "credit", "--alias", "production",
    ]  # fmt: skip
    assert Reference.of("credit@candidate").options("production")[2:] == ["--alias", "candidate"]
    assert Reference.of("credit:7").options("production")[2:] == ["--version", "7"]
    for text in ("", "a:0", "a:x", "a@", "a@b@c", ":7"):
        with pytest.raises(StackError):
            Reference.of(text)


def test_who_has_feature_tables_is_told_what_joins_rows(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "rows.csv").write_text("id,city\n1,x\n")
    assert main(["predict", "rows.csv", "--stack", "local"]) == 2
    assert "feature tables" not in capfd.readouterr().err
    config = {
        "falaj:platform": "local", "falaj:dataset": "cases.csv", "falaj:target": "y",
        "falaj:features": {"tables": {"people": {"source": "people.csv", "keys": ["id"]}}},
    }  # fmt: skip
    (project / "cases.csv").write_text("id,y\n1,2\n")
    (project / "people.csv").write_text("id,age\n1,2\n")
    (project / "stacks/Pulumi.local.yaml").write_text(yaml.safe_dump({"config": config}))
    assert main(["predict", "rows.csv", "--stack", "local"]) == 2
    told = capfd.readouterr().err
    assert "lacks 1 of the model's 2 columns: 'age'" in told
    assert "features rows.csv --output joined-rows.csv --stack local" in told
    (project / "rows.csv").write_text("id,city,people.age\n1,x,3\n")
    assert main(["predict", "rows.csv", "--stack", "local"]) == 2
    assert "feature tables" not in capfd.readouterr().err
