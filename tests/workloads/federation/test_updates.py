"""What crosses between sites, averages, limits and noise; wrong command lines."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.federation import command, updates
from falaj.workloads.federation.updates import MessageError, Update
from falaj.workloads.training import checkpoint

LIKE = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}


def _tensors(value: float) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(tensor, value) for name, tensor in LIKE.items()}


def test_tensors_come_back_as_they_were() -> None:
    tensors, numbers = updates.decode(updates.encode(_tensors(0.5), rows=3, loss=0.25), LIKE)
    assert all(torch.equal(tensors[name], each) for name, each in _tensors(0.5).items())
    assert updates.numbers_of(numbers) == (3, 0.25)


@pytest.mark.parametrize(
    "state",
    [
        {"tensors": {"weight": torch.zeros(3, 2)}, "numbers": {}},
        {"tensors": {**LIKE, "rows": torch.zeros(9)}, "numbers": {}},
        {"tensors": {**LIKE, "bias": torch.zeros(4)}, "numbers": {}},
        {"tensors": {**LIKE, "bias": torch.tensor([0, 1, math.nan])}, "numbers": {}},
        {"tensors": {**LIKE, "bias": torch.zeros(3, dtype=torch.float64)}, "numbers": {}},
        {"tensors": {**LIKE, "bias": [0.0, 0.0, 0.0]}, "numbers": {}},
        {"tensors": LIKE, "numbers": {"loss": "a name"}},
        {"tensors": LIKE, "numbers": {}, "rows": "1,2,3"},
        {"tensors": LIKE},
        {},
    ],
)
def test_whatever_is_no_update_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(MessageError):
        updates.decode(checkpoint.encode(state), LIKE)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        updates.decode(data, LIKE)


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(MessageError, match="at most"):
        updates.decode(bytes(updates.largest(LIKE) + 1), LIKE)


@pytest.mark.parametrize("numbers", [{}, {"rows": 1.0}, {"rows": -1, "loss": 0}, {"age": 3}])
def test_an_update_has_rows_and_loss_and_no_other_number(numbers: dict[str, float]) -> None:
    with pytest.raises(MessageError):
        updates.numbers_of(numbers)


def test_sites_count_by_their_rows() -> None:
    found = updates.mean([Update(_tensors(1), 30, 0), Update(_tensors(5), 10, 0)])
    assert torch.equal(found["bias"], torch.full((3,), 2.0))
    equal = updates.mean([Update(_tensors(1), 0, 0), Update(_tensors(5), 0, 0)])
    assert torch.equal(equal["bias"], torch.full((3,), 3.0))


@given(st.floats(-1e3, 1e3, width=32), st.floats(0.01, 10))
def test_no_update_is_longer_than_the_limit(value: float, norm: float) -> None:
    found = updates.clipped(_tensors(value), norm)
    length = math.sqrt(sum(float(each.double().square().sum()) for each in found.values()))
    assert length <= norm * (1 + 1e-5)
    if 3 * abs(value) < norm:  # nine numbers: short enough already
        assert torch.equal(found["bias"], _tensors(value)["bias"])


def test_noise_has_the_deviation_that_was_asked_for() -> None:
    wide = {"weight": torch.zeros(200, 200)}
    found = updates.noised(wide, 0.5, torch.Generator().manual_seed(1))
    assert float(found["weight"].std()) == pytest.approx(0.5, rel=0.02)


def test_the_privacy_that_is_told_is_that_of_the_theorem() -> None:
    assert updates.privacy_spent(10, 0.0, 1e-5) is None
    # rho = 8/(2*4) = 1: epsilon = 1 + 2 sqrt(ln 1e5) = 7.786
    assert updates.privacy_spent(8, 2.0, 1e-5) == pytest.approx(7.786, abs=1e-3)


SITES = {"a": hashlib.sha256(b"x").hexdigest()}


@pytest.mark.parametrize(
    ("words", "sites", "reason"),
    [
        (["--rounds", "0"], SITES, "--rounds is 0"),
        (["--noise", "1"], SITES, "--noise without --clip"),
        (["--least-sites", "2"], SITES, "allowed is 1 to 1"),
        ([], {}, "names no site"),
        ([], {"a": "secret"}, "SHA-256"),
        ([], SITES, "dataset"),
    ],
)
def test_a_wrong_coordinator_is_refused(
    words: list[str], sites: dict[str, str], reason: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "sites.json"
    path.write_text(json.dumps(sites), encoding="utf-8")
    places = {
        "--dataset": "none", "--authority": "a", "--certificate": "c", "--key": "k",
        "--output": "o", "--sites": str(path),
    }  # fmt: skip
    given_ = [part for pair in places.items() for part in pair]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
        patch.chdir(tmp_path)
        assert command.main(["coordinator", *given_, *words]) == 2
    assert reason in capsys.readouterr().err
