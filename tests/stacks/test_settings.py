from __future__ import annotations

import json
import os
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.local.provider.resources.dataset import DatasetHandler
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import LocalSettings, load_file, validate
from falaj.stacks.settings.shapes import keys_of
from falaj.workloads import bounds
from tests.workloads.training.pictures import write_shapes

KEYS = [key.name for key in keys_of(LocalSettings)]

LOCAL = {"falaj:platform": "local"}


def refused(values: dict[str, Any], root: Path = Path()) -> str:
    with pytest.raises(SettingsError) as caught:
        validate(values, root, stack="local")
    return str(caught.value)


def test_unknown_key_names_its_path_and_what_is_allowed() -> None:
    message = refused({**LOCAL, "falaj:trainnig": {"epochs": 3}})
    assert message.startswith("falaj:trainnig: unknown key; did you mean training?")
    assert "dataClass" in message


def test_unknown_nested_key_names_its_path() -> None:
    message = refused({**LOCAL, "falaj:training": {"epoch": 3}})
    assert message.startswith("falaj:training.epoch: unknown key; did you mean epochs?")
    assert "batchSize" in message


def test_unknown_namespace_suggests_the_right_one() -> None:
    assert "did you mean falaj:dataset?" in refused({**LOCAL, "falja:dataset": "digits"})


@pytest.mark.parametrize(
    ("section", "value", "given_text", "allowed"),
    [
        ({"epochs": "many"}, "training.epochs", "'many'", "a whole number from 1 to 100000"),
        ({"epochs": 0}, "training.epochs", "0", "a whole number from 1 to 100000"),
        ({"epochs": True}, "training.epochs", "true", "a whole number from 1 to 100000"),
        ({"batchSize": 2.5}, "training.batchSize", "2.5", "a whole number from 1 to 1000000"),
        ({"learningRate": 0}, "training.learningRate", "0", "a number from 1e-09 to 10"),
        ({"learningRate": float("nan")}, "training.learningRate", "NaN", "a number from 1e-09"),
        ({"precision": "int4"}, "training.precision", "'int4'", "bfloat16, float16"),
    ],
)
def test_wrong_hyperparameter(
    section: dict[str, Any], value: str, given_text: str, allowed: str
) -> None:
    message = refused({**LOCAL, "falaj:training": section})
    assert message.startswith(f"falaj:{value}: given {given_text}; allowed: ")
    assert allowed in message
    hint = message.splitlines()[1]
    assert hint.startswith("  set it with: pulumi config set --path falaj:") or hint == (
        f"  remove it with: pulumi config rm --path falaj:{value} -s local"
    )


def test_a_folder_of_pictures_is_a_dataset(tmp_path: Path) -> None:
    write_shapes(tmp_path / "data" / "shapes", 2)
    settings = validate({**LOCAL, "falaj:dataset": "data/shapes"}, tmp_path, stack="local")
    assert isinstance(settings, LocalSettings)
    assert settings.model_name == "shapes"
    assert settings.dataset_source(tmp_path) == str(tmp_path / "data" / "shapes")
    assert not settings.is_table(tmp_path)


def test_a_folder_with_more_pictures_than_memory_is_for_is_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_shapes(tmp_path / "data" / "shapes", 12)
    monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", 20)
    values = {**LOCAL, "falaj:dataset": "data/shapes"}
    settings = validate(values, tmp_path, stack="local")
    assert isinstance(settings, LocalSettings)
    assert not settings.is_text(tmp_path)
    checked = DatasetHandler().check({"site": "/site", "source": str(folder)}, {})
    assert len(str(checked["sourceSha256"])) == 64
    for wrong in ({"falaj:target": "kind"}, {"falaj:task": "language"}):
        with pytest.raises(SettingsError, match="but a folder of pictures"):
            validate(values | wrong, tmp_path, stack="local")
    (folder / "square").mkdir()
    assert "less than 2 pictures of 'square'" in refused(values, tmp_path)
    (folder / "square").rmdir()
    (folder / "circle" / "far.png").symlink_to("/etc/passwd")
    assert "circle/far.png is no file, but a link" in refused(values, tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"falaj:target": "kind"}, "falaj:target: given 'kind', but a folder of pictures has a t"),
        ({"falaj:task": "regression"}, "falaj:task: given 'regression', but a folder of pictures"),
        ({"falaj:dataset": "data"}, "has pictures in 'shapes': give a folder with a folder of "),
        (
            {"falaj:dataset": "data/shapes/cross"},
            "has pictures beside its folders ('0.png', ",
        ),
        (
            {"falaj:watch": {"steps": ["tell", "retrain"]}},
            "falaj:watch.steps: retrain is for a table, of which a newer one can be there",
        ),
    ],
)
def test_what_a_folder_of_pictures_can_t_have_is_refused(
    values: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write_shapes(tmp_path / "data" / "shapes", 2)
    assert said in refused({**LOCAL, "falaj:dataset": "data/shapes", **values}, tmp_path)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "falaj:service.experiment.key: missing"),
        ({"key": "a b"}, "allowed: 1 to 64 letters, digits and '-', from a letter on"),
        ({"key": "Authorization"}, "no header that means something to the server"),
        (
            {"key": "x", "share": 100},
            "falaj:service.experiment.share: given 100; allowed: a number",
        ),
        ({"key": "x", "timeoutMs": 0}, "falaj:service.experiment.timeoutMs: given 0; allowed: a"),
        ({"key": "x", "name": "a b"}, "allowed: 1 to 64 letters, digits, '.', '_' and '-'"),
        ({"key": "x", "version": 2}, "falaj:service.experiment.version"),
    ],
)
def test_what_an_experiment_may_not_be(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in refused({**LOCAL, "falaj:service": {"experiment": asked}}, tmp_path)


def test_a_server_has_one_version_beside_the_one_that_serves(tmp_path: Path) -> None:
    both = {"experiment": {"key": "x-customer"}, "shadow": {}}
    said = refused({**LOCAL, "falaj:service": both}, tmp_path)
    assert "falaj:service.experiment: given beside service.shadow, but a server has one" in said


SHARDED = {**LOCAL, "falaj:dataset": "data/rows"}


def write_shards(folder: Path, ending: str = ".parquet") -> None:
    folder.mkdir(parents=True)
    for number in range(2):
        path = folder / f"part-{number}{ending}"
        if ending == ".parquet":
            pq.write_table(pa.table({"age": [1], "label": ["x"]}), path)
        else:
            path.write_text("{}")


def test_a_folder_of_shards_is_a_dataset(tmp_path: Path) -> None:
    write_shards(tmp_path / "data" / "rows")
    settings = validate({**SHARDED, "falaj:target": "label"}, tmp_path, stack="local")
    assert isinstance(settings, LocalSettings)
    assert settings.model_name == "rows"
    assert not settings.is_table(tmp_path)


@pytest.mark.parametrize(
    ("ending", "values", "said"),
    [
        (".parquet", {}, "falaj:target: missing; the dataset data/rows needs the column to pred"),
        (".parquet", {"falaj:target": "lable"}, "did you mean label?"),
        (
            ".jsonl",
            {},
            "falaj:target: missing; the shards of data/rows need the column to predict",
        ),
        (
            ".jsonl",
            {"falaj:target": "label", "falaj:watch": {"steps": ["tell", "retrain"]}},
            "falaj:watch.steps: retrain is for a table, of which a newer one can be there",
        ),
    ],
)
def test_what_a_folder_of_shards_needs_is_asked_for(
    ending: str, values: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write_shards(tmp_path / "data" / "rows", ending)
    assert said in refused({**SHARDED, **values}, tmp_path)


def test_a_folder_with_other_files_beside_its_shards(tmp_path: Path) -> None:
    write_shards(tmp_path / "data" / "rows")
    (tmp_path / "data" / "rows" / "notes.txt").write_text("x")
    assert "has beside its shards notes.txt" in refused(
        {**SHARDED, "falaj:target": "label"}, tmp_path
    )


def test_a_text_is_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "Notes 1.TXT").write_text("words " * 20, encoding="utf-8")
    settings = validate({**LOCAL, "falaj:dataset": "Notes 1.TXT"}, tmp_path, stack="local")
    assert isinstance(settings, LocalSettings)
    assert settings.model_name == "notes-1"
    assert settings.is_text(tmp_path)
    assert not settings.is_table(tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"falaj:dataset": "other.txt"}, "falaj:dataset: there is no file"),
        (
            {"falaj:dataset": "notes.pdf"},
            "'notes.pdf'; allowed: digits, or the path of a .csv or ",
        ),
        ({"falaj:target": "next"}, "falaj:target: given 'next', but a text has a target of its"),
        ({"falaj:task": "regression"}, "'regression', but a text is what a language model learns"),
        ({"falaj:task": "classification"}, "'classification', but a text is what a language m"),
        (
            {"falaj:batches": {"new": {"inputs": ["notes.txt"]}}},
            "falaj:batches: given, but of a text a language model is learned, and there are no r",
        ),
        (
            {"falaj:service": {"experiment": {"key": "x-customer"}}},
            "falaj:service.experiment: given, but of a text a language model is learned, and its",
        ),
        (
            {"falaj:training": {"width": 30}},
            "falaj:training.width: given 30; allowed: multiples of",
        ),
        (
            {"falaj:training": {"heads": 3, "width": 48}},
            "falaj:training.keyValueHeads: given 2; allowed: a number that divides 3, the heads",
        ),
        (
            {"falaj:training": {"parallel": {"tensor": 4}}},
            "falaj:training.parallel.tensor: given 4; allowed: a number that divides 2, the heads",
        ),
        (
            {"falaj:training": {"parallel": {"pipeline": 6}}},
            "falaj:training.parallel.pipeline: given 6; allowed: 1 to 4, as many as there are lay",
        ),
        (
            {"falaj:service": {"tokensPerMinute": 0}},
            "falaj:service.tokensPerMinute: given 0; allowed: a whole number from 1 to 1000000000",
        ),
        (
            {"falaj:training": {"context": 4}},
            "falaj:training.context: given 4; allowed: a whole number from 8 to 32768",
        ),
        (
            {"falaj:training": {"vocabulary": 255}},
            "falaj:training.vocabulary: given 255; allowed: a whole number from 256 to 65536",
        ),
        ({"falaj:watch": {"steps": ["tell"]}}, "falaj:watch: given, but of a text a language m"),
        (
            {"falaj:training": {"model": "mine:Network", "code": "code"}},
            "falaj:training.model: given 'mine:Network', but models of one's own learn fro",
        ),
    ],
)
def test_what_a_text_can_t_have_is_refused(
    values: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text("class Network:\n    pass\n", encoding="utf-8")
    assert said in refused({**LOCAL, "falaj:dataset": "notes.txt", **values}, tmp_path)


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"parallel": 4}, "falaj:training.parallel: given 4; allowed: a section"),
        (
            {"parallel": {"shards": 4}},
            "falaj:training.parallel.shards: unknown key; did you mean s",
        ),
        (
            {"parallel": {"shard": 0}},
            "falaj:training.parallel.shard: given 0; allowed: a whole num",
        ),
        (
            {"parallel": {"tensor": 300}},
            "falaj:training.parallel.tensor: given 300; allowed: a whole number from 1 to 256",
        ),
        (
            {"parallel": {"pipeline": 0}},
            "falaj:training.parallel.pipeline: given 0; allowed: a whole number from 1 to 256",
        ),
        (
            {"compile": "always", "parallel": {"tensor": 2}},
            "falaj:training.compile: given 'always' beside tensor 2; allowed: auto, never there",
        ),
        ({"recompute": "all"}, "falaj:training.recompute: given 'all'; allowed: none, layers"),
        (
            {"compression": "zip"},
            "falaj:training.compression: given 'zip'; allowed: none, float16",
        ),
        (
            {"processes": 6, "parallel": {"shard": 2, "tensor": 2}},
            "falaj:training.parallel: given shard 2 x tensor 2 x pipeline 1 = 4, but the training "
            "has 6 process(es); allowed: numbers whose product divides that",
        ),
        (
            {"processes": 8, "parallel": {"data": 1, "shard": 2, "tensor": 2}},
            "falaj:training.parallel: given data 1 x shard 2 x tensor 2 x pipeline 1 = 4, which "
            "is 4 in all, but the training has 8 process(es); allowed: numbers whose product",
        ),
        (
            {"parallel": {"data": 512, "shard": 4}},
            "falaj:training.parallel: given data 512 x shard 4 x tensor 1 x pipeline 1 = 4, for "
            "2048 processes in all; allowed: from 1 to 1024",
        ),
        (
            {"parallel": {"shard": 2}, "compression": "float16"},
            "falaj:training.compression: given 'float16' beside shard 2; allowed: none there",
        ),
        (
            {"compression": "powersgd"},
            "falaj:training.compression: given 'powersgd', but the training has 1 process, which",
        ),
    ],
)
@pytest.mark.parametrize("dataset", ["notes.txt", "digits"])
def test_a_division_that_cannot_be_is_refused(
    training: dict[str, Any], said: str, dataset: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    values = {**LOCAL, "falaj:dataset": dataset, "falaj:training": training}
    assert said in refused(values, tmp_path)


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (
            {"parallel": {"tensor": 2}},
            "falaj:training.parallel.tensor: given 2, which is of a language model's layers, and "
            "the dataset is no text; allowed: 1; parallel.shard divides any network",
        ),
        (
            {"parallel": {"pipeline": 4}},
            "falaj:training.parallel.pipeline: given 4, which is of a ",
        ),
        (
            {"recompute": "layers"},
            "falaj:training.recompute: given 'layers', which is of a langua",
        ),
    ],
)
def test_only_a_text_s_model_is_divided_by_layers(
    training: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in refused({**LOCAL, "falaj:training": training})
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    text = {**LOCAL, "falaj:dataset": "notes.txt", "falaj:training": training}
    validate(text, tmp_path, stack="local")


@pytest.mark.parametrize(
    ("training", "dataset", "said"),
    [
        ({"prune": 0.95}, "digits", "falaj:training.prune: given 0.95; allowed: a number from 0"),
        (
            {"prune": 0.5},
            "notes.txt",
            "falaj:training.prune: given 0.5, but it is of images and t",
        ),
        (
            {"quantisationAware": True},
            "notes.txt",
            "falaj:training.quantisationAware: given true, but it is of images and tables",
        ),
        (
            {"prune": 0.5, "parallel": {"shard": 2}},
            "digits",
            "falaj:training.prune: given 0.5, but the model is divided (training.parallel)",
        ),
        (
            {"tune": True, "parallel": {"shard": 2}},
            "digits",
            "falaj:training.tune: given true, but the model is divided (training.parallel)",
        ),
        (
            {"distilWeight": 0.5},
            "digits",
            "falaj:training.distilWeight: given 0.5, but there is no teacher (training.teacher)",
        ),
        (
            {"teacher": "runs/none"},
            "digits",
            "falaj:training.teacher: given 'runs/none', but there is no finished run in ",
        ),
    ],
)
def test_what_makes_networks_smaller_is_refused_where_it_can_not(
    training: dict[str, Any], dataset: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    values = {**LOCAL, "falaj:dataset": dataset, "falaj:training": training}
    assert said in refused(values, tmp_path)


@pytest.mark.parametrize(
    ("training", "dataset", "said"),
    [
        (
            {"loraRank": 0},
            "notes.txt",
            "falaj:training.loraRank: given 0; allowed: a whole number from 1 to 1024",
        ),
        (
            {"loraRank": 4},
            "notes.txt",
            "falaj:training.loraRank: given 4, but there are no weights to add to (training.start",
        ),
        (
            {"start": "run", "loraRank": 4},
            "digits",
            "falaj:training.loraRank: given 4, but it is of a language model, and the dataset is",
        ),
        (
            {"start": "run", "loraRank": 4, "parallel": {"shard": 2}},
            "notes.txt",
            "falaj:training.loraRank: given 4, but the model is divided (training.parallel)",
        ),
        (
            {"start": "run", "loraAlpha": 4},
            "notes.txt",
            "falaj:training.loraAlpha: given 4.0, but no low ranks are learned",
        ),
        (
            {"start": "run", "loraMatrices": "units"},
            "notes.txt",
            "falaj:training.loraMatrices: given 'units', but no low ranks are learned",
        ),
        (
            {"start": "run", "vocabulary": 300},
            "notes.txt",
            "falaj:training.vocabulary: given 300, but the model that is begun with brings its",
        ),
        (
            {"start": "none"},
            "digits",
            "falaj:training.start: given 'none', but there is neither a finished run nor a model",
        ),
    ],
)
def test_what_a_training_can_not_begin_with_is_refused(
    training: dict[str, Any], dataset: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text("{}")
    values = {**LOCAL, "falaj:dataset": dataset, "falaj:training": training}
    assert said in refused(values, tmp_path)


@pytest.mark.parametrize("name", ["record.json", "config.json"])
def test_a_training_may_begin_with_weights(name: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("words " * 20, encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("{}")
    # How wide that model is, only the trainer reads.
    training = {"start": "run", "loraRank": 4, "heads": 6, "parallel": {"data": 2}}
    values = {**LOCAL, "falaj:dataset": "notes.txt", "falaj:training": training}
    validate(values, tmp_path, stack="local")


def test_a_finished_run_may_teach(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text("{}")
    training = {"teacher": "run", "distilWeight": 0.5, "prune": 0.5, "quantisationAware": True}
    validate({**LOCAL, "falaj:training": training}, tmp_path, stack="local")


@pytest.mark.parametrize(
    ("training", "processes"),
    [
        ({}, 1),
        ({"processes": 3}, 3),
        ({"processes": 4, "compression": "float16"}, 4),
        ({"parallel": {}}, 1),
        ({"parallel": {"data": 2}, "compression": "bfloat16"}, 2),
        ({"parallel": {"shard": 4}}, 4),
        ({"parallel": {"data": 2, "shard": 3}}, 6),
        ({"processes": 6, "parallel": {"shard": 3}}, 6),
        ({"processes": 6, "parallel": {"data": 2, "shard": 3}}, 6),
    ],
)
def test_processes_follow_from_how_a_model_is_divided(
    training: dict[str, Any], processes: int
) -> None:
    settings = validate({**LOCAL, "falaj:training": training}, Path(), stack="local")
    assert isinstance(settings, LocalSettings)
    assert settings.training.all_processes == processes


def test_the_divided_training_of_the_documents_is_taken(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs/how-to/parallel-training.md"
    block = page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("words " * 20, encoding="utf-8")
    settings = validate(yaml.safe_load(block)["config"], tmp_path, stack="local")
    assert isinstance(settings, LocalSettings)
    assert settings.training.all_processes == 4
    assert settings.training.division.options == {"shard": 2, "tensor": 2}


def _batch(**section: Any) -> dict[str, Any]:
    return {**LOCAL, "falaj:batches": {"new": section}}


@pytest.mark.parametrize(
    ("values", "start"),
    [
        ({}, "falaj:platform: given nothing; allowed: local, aws, azure"),
        ({"falaj:platform": "mainframe"}, "falaj:platform: given 'mainframe'; allowed: local"),
        ({"falaj:platform": ["local"]}, "falaj:platform: given [local]"),
        ({**LOCAL, "falaj:retain": "perhaps"}, "falaj:retain: given 'perhaps'; allowed: true or"),
        ({**LOCAL, "falaj:service": "fast"}, "falaj:service: given 'fast'; allowed: a section"),
        ({**LOCAL, "falaj:service": {"port": 80}}, "falaj:service.port: given 80; allowed: a wh"),
        ({**LOCAL, "falaj:service": {"names": ["?"]}}, "falaj:service.names[0]: given '?'"),
        (
            {**LOCAL, "falaj:service": {"maxBodyBytes": 267_386_881}},
            "falaj:service.maxBodyBytes: given 267386881, but allowed is 267386880 at most where",
        ),
        ({**LOCAL, "falaj:dataClass": "secret"}, "falaj:dataClass: given 'secret'; allowed: pub"),
        ({**LOCAL, "falaj:dataset": " "}, "falaj:dataset: given ' '; allowed: text that is"),
        ({**LOCAL, "falaj:dataset": "table.xlsx"}, "falaj:dataset: given 'table.xlsx'; allowed"),
        ({**LOCAL, "falaj:dataset": "absent.csv"}, "falaj:dataset: there is no file "),
        ({**LOCAL, "falaj:target": "y"}, "falaj:target: given 'y', but the dataset digits"),
        ({**LOCAL, "falaj:task": "regression"}, "falaj:task: given 'regression', but"),
        ({**LOCAL, "falaj:model": "Has Spaces"}, "falaj:model: given 'Has Spaces'; allowed: 1 to"),
        (_batch(), "falaj:batches.new.inputs: missing"),
        (_batch(inputs=[]), "falaj:batches.new.inputs: given []"),
        (_batch(inputs=["absent.csv"]), "falaj:batches.new.inputs[0]: there is no file or folder"),
        (_batch(inputs=["."], format="xlsx"), "falaj:batches.new.format: given 'xlsx'; allowed: "),
        (_batch(inputs=["."], threads=0), "falaj:batches.new.threads: given 0; allowed: a whole"),
        (
            {**_batch(inputs=["."], plain=True), "falaj:dataClass": "restricted"},
            "falaj:batches.new.plain: given true, but predictions of restricted data are sealed",
        ),
    ],
)
def test_refused(values: dict[str, Any], start: str) -> None:
    assert refused(values).startswith(start)


def test_encrypted_value_is_not_shown() -> None:
    message = refused({**LOCAL, "falaj:dataset": {"secure": "v1:abcdef"}})
    assert "an encrypted value" in message
    assert "abcdef" not in message


def test_every_problem_is_named_at_once() -> None:
    message = refused({**LOCAL, "falaj:retain": "x", "falaj:split": {"holdout": 0.9}})
    assert "falaj:retain" in message
    assert "falaj:split.holdout" in message


def test_table_needs_a_target(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    message = refused({**LOCAL, "falaj:dataset": "rows.csv"}, tmp_path)
    assert message.startswith("falaj:target: missing; the dataset rows.csv needs")


@given(st.text(string.ascii_letters, min_size=1, max_size=20))
def test_any_key_that_is_not_a_setting_is_refused(key: str) -> None:
    if key in KEYS:
        return
    assert refused({**LOCAL, f"falaj:{key}": 1}).startswith(f"falaj:{key}: unknown key")


@given(
    st.dictionaries(
        st.sampled_from(KEYS),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=8), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_any_values_are_taken_or_refused_in_words(values: dict[str, Any]) -> None:
    namespaced = {f"falaj:{key}": value for key, value in values.items()}
    try:
        settings = validate({**LOCAL, **namespaced}, Path(), stack="local")
    except SettingsError as error:
        assert str(error).startswith("falaj:")
    else:
        assert settings.platform == "local"


def test_defaults_are_safe() -> None:
    settings = validate(LOCAL, Path(), stack="local")
    assert settings.service.host == "127.0.0.1"
    assert settings.data_class == "internal"
    assert not settings.retain
    assert settings.model_name == "digits"


def test_text_of_the_right_form_counts_as_its_type() -> None:
    # `pulumi config set falaj:retain true` writes text into the stack file.
    values = {**LOCAL, "falaj:retain": "true", "falaj:keepVersions": "3"}
    settings = validate(values, Path(), stack="local")
    assert settings.retain
    assert settings.keep_versions == 3


def test_paths_start_at_the_project_folder(tmp_path: Path) -> None:
    table = tmp_path / "My Table (1).csv"
    table.write_text("a,b\n1,2\n")
    values = {**LOCAL, "falaj:dataset": table.name, "falaj:target": "b"}
    settings = validate(values, tmp_path, stack="local")
    assert settings.dataset_source(tmp_path) == str(table.resolve())
    assert settings.model_name == "my-table--1"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("config: [", "not valid YAML"),
        ("- a\n", "expected a mapping with a `config` section"),
        ("config: 5\n", "`config` must be a mapping"),
        ("config:\n  dataset: digits\n", "config key 'dataset' has no namespace; write it as"),
    ],
)
def test_broken_stack_file(tmp_path: Path, text: str, start: str) -> None:
    path = tmp_path / "Pulumi.local.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=start.replace("[", r"\[")):
        load_file(path, tmp_path)


def test_missing_stack_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no stack file"):
        load_file(tmp_path / "Pulumi.x.yaml", tmp_path)


def test_file_and_engine_give_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from falaj.stacks.settings import load_engine

    path = tmp_path / "Pulumi.local.yaml"
    path.write_text(
        "config:\n  falaj:platform: local\n  falaj:retain: true\n"
        "  falaj:training: {epochs: 4, learningRate: 0.01}\n"
    )
    handed = {
        "falaj:platform": "local",
        "falaj:retain": "true",
        "falaj:training": json.dumps({"epochs": 4, "learningRate": 0.01}),
    }
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(handed))
    assert load_engine("local", tmp_path) == load_file(path, tmp_path)


def test_every_template_is_valid() -> None:
    root = Path(__file__).resolve().parents[2]
    templates = (root / "stacks" / "templates").glob("*.yaml")
    found = {each.stem: load_file(each, root).platform for each in templates}
    assert found == {
        "local": "local", "real-cluster": "kubernetes", "real-workloads": "kubernetes",
    }  # fmt: skip


def test_stacks_are_checked_in_threads_beside_each_other_and_change_no_variable() -> None:
    """`falaj check` does so: what is of the whole process is nobody's to set for a while."""
    path = Path(__file__).resolve().parents[2] / "stacks" / "Pulumi.aws-smb.yaml"
    before = dict(os.environ)

    def check(_: int) -> dict[str, str]:
        load_file(path, path.parents[1])
        return dict(os.environ)

    with ThreadPoolExecutor(8) as pool:
        assert all(found == before for found in pool.map(check, range(24)))
