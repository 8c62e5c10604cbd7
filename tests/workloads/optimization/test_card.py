"""The card of a model: what it says is true, and whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.optimization import card_text
from falaj.workloads.optimization.card import MOST_CLASSES, figures


def test_the_area_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(1)
    answers = random.dirichlet(np.ones(3), 200).round(1)  # with ties
    labels = random.integers(0, 3, 200)
    wanted = np.mean([roc_auc_score(labels == each, answers[:, each]) for each in range(3)])
    assert figures(answers, labels, ["a", "b", "c"])["auc"] == pytest.approx(wanted)


def test_gpus_say_how_idle_they_were_and_what_was_wrong() -> None:
    sick = {"anomalies": ["GPU 1 reported error XID 79"]}
    assert card_text.gpus({"gpus": [{"idle_share": 0.123, "anomalies": []}, sick]}) == [
        ("GPU 0", "idle for 12% of the training"),
        ("of the training", "GPU 1 reported error XID 79"),
    ]
    assert card_text.gpus({}) == []


def test_a_class_that_no_row_has_leaves_no_area() -> None:
    answers = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert figures(answers, np.array([0, 0]), ["a", "b"])["auc"] is None


def test_calibration_is_the_mean_probability_beside_the_share() -> None:
    answers = np.array([[0.9, 0.1]] * 95 + [[0.4, 0.6]] * 5)
    card = figures(answers, np.array([0] * 95 + [1] * 5), ["no", "yes"])
    assert card["calibration"]["yes"] == {
        "mean_probability": pytest.approx(0.125), "share": pytest.approx(0.05),
    }  # fmt: skip
    assert card["confusion"] == [[95, 0], [0, 5]]
    assert card["calibration_error"] == pytest.approx(0.1 * 0.95 + 0.4 * 0.05, abs=0.02)


def test_many_classes_have_no_matrix() -> None:
    classes = [str(number) for number in range(MOST_CLASSES + 1)]
    card = figures(np.eye(len(classes)), np.arange(len(classes)), classes)
    assert "confusion" not in card


def test_a_regression_has_its_share_of_the_variance_and_its_errors() -> None:
    truth = np.arange(100.0)
    card = figures((truth + 2)[:, None], truth, None)
    assert card["residuals"]["mean"] == pytest.approx(2)
    assert card["residuals"]["quantiles"]["0.95"] == pytest.approx(2)
    assert card["r2"] == pytest.approx(1 - 4 / truth.var())


FIELDS: dict[str, Any] = {
    "classes": ["<b>no</b>", "yes"],
    "dataset": {
        "target": "left", "digest": "ab" * 32, "source": {"name": "t.csv"},
        "rows": {"train": 80, "held_out": 20},
        "features": [{"name": "visits", "kind": "numeric"}],
        "excluded": [{"name": "customer", "reason": "it looks like an identifier"}],
    },
    "metrics": {
        "worth": {
            "guess": "always saying 'no'", "model": {"accuracy": 0.9, "log_loss": 0.2},
            "baseline": {"accuracy": 0.8, "log_loss": 0.5}, "refusals": [], "notes": [],
            "served": None,
        },
        "card": {
            "rows": 20, "auc": 0.91, "calibration_error": 0.02, "confusion": [[15, 1], [1, 3]],
            "calibration": {"yes": {"mean_probability": 0.21, "share": 0.2}},
            "trained": "2026-11-26T03:00:00+00:00", "machine": "a processor",
            "model": "trees",
        },
    },
}  # fmt: skip


def test_the_card_names_figures_columns_and_where_it_comes_from() -> None:
    said = dict(card_text.lines(FIELDS))
    assert said["held-out accuracy"] == "90.00 % (guessing: 80.00 %, always saying 'no')"
    assert said["mean probability of 'yes'"] == "0.210 (its share: 0.200)"
    assert said["left out: customer"] == "it looks like an identifier"
    assert said["columns used"] == "visits (numeric)"
    assert said["dataset"].endswith("abababababababab")
    assert said["AUC"] == "0.910"
    assert said["model"] == "gradient-boosted trees"


def test_names_of_columns_do_not_steer_a_terminal() -> None:
    features = [{"name": "a\x1b]0;b\n\u202ec", "kind": "numeric"}]
    said = dict(card_text.lines(FIELDS | {"dataset": FIELDS["dataset"] | {"features": features}}))
    assert said["columns used"] == r"a\x1b]0;b\n\u202ec (numeric)"


def test_the_card_says_what_was_compared_by_fold_and_why_one_was_kept() -> None:
    card = FIELDS["metrics"]["card"] | {
        "judged": {
            "figure": "log loss", "folds": 2, "rows": 80, "reason": "trees: the lowest loss",
            "losses": {
                "linear": {"mean": 0.5, "folds": [0.4, 0.6], "spread": 0.14142},
                "trees": {"mean": 0.25, "folds": [0.25, 0.25], "spread": 0.0},
            },
        },
        "calibrated": {"rows": 80, "before": 0.3, "after": 0.25},
    }  # fmt: skip
    said = dict(card_text.lines(FIELDS | {"metrics": FIELDS["metrics"] | {"card": card}}))
    assert said["compared: linear"] == (
        "log loss 0.5 ± 0.14 between folds (0.4, 0.6), on 2 folds of 80 rows"
    )
    assert said["kept"] == "trees: the lowest loss"
    assert said["calibrated"].endswith("whose log loss went from 0.3 to 0.25")
    alone = {"mean": 0.25, "folds": [0.25], "spread": None}
    card["judged"] |= {"folds": 1, "losses": {"trees": alone}}
    said = dict(card_text.lines(FIELDS | {"metrics": FIELDS["metrics"] | {"card": card}}))
    assert said["compared: trees"] == "log loss 0.25, on 80 rows for validation"


def test_the_card_says_who_left_the_comparison() -> None:
    one = {"mean": 0.25, "folds": [0.25], "spread": None}
    card = FIELDS["metrics"]["card"] | {
        "judged": {
            "figure": "log loss", "folds": 1, "rows": 500, "reason": "trees: the lowest loss",
            "losses": {"linear": {**one, "chance": 0.004}, "network": {**one, "chance": 1e-40}},
        },
    }  # fmt: skip
    said = dict(card_text.lines(FIELDS | {"metrics": FIELDS["metrics"] | {"card": card}}))
    assert said["compared: linear"] == (
        "log loss 0.25, on 1 fold of 500 rows; left after 1 of them: at most 0.4 % likely to be "
        "kept"
    )
    assert said["compared: network"].endswith("at most 0.01 % likely to be kept")


def test_a_package_of_before_has_none() -> None:
    assert card_text.lines({"metrics": {}}) == []


def test_the_page_loads_nothing_and_holds_no_markup_of_others() -> None:
    page = card_text.page(FIELDS)
    assert "<b>no</b>" not in page
    assert "&lt;b&gt;no&lt;/b&gt;" in page
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
def test_what_was_optimised_has_its_card(optimised: Path) -> None:
    fields = json.loads((optimised / "fields.json").read_text())
    card = fields["metrics"]["card"]
    assert card["rows"] == 359 == sum(map(sum, card["confusion"]))
    served = fields["metrics"]["served"]["accuracy"]
    assert sum(row[place] for place, row in enumerate(card["confusion"])) / 359 == pytest.approx(
        served
    )
    page = (optimised / "card.html").read_text(encoding="utf-8")
    assert page == card_text.page(fields)


def test_the_card_tells_times_to_a_person_and_none_on_its_page() -> None:
    engine = {
        "name": "openvino", "precision": "bf16",
        "left_out": {"int8": "too wrong", "openvino": "not installed"},
        "candidates": {"bf16": {"latency_us": 1234.5, "size_bytes": 9_000, "accuracy": 0.9}},
    }  # fmt: skip
    fields = FIELDS | {
        "quantisation": {
            "metric_name": "accuracy", "int8": None, "engine": engine, "accepted": "float",
            "float": {"latency_us": 2000, "size_bytes": 9_000, "accuracy": 0.91}, "threads": 1,
        }
    }  # fmt: skip
    told = dict(card_text.lines(fields))
    assert told["runs in"] == "OpenVINO (bf16)"
    assert told["candidate float"] == (
        "accuracy 91.00 %, 9,000 bytes, 2,000.0 µs a row with 1 thread(s)"
    )
    assert told["candidate bf16 in OpenVINO"] == (
        "accuracy 90.00 %, 9,000 bytes, 1,234.5 µs a row with 1 thread(s) (served)"
    )
    assert told["no candidate int8 in OpenVINO"] == "too wrong"
    assert "not installed" not in told.values(), "which is no news where nobody asked for it"
    page = card_text.page(fields)
    assert "OpenVINO (bf16)" in page
    assert "accuracy 90.00 %, 9,000 bytes (served)" in page
    assert "µs" not in page


_MEASURED = st.builds(
    lambda score, size, time: {"accuracy": score, "size_bytes": size, "latency_us": time},
    st.sampled_from([0.5, 0.9, 0.91]), st.integers(1, 3), st.sampled_from([7.0, 8.0, 8.5]),
)  # fmt: skip


@given(one=_MEASURED, other=_MEASURED)
def test_a_candidate_is_dominated_only_by_one_that_is_no_worse_in_anything(
    one: dict[str, float], other: dict[str, float]
) -> None:
    found = card_text.dominates("accuracy", one, other)
    assert found == (
        one != other
        and one["accuracy"] >= other["accuracy"]
        and one["size_bytes"] <= other["size_bytes"]
        and one["latency_us"] <= other["latency_us"]
    )
    assert not (found and card_text.dominates("accuracy", other, one))
    assert card_text.dominates("rmse", {**one, "rmse": 1.0}, {**one, "rmse": 2.0})


def test_the_card_has_each_candidates_score_size_and_time() -> None:
    quantisation = {
        "accepted": "float", "metric_name": "accuracy", "threads": 1, "reason": "kept float",
        "float": {"accuracy": 0.9, "size_bytes": 9_000, "latency_us": 8.0},
        "int8": {"accuracy": 0.8, "size_bytes": 12_000, "latency_us": 9.5},
        "int4": {"accuracy": 0.89, "size_bytes": 2_000, "latency_us": 5},
        "engine": {"left_out": {"int4": "88 rows"}},
    }  # fmt: skip
    found = dict(card_text.candidates(quantisation))
    assert found["candidate float"] == (
        "accuracy 90.00 %, 9,000 bytes, 8.0 µs a row with 1 thread(s) (served)"
    )
    assert found["candidate int8"].endswith(
        "9.5 µs a row with 1 thread(s) (float is better in all; int4 is better in all)"
    )
    assert (
        found["candidate int4"] == "accuracy 89.00 %, 2,000 bytes, 5.0 µs a row with 1 thread(s)"
    )
    assert found["no candidate int4 in OpenVINO"] == "88 rows"
    # What was measured has one row, whether it may be chosen or not.
    measured = {"accuracy": 0.7, "size_bytes": 2_000, "latency_us": 4.0}
    tried = {"candidates": {"int8": measured}, "left_out": {"int8": "too wrong"}}
    rows = card_text.candidates({**quantisation, "engine": tried})
    assert [text for label, text in rows if "int8 in OpenVINO" in label] == [
        "accuracy 70.00 %, 2,000 bytes, 4.0 µs a row with 1 thread(s) (not chosen: too wrong)"
    ]
    assert "not chosen" not in str(
        card_text.candidates({**quantisation, "engine": tried}, measured=False)
    )
    # Of other models than those of language, which never have one, it is no news.
    others = card_text.candidates({**quantisation, "int4": None})
    assert "no candidate int4 in OpenVINO" not in dict(others)
    assert card_text.candidates({"accepted": "float"}) == []
