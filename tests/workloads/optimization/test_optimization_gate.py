"""The decision between float and 8 bits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import (
    CLEAR_GAIN,
    Gate,
    Measured,
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


@given(accuracies, accuracies, latencies, latencies, bounds)
def test_accuracy_is_never_traded_beyond_the_bound_nor_for_nothing(
    before: float, after: float, slow: float, fast: float, bound: float
) -> None:
    decision = decide("accuracy", measured(before, slow), measured(after, fast), bound)
    within = 100 * (before - after) <= bound + 1e-6
    if not within or fast >= slow:
        assert decision.accepted == "float"
    if 100 * (before - after) <= bound and fast < slow * (1 - 2 * CLEAR_GAIN):
        assert decision.accepted == "int8"


@given(errors, errors, latencies, latencies, bounds)
def test_an_error_never_grows_beyond_the_bound(
    before: float, after: float, slow: float, fast: float, bound: float
) -> None:
    decision = decide("rmse", measured(before, slow), measured(after, fast), bound)
    if decision.accepted == "int8":
        assert fast < slow
        assert after <= before * (1 + bound / 100) * (1 + 1e-9)


@given(accuracies, latencies, bounds)
def test_as_fast_is_not_faster(score: float, latency: float, bound: float) -> None:
    same = measured(score, latency)
    assert decide("accuracy", same, same, bound).accepted == "float"


def test_a_gain_within_the_noise_is_not_faster() -> None:
    decision = decide("accuracy", measured(0.98, 100.0), measured(0.98, 99.0), 0.5)
    assert decision.accepted == "float"
    assert "not faster by 2 % or more" in decision.reason


@pytest.mark.parametrize("broken", [measured(math.nan, 1), measured(0.9, math.nan)])
def test_figures_of_a_broken_model_refuse_it(broken: Measured) -> None:
    assert decide("accuracy", measured(0.9), broken, 0.5).accepted == "float"


def test_the_reason_names_each_complaint_with_its_figures() -> None:
    reason = decide("accuracy", measured(0.98, 10), measured(0.90, 20), 0.5).reason
    assert "98.00 % to 90.00 %" in reason
    assert "0.5 points" in reason
    assert "10.0 to 20.0 µs" in reason


def test_only_what_is_wrong_is_complained_about() -> None:
    reason = decide("accuracy", measured(0.98, 10), measured(0.98, 20), 0.5).reason
    assert "not faster" in reason
    assert "more than" not in reason


def test_accepting_says_what_it_costs_and_gives() -> None:
    decision = decide("accuracy", measured(0.98, 20), measured(0.976, 10), 0.5)
    assert decision.accepted == "int8"
    assert "98.00 % to 97.60 %" in decision.reason


def test_a_loss_of_exactly_the_bound_is_allowed() -> None:
    assert decide("accuracy", measured(0.990, 2), measured(0.985, 1), 0.5).accepted == "int8"


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
