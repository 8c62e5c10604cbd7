"""A language model from its training to its package: graph, figures, gate, worth and card."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from falaj.workloads import demo
from falaj.workloads.batch.prediction import Batch
from falaj.workloads.batch.prediction import Request as BatchRequest
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.models import model
from falaj.workloads.inference.settings import Limits
from falaj.workloads.optimization import card_text, pipeline
from falaj.workloads.optimization.comparison import (
    check_parity,
    metric_of,
    open_session,
    window_nats,
)
from falaj.workloads.optimization.export import (
    PARITY_TOLERANCE,
    Serving,
    assemble,
    describe_inputs,
    describe_outputs,
    export_module,
    quantise,
)
from falaj.workloads.optimization.worth import Followed, Served, answers_of, judge
from falaj.workloads.registry import __main__ as registry
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from falaj.workloads.training import loop
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.language import CONTEXT, TOKENS, UNKNOWN, following, request_of
from falaj.workloads.training.record import RECORD
from falaj.workloads.training.snapshot import DESCRIPTION, Rows, load_rows, open_dataset
from tests.workloads.optimization.conftest import Optimise, Run, called, kept, trained

CHARACTERS = [UNKNOWN, " ", "a", "b", "ق", "ش", "ت"]
SIZE = len(CHARACTERS)
ANSWERS = ["probabilities", "label"]
SERVING = Serving("text", None, (CONTEXT,), CHARACTERS, text_labels=True, target=None)


def decoder(seed: int = 1) -> Decoder:
    torch.manual_seed(seed)
    made = Decoder(CONTEXT, SIZE, 8)
    with torch.no_grad():  # beginnings are all but even: answers are to differ
        for each in made.parameters():
            each.mul_(8 if each.ndim > 1 else 1)
    return made.eval().requires_grad_(False)


def characters(rows: int, length: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(length).integers(0, SIZE, (rows, length))


@pytest.fixture(scope="module")
def core() -> onnx.ModelProto:
    return export_module(decoder(), SERVING.shape)


@pytest.fixture(scope="module")
def served(core: onnx.ModelProto) -> bytes:
    return assemble(core, SERVING).SerializeToString()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 5, CONTEXT - 1, CONTEXT, CONTEXT + 1, 300])
def test_the_graph_says_what_follows_rows_of_any_length(
    served: bytes, rows: int, length: int
) -> None:
    tokens = characters(rows, length)
    probabilities, labels = open_session(served).run(ANSWERS, {TOKENS: tokens})
    wanted = torch.softmax(decoder()(torch.from_numpy(tokens[:, -CONTEXT:]))[:, -1], dim=-1)
    np.testing.assert_allclose(np.asarray(probabilities), wanted.numpy(), atol=1e-5)
    assert np.asarray(labels).tolist() == [CHARACTERS[each] for each in wanted.argmax(1)]


@pytest.mark.parametrize("strange", [-1, SIZE, 2**40, -(2**63)])
def test_numbers_that_no_character_has_are_the_unknown_one(served: bytes, strange: int) -> None:
    given = characters(2, 9)
    given[:, 3] = strange
    given[1, -1] = strange
    session = open_session(served)
    answers, known = (
        session.run(["probabilities"], {TOKENS: each})[0]
        for each in (given, np.where(given == strange, 0, given))
    )
    np.testing.assert_array_equal(np.asarray(answers), np.asarray(known))


def test_rows_without_characters_are_refused(served: bytes) -> None:
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        open_session(served).run(None, {TOKENS: np.zeros((1, 0), dtype=np.int64)})


def test_the_graph_is_described_as_it_is_served(core: onnx.ModelProto) -> None:
    model = assemble(core, SERVING)
    assert metric_of(SERVING) == "nats_per_character"
    assert describe_inputs(model, SERVING) == [
        {"name": "tokens", "datatype": "INT64", "shape": [-1, -1], "context": CONTEXT}
    ]
    assert describe_outputs(model, SERVING) == [
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, SIZE],
         "role": "probabilities"},
        {"name": "label", "datatype": "BYTES", "shape": [-1], "role": "label"},
    ]  # fmt: skip


def test_other_weights_are_noticed(served: bytes) -> None:
    feed = {TOKENS: characters(3, CONTEXT)}
    assert check_parity(served, decoder(), SERVING, feed) < 1e-5
    with pytest.raises(WorkloadError, match="differ from the trained module's"):
        check_parity(served, decoder(seed=2), SERVING, feed)


def test_a_graph_that_looks_back_too_far_is_noticed(core: onnx.ModelProto) -> None:
    model = assemble(core, SERVING)
    for each in model.graph.initializer:
        if each.name.endswith("from"):
            each.CopyFrom(onnx.numpy_helper.from_array(np.array([1 - CONTEXT]), each.name))
    with pytest.raises(WorkloadError, match="differ from the trained module's"):
        check_parity(
            model.SerializeToString(), decoder(), SERVING, {TOKENS: characters(3, CONTEXT)}
        )


def test_all_characters_of_windows_are_judged_as_in_training(core: onnx.ModelProto) -> None:
    tokens, after = characters(40, CONTEXT), characters(40, 1)[:, 0]
    nats = window_nats(core.SerializeToString(), tokens, after)
    wanted, _ = loop.follow(
        decoder(), torch.from_numpy(tokens), torch.from_numpy(following(tokens, after))
    )
    assert nats.shape == (40,)
    assert nats.mean() == pytest.approx(wanted, abs=1e-5)


def test_eight_bits_answer_nearly_the_same(core: onnx.ModelProto) -> None:
    tokens, after = characters(24, CONTEXT), characters(24, 1)[:, 0]
    small = quantise(core, tokens, reduce_range=False)
    kinds = {node.op_type for node in small.graph.node}
    assert "DequantizeLinear" in kinds
    before, now = (
        window_nats(each.SerializeToString(), tokens, after).mean() for each in (core, small)
    )
    assert now == pytest.approx(before, rel=0.05)


# -- worth -------------------------------------------------------------------------------------


def worth_of(nats: float) -> Any:
    labels = np.arange(30) % SIZE
    noise = np.random.default_rng(3).normal(0, 0.05, 30)
    answers = np.full((30, SIZE), 1 / SIZE, dtype=np.float32)
    rows = Rows({TOKENS: characters(30, CONTEXT)}, labels)
    return judge(answers, rows, {}, None, Followed(nats + noise, np.full(30, 1.9)))


def test_a_language_model_is_compared_with_what_frequencies_say() -> None:
    good = worth_of(1.2)
    assert good.refusals == []
    assert good.baseline == {"nats_per_character": pytest.approx(1.9)}
    (refusal,) = worth_of(1.9).refusals
    assert "no better than guessing (saying how frequent each character is)" in refusal
    assert "nats per character" in refusal
    assert worth_of(2.4).refusals


# -- from a run to a package -------------------------------------------------------------------

WORDS = ("قهوة", "شاي", "تمر", "coffee", "tea", "dates")


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Run:
    def make(folder: Path) -> Run:
        chosen = random.Random(3)
        text = " ".join(chosen.choice(WORDS) for _ in range(4_000))
        (folder / "orders.txt").write_text(text, encoding="utf-8")
        source = ("--source", str(folder / "orders.txt"))
        return trained(folder, *source, epochs=2, model="auto", more=("--width", "16"))

    return kept(tmp_path_factory, "orders", make)


@pytest.fixture(scope="module")
def exported_once() -> Iterator[None]:
    """The run's graph is the same each time, and to make it is most of an optimisation's work."""
    graphs: dict[tuple[int, ...], onnx.ModelProto] = {}

    def export(module: torch.nn.Module, shape: tuple[int, ...]) -> onnx.ModelProto:
        if shape not in graphs:
            graphs[shape] = export_module(module, shape)
        return onnx.ModelProto.FromString(graphs[shape].SerializeToString())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "export_module", export)
        yield


@pytest.fixture(scope="module")
def made(
    orders: Run,
    optimise: Optimise,
    exported_once: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    output = tmp_path_factory.mktemp("orders") / "output"
    done = optimise(orders.path, orders.dataset, output)
    assert done.returncode == 0, done.stderr
    assert "candidate float: nats per character" in done.stdout
    return output


def told(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_the_figure_is_the_trainings(made: Path, orders: Run) -> None:
    record = told(made, "optimization.json")
    figures = told(orders.path, RECORD)["metrics"]["held_out"]
    assert record["metric_name"] == "nats_per_character"
    assert record["float"]["nats_per_character"] == pytest.approx(
        figures["nats_per_character"], abs=1e-5
    )
    baseline = record["worth"]["baseline"]["nats_per_character"]
    # Training guesses by the windows that are fitted, which are nine of ten of these.
    assert baseline == pytest.approx(figures["baseline_nats"], abs=0.05)
    assert record["worth"]["model"]["nats_per_character"] < baseline
    # Any of them is served, whichever this machine is faster with: all are measured.
    assert record["int8"] is not None
    assert record["int4"]["size_bytes"] < record["int8"]["size_bytes"]
    assert record["parity"] < 1e-4


def test_a_gate_in_nats_lets_through_or_refuses(
    made: Path, orders: Run, optimise: Optimise, tmp_path: Path
) -> None:
    again = optimise(orders.path, orders.dataset, made, "--most-nats", "3.5")
    assert again.returncode == 0, again.stderr
    assert "done before" in again.stderr
    refused = optimise(orders.path, orders.dataset, made, "--most-nats", "0.1")
    assert refused.returncode == 2
    assert "nats_per_character" in refused.stderr
    assert "at most 0.1 is demanded" in refused.stderr
    other = optimise(orders.path, orders.dataset, made, "--most-rmse", "2")
    assert "--most-rmse was given, but the model's metric is nats_per_character" in other.stderr
    kept_float = optimise(orders.path, orders.dataset, tmp_path / "float", "--quantise", "never")
    assert kept_float.returncode == 0, kept_float.stderr
    record = told(tmp_path / "float", "optimization.json")
    assert record["accepted"] == "float"
    exact = record["engine"]["candidates"]["f32"]
    assert exact["nats_per_character"] == pytest.approx(record["float"]["nats_per_character"])
    assert exact["parity"] < PARITY_TOLERANCE


@pytest.mark.usefixtures("exported_once")
def test_four_bits_that_are_asked_for_are_judged_by_nats_and_served(
    orders: Run, optimise: Optimise, tmp_path: Path
) -> None:
    asked = ("--quantise", "int4", "--engine", "onnxruntime")
    refused = optimise(orders.path, orders.dataset, tmp_path, *asked, "--max-accuracy-drop", "0")
    assert refused.returncode == 2
    assert "--quantise int4: " in refused.stderr
    assert "the nats_per_character would be" in refused.stderr
    assert "Allow more (--max-accuracy-drop), or take --quantise auto" in refused.stderr
    assert not (tmp_path / "model.onnx").exists()
    done = optimise(orders.path, orders.dataset, tmp_path, *asked, "--max-accuracy-drop", "20")
    assert done.returncode == 0, done.stderr
    record, fields = (told(tmp_path, name) for name in ("optimization.json", "fields.json"))
    assert record["accepted"] == "int4"
    assert record["int8"] is None
    assert record["served"] == record["int4"]
    assert fields["quantisation"]["int4"] == record["int4"]
    lines = dict(card_text.lines(fields))
    assert lines["candidate int4"].endswith("served)")
    nats = record["int4"]["nats_per_character"]
    assert lines["perplexity"] == f"{np.exp(nats):.4g}"
    loaded = model.load(
        (tmp_path / "model.onnx").read_bytes(), name="orders", version="1", manifest=fields,
        threads=1, limits=Limits(),
    )  # fmt: skip
    assert str(loaded.engine) == "onnxruntime"


def test_four_bits_of_other_models_are_refused(
    digits: Run, optimise: Optimise, tmp_path: Path
) -> None:
    done = optimise(digits.path, digits.dataset, tmp_path / "out", "--quantise", "int4")
    assert done.returncode == 2
    assert "4 bits are for language models, and the run's family is 'images'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_fields_say_what_a_server_needs(made: Path) -> None:
    fields = told(made, "fields.json")
    assert (fields["family"], fields["task"], fields["classes"][0]) == (
        "text", "language", UNKNOWN
    )  # fmt: skip
    assert all(len(each) == 1 for each in fields["classes"])
    assert fields["inputs"][0]["context"] == CONTEXT
    assert fields["outputs"][0]["shape"] == [-1, len(fields["classes"])]
    assert fields["statistics"]["features"] == fields["statistics"]["outputs"] == {}


def test_the_card_tells_of_nats_and_not_of_classes(made: Path) -> None:
    fields = told(made, "fields.json")
    lines = dict(card_text.lines(fields))
    nats = fields["metrics"]["served"]["nats_per_character"]
    assert lines["held-out nats per character"].startswith(f"{nats:.4f} (guessing: ")
    assert lines["perplexity"] == f"{np.exp(nats):.4g}"
    assert lines["vocabulary"] == f"{len(fields['classes']) - 1} characters"
    assert lines["looks back on"] == f"{CONTEXT} characters"
    assert {"AUC", "calibration error", "columns used", "rows"}.isdisjoint(lines)
    page = (made / "card.html").read_text(encoding="utf-8")
    assert "<title>Model of orders.txt</title>" in page
    assert "Confusion" not in page


def test_a_version_of_it_is_published_and_compared_with_the_next(
    made: Path, orders: Run, tmp_path: Path
) -> None:
    ring = KeyRing.create(tmp_path / "ring")
    published = called(
        registry.main, "publish", "--registry", str(tmp_path / "registry"), "--model", "orders",
        "--keyring", str(ring.path), "--from", str(made), "--fields", str(made / "fields.json"),
        "--file", "model.onnx", "--file", "card.html", "--json",
    )  # fmt: skip
    assert published.returncode == 0, published.stderr
    package = Store(tmp_path / "registry").load("orders", 1, ring, ring.verify_key())
    assert package.manifest["classes"] == told(made, "fields.json")["classes"]

    rows = load_rows(orders.dataset, None, "held_out")
    about = told(orders.dataset, DESCRIPTION)
    answers = answers_of(package.read("model.onnx"), package.manifest["outputs"], rows.inputs)
    followed = Followed(*(np.full(len(rows.labels), each) for each in (1.0, 2.0)))
    worth = judge(answers, rows, about, Served(package, None), followed)
    assert (worth.refusals, worth.notes) == ([], [])
    compared = worth.served or {}
    assert (compared["version"], compared["rows"]) == (1, len(rows.labels))
    assert compared["served"] == compared["model"]
    ignorant = np.full_like(answers, 1 / answers.shape[1])
    worse = judge(ignorant, rows, about, Served(package, None), followed)
    assert "it is worse than version 1" in worse.refusals[0]
    other = judge(answers, rows, about | {"classes": [UNKNOWN, "a"]}, Served(package, None),
                  followed)  # fmt: skip
    assert "other classes" in other.notes[0]

    place = tmp_path / "registry"
    request = BatchRequest(
        (orders.dataset,), tmp_path / "out.csv", place, "orders", ring, version=1
    )
    with pytest.raises(WorkloadError, match="is a language model: it continues texts"):
        Batch(request)


# -- asked as people do ------------------------------------------------------------------------


def test_an_example_begins_with_a_letter_that_nobody_wrote(orders: Run, tmp_path: Path) -> None:
    request = demo.example("orders", orders.dataset, tmp_path)
    counts = told(orders.dataset, DESCRIPTION)["statistics"]["target"]["counts"]
    assert request["prompt"].isalpha()
    assert counts[request["prompt"]] == max(counts[each] for each in counts if each.isalpha())
    assert (request["model"], request["temperature"]) == ("orders", 0)
    assert request_of("x", {})["prompt"] == " "


def test_the_demo_judges_what_the_endpoint_says(
    orders: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A server that knows nothing, in the stead of a real one."""
    size = len(told(orders.dataset, DESCRIPTION)["classes"])
    asked: list[tuple[int, int]] = []

    class Client:
        host, port, protocol = "localhost", 1, "TLS 1.3"

        def __init__(self, *_: Any) -> None:
            pass

        def get(self, _: str) -> dict[str, Any]:
            return {}

        def predict(self, inputs: Any, _: Any, limit: int) -> dict[str, Any]:
            asked.append((len(inputs[TOKENS]), limit))
            return {"probabilities": [[1 / size] * size] * len(inputs[TOKENS])}

        def complete(self, prompt: str) -> str:
            return f"after {len(prompt)}"

    config = tmp_path / "service.json"
    config.write_text(json.dumps({"model": "orders", "limits": {"max_rows": 1024}}))
    monkeypatch.setattr(demo, "Client", Client)
    plain = load_rows
    monkeypatch.setattr(demo, "load_rows", lambda path, _, part: plain(path, None, part))
    monkeypatch.setattr(demo, "open_dataset", lambda path, _: open_dataset(path, None))
    ring = KeyRing.create(tmp_path / "ring")
    demo.run(config, orders.dataset, ring.path, draw=2, show=12)
    said = capsys.readouterr().out
    assert said.count("'after 128'") == 2
    assert f", {np.log(size):.4g} nats" in said
    ((count, limit),) = asked
    assert f"each of {count} held-out windows" in said
    assert limit == 64
