"""OpenVINO beside ONNX Runtime: what is refused, what is chosen, and what a package says of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads import engines
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.models import model
from falaj.workloads.inference.settings import Limits
from falaj.workloads.optimization import engine_choice
from falaj.workloads.optimization.comparison import (
    CLEAR_GAIN,
    Choice,
    Decision,
    Measured,
    decide,
    open_session,
)
from falaj.workloads.optimization.engine_choice import EngineChoice, Tried, choose, graph_in
from falaj.workloads.optimization.export import PARITY_TOLERANCE
from falaj.workloads.training.checkpoint import load_rows

FLOAT, SMALL = Measured(0.9, 1000, 100.0), Measured(0.899, 300, 60.0)
USUAL: dict[Choice, Measured] = {"float": FLOAT, "int8": SMALL}
KEPT, ACCEPTED = Decision("float", "kept"), Decision("int8", "accepted")


def tried(score: float = 0.9, latency: float = 50.0, parity: float = 0.0) -> Tried:
    return Tried(Measured(score, 1000, latency), parity)


def chosen(
    decision: Decision = KEPT, asked: str = "auto", usual: dict[Choice, Measured] | None = None,
    **precisions: Tried,
) -> EngineChoice:  # fmt: skip
    return choose(
        asked, "accuracy", usual or USUAL, decision, tried=precisions, left_out={},
        bound_points=0.5,
    )  # fmt: skip


# -- what isn't chosen -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precisions", "refused", "why"),
    [
        ({"f32": tried(parity=2 * PARITY_TOLERANCE)}, "f32", "difference from the trained"),
        ({"f32": tried(parity=math.nan)}, "f32", "difference from the trained module's answers"),
        ({"bf16": tried()}, "bf16", "isn't known"),
        ({"f32": tried(parity=1.0), "bf16": tried()}, "bf16", "is 1 of the largest"),
        ({"f32": tried(score=0.894)}, "f32", "accuracy would be 89.40 %, of the float model 90"),
        ({"f32": tried(latency=200), "bf16": tried(score=math.nan)}, "bf16", "nan %"),
        ({"f32": tried(latency=200), "int8": tried(score=0.8)}, "int8", "would be 80.00 %"),
    ],
)
def test_a_model_that_loses_too_much(precisions: dict[str, Tried], refused: str, why: str) -> None:
    found = chosen(**precisions)
    assert found.engine == engines.USUAL
    assert found.measured is None
    assert why in found.left_out[refused]


def test_what_would_serve_elsewhere_has_to_be_accurate_enough_as_well() -> None:
    usual: dict[Choice, Measured] = {"float": FLOAT, "int8": Measured(0.85, 300, 60.0)}
    found = chosen(usual=usual, f32=tried(latency=200), int8=tried(latency=20))
    assert found.engine == engines.USUAL
    assert found.left_out["int8"].startswith("without OpenVINO the accuracy would be 85.00 %")


def test_one_that_is_hardly_faster() -> None:
    found = chosen(f32=tried(latency=99))
    assert found.engine == engines.USUAL
    assert "OpenVINO isn't faster by 2 % or more: its fastest (f32) takes 99.0 µs" in found.reason
    found = chosen(ACCEPTED, f32=tried(latency=80))
    assert "ONNX Runtime (int8) 60.0" in found.reason


def test_what_was_not_tried_is_the_reason() -> None:
    found = choose(
        "auto", "accuracy", USUAL, KEPT, tried={}, left_out={"openvino": "isn't installed"},
        bound_points=0.5,
    )  # fmt: skip
    assert found.reason == "ONNX Runtime runs it: isn't installed"
    assert found.to_json("accuracy")["left_out"] == {"openvino": "isn't installed"}


def test_one_that_is_asked_for_and_has_none_to_serve() -> None:
    with pytest.raises(WorkloadError, match="--engine openvino: no model can be served by it"):
        chosen(asked="openvino", f32=tried(score=0.5))


# -- what is -----------------------------------------------------------------------------------


def test_the_fastest_that_is_clearly_faster() -> None:
    found = chosen(f32=tried(latency=50), bf16=tried(0.899, 40), int8=tried(0.899, 39.5))
    # 8 bits gain too little over bfloat16 for what they may lose.
    assert (found.engine.name, found.engine.precision) == ("openvino", "bf16")
    assert "OpenVINO (bf16) takes 40.0 µs a row where ONNX Runtime (float) takes 100.0" in (
        found.reason
    )
    assert graph_in(found, ACCEPTED).accepted == "float"
    small = chosen(ACCEPTED, f32=tried(latency=90), int8=tried(0.899, 30))
    assert small.engine.precision == "int8"
    assert graph_in(small, KEPT) == Decision("int8", small.reason)


def test_only_the_graph_that_is_asked_for() -> None:
    found = choose(
        "openvino", "accuracy", {"float": FLOAT, "int4": SMALL}, Decision("int4", "asked for"),
        tried={"f32": tried(latency=5), "int4": tried(0.899, 200)},
        left_out={"f32": "not asked for"}, bound_points=0.5,
    )  # fmt: skip
    assert found.engine.precision == "int4"
    assert graph_in(found, KEPT).accepted == "int4"


def test_one_that_is_asked_for_need_not_be_faster() -> None:
    found = chosen(asked="openvino", f32=tried(latency=500))
    assert (found.engine.name, found.engine.precision) == ("openvino", "f32")


_SCORES = st.floats(0, 1) | st.just(math.nan)
_TRIED = st.builds(
    tried, _SCORES, st.floats(0.1, 1e4), st.sampled_from([0.0, 1e-6, 1e-3, math.nan])
)


@given(
    st.dictionaries(st.sampled_from(engines.PRECISIONS), _TRIED),
    st.builds(Measured, st.floats(0, 1), st.just(1), st.floats(0.1, 1e4)),
    st.builds(Measured, _SCORES, st.just(1), st.floats(0.1, 1e4)),
    st.floats(0, 100),
)
def test_whatever_is_chosen_loses_little_and_gains_clearly(
    precisions: dict[str, Tried], original: Measured, small: Measured, bound: float
) -> None:
    usual: dict[Choice, Measured] = {"float": original, "int8": small, "int4": small}
    decision = decide("accuracy", original, {"int8": small, "int4": small}, bound)
    found = choose(
        "auto", "accuracy", usual, decision, tried=precisions, left_out={}, bound_points=bound
    )
    if found.measured is None:
        assert graph_in(found, decision) == decision
        return
    assert found.measured.latency_us <= usual[decision.accepted].latency_us * (1 - CLEAR_GAIN)
    for measured in (found.measured, usual[graph_in(found, decision).accepted]):
        assert 100 * (original.score - measured.score) <= bound + 1e-6
    assert precisions["f32"].parity <= PARITY_TOLERANCE


# -- the command -------------------------------------------------------------------------------


def test_one_that_is_not_installed(
    digits: Any, optimise: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "has_openvino", lambda: False)
    output = tmp_path / "out"
    done = optimise(digits.path, digits.dataset, output, "--engine", "openvino")
    assert done.returncode == 2
    assert "--engine openvino: openvino isn't installed here" in done.stderr
    assert "or take --engine auto" in done.stderr
    assert not output.exists()
    done = optimise(digits.path, digits.dataset, output, "--quantise", "never", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["reason"] == "kept float: 8 bits were not asked for (--quantise never)"
    assert record["engine"] == {
        "name": "onnxruntime", "asked": "auto", "precision": None, "version": None,
        "candidates": {},
        "reason": f"ONNX Runtime runs it: {engines.NOT_INSTALLED}",
        "left_out": {"openvino": engines.NOT_INSTALLED},
    }  # fmt: skip


def test_a_table_with_texts_is_no_candidate(customers: Any, optimise: Any, tmp_path: Path) -> None:
    refused = optimise(
        customers.path, customers.dataset, tmp_path / "a", "--quantise", "never",
        "--engine", "openvino", "--accept", "any",
    )  # fmt: skip
    assert refused.returncode == 2
    assert "no model can be served by it (f32: OpenVINO knows no texts" in refused.stderr
    assert not (tmp_path / "a").exists()
    done = optimise(
        customers.path, customers.dataset, tmp_path / "b", "--quantise", "never", "--json",
        "--accept", "any",
    )  # fmt: skip
    record = json.loads(done.stdout)
    assert record["engine"]["name"] == "onnxruntime"
    assert "OpenVINO knows no texts" in record["engine"]["left_out"]["f32"]
    assert record["engine"]["reason"] in done.stderr


def test_only_onnx_runtime(digits: Any, optimise: Any, tmp_path: Path) -> None:
    done = optimise(
        digits.path, digits.dataset, tmp_path / "out", "--quantise", "never", "--json",
        "--engine", "onnxruntime",
    )  # fmt: skip
    record = json.loads(done.stdout)
    assert record["engine"]["candidates"] == {}
    assert record["engine"]["left_out"] == {"openvino": "not asked for (--engine onnxruntime)"}


def test_what_is_packaged_names_it_and_is_served_by_it(
    digits: Any, optimise: Any, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    done = optimise(digits.path, digits.dataset, output, "--engine", "openvino")
    assert done.returncode == 0, done.stderr
    record = json.loads((output / "optimization.json").read_text())
    engine = record["engine"]
    assert engine["name"] == "openvino"
    tried = [name for name in engines.PRECISIONS if name not in engine["left_out"]]
    assert set(tried) <= set(engine["candidates"])
    assert f"engine: {engine['reason']}" in done.stdout
    for name, figures in engine["candidates"].items():
        assert f"candidate {name} in OpenVINO: accuracy" in done.stdout
        assert figures["latency_us"] > 0
    assert engine["candidates"]["f32"]["parity"] <= PARITY_TOLERANCE
    served = engine["candidates"][engine["precision"]]
    assert record["served"] == {key: served[key] for key in record["served"]}
    fields = json.loads((output / "fields.json").read_text())
    assert fields["quantisation"]["engine"] == engine
    assert fields["metrics"]["served"]["accuracy"] == served["accuracy"]
    card = (output / "card.html").read_text()
    assert f"OpenVINO ({engine['precision']})" in card
    content = (output / "model.onnx").read_bytes()
    loaded = model.load(
        content, name="digits", version="1", manifest=fields, threads=1, limits=Limits()
    )
    assert str(loaded.engine) == f"openvino ({engine['precision']})"
    image = load_rows(digits.dataset, None, "held_out").inputs["image"][:64]
    names = ["probabilities", "label"]
    usual = open_session(content).run(names, {"image": image})
    found = loaded._run(names, {"image": image})
    np.testing.assert_allclose(found[0], usual[0], rtol=0, atol=0.05)
    assert float(np.mean(found[1] == usual[1])) > 0.95


def test_a_model_that_fails_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def run(self, *given: Any) -> None:
            raise RuntimeError("no such kernel")

    with pytest.raises(engines.NoCandidateError, match="fails on held-out rows: no such kernel"):
        engine_choice._answering(Failing(), {})  # type: ignore[arg-type]
