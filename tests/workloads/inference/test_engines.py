"""A model in OpenVINO: what can't be, what ONNX Runtime does instead, and that both agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper

from falaj.workloads import engines
from falaj.workloads.engines import Engine, NoCandidateError, engine_of, graph_of, open_openvino
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.models import model
from falaj.workloads.inference.process import worker
from falaj.workloads.openvino_session import OpenVinoSession, StoppedError
from falaj.workloads.processor import relevant_cpu_flags
from tests.examples import examples
from tests.workloads.inference import models
from tests.workloads.inference.oip import KINDS, LIMITS
from tests.workloads.inference.serving import Site, call, row, started


def named(content: bytes, name: str = "openvino", precision: str = "f32") -> dict[str, Any]:
    """The manifest of a model that was measured here."""
    return models.fields(content) | {
        "quantisation": {
            "engine": {"name": name, "precision": precision}, "cpu_flags": relevant_cpu_flags(),
        }
    }  # fmt: skip


def load(content: bytes, manifest: dict[str, Any] | None = None) -> model.Model:
    return model.load(
        content, name="mlp", version="1", manifest=manifest or named(content), threads=1,
        limits=LIMITS,
    )  # fmt: skip


def labelled(names: list[str], keys: list[int] | None = None) -> bytes:
    """`x` FP32 (N,classes) -> `label` BYTES (N): the name of the largest."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["number"], axis=1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["number"], ["label"], domain="ai.onnx.ml",
            keys_int64s=keys or list(range(len(names))),
            values_strings=[name.encode() for name in names], default_string=b"?",
        ),
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "model", [value("x", TensorProto.FLOAT, ["batch", 3])],
        [value("label", TensorProto.STRING, ["batch"])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def foreign(operator: str, domain: str) -> bytes:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], domain=domain)], "model",
        [value("x", TensorProto.FLOAT, ["batch", 3])],
        [value("y", TensorProto.FLOAT, ["batch", 3])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def dynamic() -> bytes:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])]
    return models.model_of(
        nodes, [value("x", TensorProto.FLOAT, ["batch", 3])],
        [value("y", TensorProto.UINT8, ["batch", 3])], [],
    )  # fmt: skip


# -- what it can't run -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (models.table(), "knows no texts, and 'city' is one"),
        (labelled(["a", "b", "c"], keys=[2, 1, 0]), "knows no texts, and 'label' is one"),
        (foreign("Scaler", "ai.onnx.ml"), "no operator Scaler of ai.onnx.ml"),
        (foreign("FusedGemm", "com.microsoft"), "no operator FusedGemm of com.microsoft"),
        (dynamic(), "slower"),
    ],
)
def test_no_candidate(content: bytes, reason: str) -> None:
    with pytest.raises(NoCandidateError, match=reason):
        graph_of(content)


def test_a_graph_that_it_does_not_compile() -> None:
    graph = graph_of(models.mlp())
    broken = replace(graph, model=graph.model[:-40], texts={})
    with pytest.raises(NoCandidateError, match="OpenVINO can't load the model: "):
        open_openvino(broken, "f32", threads=1)


# -- what a manifest names ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest", [{}, {"quantisation": None}, {"quantisation": {"engine": None}},
                 {"quantisation": {"engine": {"name": "onnxruntime"}}}],
)  # fmt: skip
def test_packages_that_name_no_other_engine(manifest: dict[str, Any]) -> None:
    assert engine_of(manifest) == Engine("onnxruntime")


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"engine": {"name": "tflite", "precision": "f32"}}, "names 'tflite' .* isn't known here"),
        ({"engine": {"name": "openvino", "precision": "f8"}}, r"\('f8'\), which isn't known here"),
        ({"engine": "openvino"}, "names None"),
        ({"cpu_flags": ["sve"]}, "was chosen on a processor with sve; this one has"),
        ({"cpu_flags": None}, "with no extensions that are known"),
    ],
)
def test_what_is_not_as_it_was_measured_runs_in_onnx_runtime(
    changed: dict[str, Any], note: str, capfd: pytest.CaptureFixture[str]
) -> None:
    content = models.mlp()
    manifest = named(content)
    manifest["quantisation"] |= changed
    served = load(content, manifest)
    assert served.engine.name == "onnxruntime"
    assert served.engine.note in capfd.readouterr().err
    assert isinstance(served.session, onnxruntime.InferenceSession)
    assert served.row is not None
    assert re.search(note, served.engine.note)


_PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_KEYS = st.sampled_from(["engine", "name", "precision", "cpu_flags"])
_JSON = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner)
)


@given(_JSON)
def test_whatever_a_manifest_says_there_is_an_engine(stated: Any) -> None:
    found = engine_of({"quantisation": stated})
    assert found.name == "onnxruntime"


def test_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "falaj.workloads.openvino_session")
    monkeypatch.delattr("falaj.workloads.openvino_session")
    content = models.mlp()
    served = load(content)
    assert served.engine.name == "onnxruntime"
    assert "isn't installed here; it comes with the extra openvino" in served.engine.note
    assert "the engine is onnxruntime: " in capfd.readouterr().err
    with pytest.raises(NoCandidateError, match="isn't installed"):
        open_openvino(graph_of(content), "f32", threads=1)
    assert engines.openvino_version() is None


def test_a_graph_that_only_onnx_runtime_runs_is_served_and_it_is_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    served = load(models.table())
    assert served.engine.name == "onnxruntime"
    assert "openvino (f32), which can't run the model here: OpenVINO knows no texts" in str(
        served.engine
    )
    assert str(served.engine) in capfd.readouterr().err


@pytest.mark.parametrize("broken", ["graph_of", "open_openvino"])
def test_whatever_goes_wrong_there_the_model_is_served(
    broken: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise ValueError("out of the blue")

    monkeypatch.setattr(model, broken, fail)
    served = load(models.mlp())
    assert served.engine.name == "onnxruntime"
    assert "out of the blue" in capfd.readouterr().err


def test_a_model_that_fails_in_its_warm_up_there_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(OpenVinoSession, "run", fail)
    served = load(models.mlp())
    assert served.engine.name == "onnxruntime"
    assert "fails in its warm-up run: no such kernel" in served.engine.note


def test_a_model_that_is_not_the_manifests_is_refused_whatever_the_engine() -> None:
    with pytest.raises(InferenceError, match="inputs aren't the model's"):
        load(models.classifier(), named(models.mlp()))


# -- answers -----------------------------------------------------------------------------------


def both(content: bytes, feed: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    graph = graph_of(content)
    usual = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return open_openvino(graph, "f32", threads=1).run(None, feed), list(usual.run(None, feed))


@pytest.mark.parametrize(
    ("content", "name", "shape"),
    [(models.mlp(), "input", (64,)), (models.classifier(), "image", (1, 8, 8))],
)
@pytest.mark.parametrize("rows", [1, 3, 32])
def test_both_engines_agree(content: bytes, name: str, shape: tuple[int, ...], rows: int) -> None:
    values = np.random.default_rng(rows).standard_normal((rows, *shape)).astype(np.float32)
    for mine, other in zip(*both(content, {name: values}), strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"BYTES"}))
def test_numbers_of_every_type_come_back(kind: str) -> None:
    values = np.array([[0, 1], [1, 0], [1, 1]]).astype(
        helper.tensor_dtype_to_np_dtype(KINDS[kind])
    )
    found, usual = both(models.echo({"x": KINDS[kind]}, ("batch", 2)), {"x": values})
    assert (found[0].dtype, found[0].tolist()) == (usual[0].dtype, usual[0].tolist())


def test_names_of_classes_are_looked_up() -> None:
    content = labelled(["قمح", "barley", "ذرة"])
    found, usual = both(content, {"x": np.eye(3, dtype=np.float32)[[2, 0, 1]]})
    assert found[0].tolist() == usual[0].tolist() == ["ذرة", "قمح", "barley"]
    assert (found[0].dtype, found[0].shape) == (usual[0].dtype, usual[0].shape)
    described = graph_of(content)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for mine, other in ((described.inputs, session.get_inputs()),
                        (described.outputs, session.get_outputs())):  # fmt: skip
        assert [(x.name, x.type, x.shape) for x in mine] == [
            (x.name, x.type, x.shape) for x in other
        ]


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=3, max_size=3),
    arrays(np.float32, st.tuples(st.integers(1, 5), st.just(3)), elements=st.integers(-9, 9)),
)
@settings(max_examples=examples(25))
def test_whatever_names_classes_have_both_engines_say_them(names: list[str], rows: Any) -> None:
    found, usual = both(labelled(names), {"x": rows})
    assert found[0].tolist() == usual[0].tolist()


@pytest.mark.parametrize("streams", [1, 2])
def test_threads_and_runs_at_once_are_as_asked_for(streams: int) -> None:
    compiled = open_openvino(graph_of(models.mlp()), "f32", threads=1, streams=streams)._compiled
    found = [compiled.get_property(name) for name in ("INFERENCE_NUM_THREADS", "NUM_STREAMS")]
    assert found == [streams, streams]
    assert compiled.get_property("ENABLE_CPU_PINNING") is False


def test_precisions_are_as_asked_for() -> None:
    for precision, said in (("f32", "float32"), ("int8", "float32"), ("bf16", "bfloat16")):
        if precision in (*engines.openvino_precisions(), "int8"):
            compiled = open_openvino(graph_of(models.mlp()), precision, threads=1)._compiled
            assert said in str(compiled.get_property("INFERENCE_PRECISION_HINT"))


def test_a_worker_runs_as_many_at_once_as_the_cores_are_enough_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "available", lambda: 8)
    for workers, threads, runs in ((1, 1, 8), (2, 2, 2), (4, 4, 1)):
        configuration: Any = SimpleNamespace(workers=workers, threads=threads)
        assert worker.runs_at_once(configuration) == runs


def test_a_number_that_no_text_has_is_the_default() -> None:
    value = helper.make_tensor_value_info
    content = models.model_of(
        [helper.make_node("Identity", ["x"], ["y"])], [value("x", TensorProto.INT64, ["batch"])],
        [value("y", TensorProto.INT64, ["batch"])], [],
    )  # fmt: skip
    graph = graph_of(content)
    texts = {"y": np.array(["a", "b", "?"], dtype=object)}
    session = open_openvino(replace(graph, texts=texts), "f32", threads=1)
    (found,) = session.run(None, {"x": np.array([1, -1, 2, 0], dtype=np.int64)})
    assert found.tolist() == ["b", "?", "?", "a"]


def test_only_what_is_asked_for_in_its_order() -> None:
    session = open_openvino(graph_of(models.classifier()), "f32", threads=1)
    image = np.zeros((2, 1, 8, 8), np.float32)
    label, probabilities = session.run(["label", "probabilities"], {"image": image})
    assert (label.shape, probabilities.shape) == ((2,), (2, 64))
    assert len(session.run(["label"], {"image": image})) == 1


def test_requests_beside_each_other_keep_their_own_rows() -> None:
    session = open_openvino(graph_of(models.mlp()), "f32", threads=1, streams=2)
    usual = onnxruntime.InferenceSession(models.mlp(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(3)
    given = [random.standard_normal((size, 64)).astype(np.float32) for size in (1, 2, 5, 16) * 8]
    kept = [values.copy() for values in given]
    together = threading.Barrier(4)

    def ask(part: list[Any]) -> list[Any]:
        together.wait()
        return [session.run(None, {"input": values})[0] for values in part]

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(ask, [given[place::4] for place in range(4)]))
    for place, answers in enumerate(parts):
        for values, before, found in zip(given[place::4], kept[place::4], answers, strict=True):
            np.testing.assert_array_equal(values, before)
            np.testing.assert_allclose(found, usual.run(None, {"input": values})[0], atol=1e-5)


@pytest.mark.parametrize(
    "values", [np.zeros((1, 63), np.float32), np.zeros(64, np.float32), np.zeros((1, 64))]
)
def test_other_shapes_and_types_are_refused(values: Any) -> None:
    session = open_openvino(graph_of(models.mlp()), "f32", threads=1)
    with pytest.raises(ValueError, match=r"^input is float.* wanted is float32 \(-1, 64\)$"):
        session.run(None, {"input": values})
    assert session.run(None, {"input": np.zeros((1, 64), np.float32)})[0].shape == (1, 10)


class Told:
    """Options of a run whose end is asked for after it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def terminate(self) -> bool:
        self.looks -= 1
        return self.looks < 0


_SIGNALLED = """
import gc, os, signal, sys
from falaj.workloads.engines import graph_of, open_openvino, openvino_precisions
from tests.workloads.inference import models
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
openvino_precisions()
graph = graph_of(models.mlp())
sessions = [open_openvino(graph, "f32", threads=1) for _ in range(3)]
while sessions:
    sessions.pop(0)
    gc.collect()
    os.kill(os.getpid(), signal.SIGTERM)
assert len(came) == 3, came
"""


def test_signals_come_when_models_have_gone() -> None:
    """Each core of OpenVINO changes the stack that signals are handled on."""
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_a_run_that_is_told_to_stop() -> None:
    session = open_openvino(graph_of(models.counting()), "f32", threads=1)
    long = {"steps": np.array([[100_000]], np.int64)}
    with pytest.raises(StoppedError, match="before it began"):
        session.run(None, long, Told(0))
    with pytest.raises(StoppedError, match=r"told to stop$"):
        session.run(None, long, Told(1))
    short = {"steps": np.array([[3]], np.int64)}
    assert session.run(None, short, onnxruntime.RunOptions())[0].tolist() == [[6]]


# -- the server --------------------------------------------------------------------------------


def test_the_server_runs_what_the_manifest_names_and_says_what_it_runs(site: Site) -> None:
    content = models.mlp()
    first = site.publish(content, fields=named(content))
    elsewhere = named(content)
    elsewhere["quantisation"]["cpu_flags"] = ["sve"]
    random = np.random.default_rng(5)
    rows = [random.standard_normal(64).round(4).tolist() for _ in range(24)]

    def asked(server: Any, values: list[float]) -> list[float]:
        connection = server.connect("caller")
        status, answer = call(
            connection, "POST", "/v2/models/mlp/infer", token=site.token(), body=row(values)
        )
        assert status == 200, answer
        return answer["outputs"][0]["data"]

    watcher = site.token("observe")
    with started(site, first) as server:
        told = call(server.connect("caller"), "GET", "/v2/models/mlp/config", token=watcher)
        assert told[1]["backend"] == "openvino"
        assert told[1]["parameters"]["engine"]["string_value"] == "openvino (f32)"
        assert [each["engine"] for each in server.state()["workers"]] == ["openvino (f32)"]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda values: asked(server, values), rows))
        second = site.publish(content, fields=elsewhere)
        server.serving(second)
        server.wait(lambda s: all(w["version"] == second for w in s["workers"]), "both serve")
        told = call(server.connect("caller"), "GET", "/v2/models/mlp/config", token=watcher)
        assert told[1]["backend"] == "onnxruntime"
        said = told[1]["parameters"]["engine"]["string_value"]
        assert "was chosen on a processor with sve" in said
        usual = [asked(server, values) for values in rows]
        assert f"the engine is {said}" in server.errors.read_text()
    np.testing.assert_allclose(found, usual, rtol=0, atol=1e-5)
    events = [
        json.loads(line)
        for path in sorted(site.logs.glob("audit*"))
        for line in path.read_text().splitlines()
    ]
    serving = [each["engine"] for each in events if each.get("event") == "serving"]
    assert serving == ["openvino (f32)", said]
