"""The decision between float, 8 bits and 4."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import (
    CLEAR_GAIN,
    Choice,
    Decision,
    Gate,
    Measured,
    Metric,
    check_bound,
    decide,
    loss_points,
)

accuracies = st.floats(0, 1)
errors = st.floats(0, 1e6)
latencies = st.floats(0.1, 1e6)
bounds = st.floats(0, 100)


def measured(score: float, latency_us: float = 10.0) -> Measured:
    return Measured(score, 1_000, latency_us)


def decided(metric: Metric, before: Measured, after: Measured, bound: float) -> Decision:
    return decide(metric, before, {"int8": after}, bound)


@given(accuracies, accuracies, latencies, latencies, bounds)
def test_accuracy_is_never_traded_beyond_the_bound_nor_for_nothing(
    before: float, after: float, slow: float, fast: float, bound: float
) -> None:
    decision = decided("accuracy", measured(before, slow), measured(after, fast), bound)
    within = 100 * (before - after) <= bound + 1e-6
    if not within or fast >= slow:
        assert decision.accepted == "float"
    if 100 * (before - after) <= bound and fast < slow * (1 - 2 * CLEAR_GAIN):
        assert decision.accepted == "int8"


@given(errors, errors, latencies, latencies, bounds)
def test_an_error_never_grows_beyond_the_bound(
    before: float, after: float, slow: float, fast: float, bound: float
) -> None:
    decision = decided("rmse", measured(before, slow), measured(after, fast), bound)
    if decision.accepted == "int8":
        assert fast < slow
        assert after <= before * (1 + bound / 100) * (1 + 1e-9)


@given(accuracies, latencies, bounds)
def test_as_fast_is_not_faster(score: float, latency: float, bound: float) -> None:
    same = measured(score, latency)
    assert decided("accuracy", same, same, bound).accepted == "float"


def test_a_gain_within_the_noise_is_not_faster() -> None:
    decision = decided("accuracy", measured(0.98, 100.0), measured(0.98, 99.0), 0.5)
    assert decision.accepted == "float"
    assert "not faster by 2 % or more" in decision.reason


@pytest.mark.parametrize("broken", [measured(math.nan, 1), measured(0.9, math.nan)])
def test_figures_of_a_broken_model_refuse_it(broken: Measured) -> None:
    assert decided("accuracy", measured(0.9), broken, 0.5).accepted == "float"


def test_the_reason_names_each_complaint_with_its_figures() -> None:
    reason = decided("accuracy", measured(0.98, 10), measured(0.90, 20), 0.5).reason
    assert "98.00 % to 90.00 %" in reason
    assert "0.5 points" in reason
    assert "10.0 to 20.0 µs" in reason


def test_only_what_is_wrong_is_complained_about() -> None:
    reason = decided("accuracy", measured(0.98, 10), measured(0.98, 20), 0.5).reason
    assert "not faster" in reason
    assert "more than" not in reason


def test_accepting_says_what_it_costs_and_gives() -> None:
    decision = decided("accuracy", measured(0.98, 20), measured(0.976, 10), 0.5)
    assert decision.accepted == "int8"
    assert "98.00 % to 97.60 %" in decision.reason


@given(
    st.tuples(errors, latencies), st.tuples(errors, latencies), st.tuples(errors, latencies),
    st.floats(0, 20),
)  # fmt: skip
def test_what_is_accepted_of_several_loses_little_and_no_accurate_one_is_clearly_faster(
    original: tuple[float, float], eight: tuple[float, float], four: tuple[float, float],
    bound: float,
) -> None:  # fmt: skip
    every = {"float": original, "int8": eight, "int4": four}
    figures = {name: measured(*each) for name, each in every.items()}
    accepted = decide(
        "nats_per_character", figures["float"], {"int8": figures["int8"], "int4": figures["int4"]},
        bound,
    ).accepted  # fmt: skip
    accurate = {
        name: each.latency_us
        for name, each in figures.items()
        if name == "float" or each.score <= original[0] * (1 + bound / 100) * (1 - 1e-9)
    }
    if accepted != "float":
        assert every[accepted][0] <= original[0] * (1 + bound / 100) * (1 + 1e-9)
        assert every[accepted][1] < original[1]
    least = min(accurate.values())
    # Two steps, each of which is no clear gain, may be one together.
    assert every[accepted][1] * (1 - CLEAR_GAIN) ** 2 <= least * (1 + 1e-9)


def test_four_bits_are_accepted_and_what_speaks_against_eight_is_said() -> None:
    smaller: dict[Choice, Measured] = {"int8": measured(1.001, 12), "int4": measured(1.02, 5)}
    decision = decide("nats_per_character", measured(1.0, 10), smaller, 3)
    assert decision.accepted == "int4"
    assert decision.reason == (
        "accepted 4 bits: nats_per_character from 1 to 1.02, within 3 per cent, and faster on "
        "this machine (10.0 to 5.0 µs a row); 8 bits are not faster on this machine (10.0 to "
        "12.0 µs a row)"
    )


def test_four_bits_have_to_be_clearly_faster_than_eight() -> None:
    decision = decide(
        "nats_per_character", measured(1.0, 10),
        {"int8": measured(1.0, 5), "int4": measured(1.0, 4.99)}, 3,
    )  # fmt: skip
    assert decision.accepted == "int8"
    assert "4 bits are not faster by 2 % or more than 8 bits on this machine" in decision.reason


def test_what_is_asked_for_need_not_be_faster_and_has_to_be_accurate() -> None:
    slow: dict[Choice, Measured] = {"int4": measured(1.02, 20)}
    decision = decide("nats_per_character", measured(1.0, 10), slow, 3, asked="int4")
    assert decision.accepted == "int4"
    assert "and as they were asked for (10.0 to 20.0 µs a row)" in decision.reason
    with pytest.raises(
        WorkloadError, match=r"--quantise int4: with 4 bits .* more than the 1 per"
    ):
        decide("nats_per_character", measured(1.0, 10), slow, 1, asked="int4")
    with pytest.raises(WorkloadError, match=r"--quantise int8: 8 bits: no ranges\. Allow more"):
        decide("accuracy", measured(1), {}, 1, refused={"int8": "8 bits: no ranges"}, asked="int8")


def test_a_loss_of_exactly_the_bound_is_allowed() -> None:
    assert decided("accuracy", measured(0.990, 2), measured(0.985, 1), 0.5).accepted == "int8"


def test_any_error_is_infinitely_more_than_none() -> None:
    assert loss_points("rmse", 0.0, 1e-9) == math.inf
    assert loss_points("rmse", 0.0, 0.0) == 0


@pytest.mark.parametrize("points", [-0.1, 100.1, math.nan, math.inf])
def test_an_impossible_bound_is_refused(points: float) -> None:
    with pytest.raises(WorkloadError, match=r"--max-accuracy-drop is .*allowed is 0 to 100"):
        check_bound(points)


# -- what the model has to be worth --------------------------------------------------------------


@given(accuracies, accuracies)
def test_a_model_passes_with_the_accuracy_that_is_demanded(score: float, least: float) -> None:
    if score >= least:
        Gate(least_accuracy=least).check("accuracy", score)
    elif score < least - 1e-6:
        with pytest.raises(WorkloadError, match="doesn't pass the gate"):
            Gate(least_accuracy=least).check("accuracy", score)


@given(errors, errors)
def test_a_model_passes_with_the_error_that_is_allowed(score: float, most: float) -> None:
    if score <= most:
        Gate(most_rmse=most).check("rmse", score)
    elif score > most + 1e-6:
        with pytest.raises(WorkloadError, match="doesn't pass the gate"):
            Gate(most_rmse=most).check("rmse", score)


def test_a_broken_model_passes_no_gate() -> None:
    with pytest.raises(WorkloadError, match="doesn't pass the gate"):
        Gate(least_accuracy=0).check("accuracy", math.nan)
    with pytest.raises(WorkloadError, match="doesn't pass the gate"):
        Gate(most_rmse=1e12).check("rmse", math.inf)
    with pytest.raises(WorkloadError, match="doesn't pass the gate"):
        Gate(most_nats=100).check("nats_per_character", math.nan)


def test_a_gate_of_the_other_metric_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"--most-rmse was given, but .* is accuracy"):
        Gate(most_rmse=1).check("accuracy", 1.0)
    with pytest.raises(WorkloadError, match=r"--least-accuracy was given, but .* is rmse"):
        Gate(least_accuracy=0.1).check("rmse", 0.0)
    with pytest.raises(WorkloadError, match=r"--most-nats was given, but .* is rmse: --most-rmse"):
        Gate(most_nats=1).check("rmse", 0.0)
    with pytest.raises(WorkloadError, match=r"--most-rmse was given, but .*: --most-nats"):
        Gate(most_rmse=1).check("nats_per_character", 0.0)


@pytest.mark.parametrize(
    "gate", [Gate(least_accuracy=90), Gate(most_rmse=-1), Gate(most_nats=101), Gate(math.nan)]
)
def test_an_impossible_gate_is_refused(gate: Gate) -> None:
    with pytest.raises(WorkloadError, match="allowed is 0 to"):
        gate.check_options()
