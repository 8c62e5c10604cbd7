"""What a server takes and refuses, how updates count, and what a restart keeps; wrong commands."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import secrets
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falaj.workloads.parameter_server import command, frames
from falaj.workloads.parameter_server import weights as held
from falaj.workloads.parameter_server.frames import Coding
from falaj.workloads.parameter_server.weights import (
    Allowance,
    Terms,
    TrainingEnded,
    UpdateRefused,
    Weights,
)
from falaj.workloads.training.loop import Position
from falaj.workloads.training.options import Parameters

PLAIN = Coding()
TERMS = Terms(
    mode="asynchronous", total=1_000, gather=1, staleness=3, power=0.5, explosion=20,
    outer_rate=0.7, outer_momentum=0.5,
)  # fmt: skip
PARAMETERS = Parameters(
    epochs=10, batch_size=32, learning_rate=0.01, weight_decay=0.0, patience=5, gradient_clip=1.0,
    label_smoothing=0.0, accumulation=1, seed=0, processes=1, precision="float32", device="cpu",
    class_weights="none", model="auto", width=4, checkpoint_every=1, threads=1,
)  # fmt: skip


def module() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def made(**changes: Any) -> Weights:
    return Weights(module(), PARAMETERS, replace(TERMS, **changes), PLAIN, PLAIN)


def filled(weights: Weights, value: float) -> dict[str, Tensor]:
    return {
        each.name: torch.full(each.shape, value if each.learned else 0.0)
        for each in weights.layout.entries
    }


def update(weights: Weights, value: float = 0.01, **changes: Any) -> bytes:
    head: dict[str, Any] = {
        "base": weights.version, "life": weights.life, "id": secrets.token_hex(16),
        "batches": 1, "rows": 32, "loss": 1.0, **changes,
    }  # fmt: skip
    tensors = changes.pop("tensors", filled(weights, value))
    head.pop("tensors", None)
    return frames.encode(frames.UPDATE, head, tensors, weights.layout, PLAIN)


def test_an_update_is_a_step_and_a_version() -> None:
    weights = made()
    before = copy.deepcopy(weights.module.state_dict())
    assert weights.take("a", update(weights)) == 1
    assert not torch.equal(before["0.weight"], weights.module.state_dict()["0.weight"])
    assert weights.message("a", 1, weights.life) is None
    data = weights.message("a", 0, weights.life)
    fields, found = frames.decode(data or b"", frames.WEIGHTS, weights.layout, PLAIN)
    assert (fields["version"], fields["done"], fields["total"]) == (1, 1, 1_000)
    assert torch.equal(found["0.weight"], weights.module.state_dict()["0.weight"])


def test_a_staler_update_than_the_bound_is_refused_and_the_oldest_allowed_is_taken() -> None:
    weights = made()
    for _ in range(4):
        weights.take("quick", update(weights))
    before = copy.deepcopy(weights.module.state_dict())
    with pytest.raises(UpdateRefused, match="4 versions behind, and at most 3") as refused:
        weights.take("slow", update(weights, base=0))
    assert refused.value.reason == held.STALE
    assert all(torch.equal(before[n], t) for n, t in weights.module.state_dict().items())
    weights.take("slow", update(weights, base=1))
    assert weights.ledgers["slow"].staleness == Counter({3: 1})
    assert weights.ledgers["slow"].refused == Counter({held.STALE: 1})
    assert max(each for one in weights.ledgers.values() for each in one.staleness) <= 3


@given(st.integers(0, 1_000), st.floats(0, 4))
def test_a_staler_update_never_counts_more(staleness: int, power: float) -> None:
    terms = replace(TERMS, power=power)
    assert terms.share(0) == 1
    assert 0 < terms.share(staleness + 1) <= terms.share(staleness) <= 1
    assert replace(TERMS, power=1.0).share(staleness) == pytest.approx(1 / (1 + staleness))


def test_staleness_scales_the_step_of_an_optimiser_that_ignores_scale() -> None:
    """AdamW's first step is the rate, whatever the gradient's size: half of it by half a share."""

    def moved(version: int) -> float:
        weights = made(power=1.0, gather=1)
        weights.version = version
        before = weights.module.state_dict()["0.weight"].clone()
        weights.take("a", update(weights, base=0))
        return float((weights.module.state_dict()["0.weight"] - before).abs().mean())

    assert moved(1) == pytest.approx(moved(0) / 2, rel=1e-3)


def test_gathered_updates_are_one_step_of_their_mean() -> None:
    """What is counted has gone through two batches in the one, and through one in the other."""
    one, two = made(gather=2, power=0.0, total=2_000), made(power=0.0)
    assert one.take("a", update(one, 0.01)) == 0
    assert one.take("b", update(one, 0.03)) == 1
    two.take("a", update(two, 0.02))
    ours, theirs = dict(one.module.named_parameters()), dict(two.module.named_parameters())
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)


def test_a_local_change_is_added_by_the_outer_rate_and_its_momentum() -> None:
    weights = made(mode="local", outer_rate=0.5, outer_momentum=0.5, power=0.0)
    before = weights.module.state_dict()["0.bias"].clone()
    weights.take("a", update(weights, 0.1, batches=50))
    # Nesterov's first step: rate * (1 + momentum) * change.
    moved = weights.module.state_dict()["0.bias"] - before
    assert torch.allclose(moved, torch.full((3,), 0.5 * 1.5 * 0.1), atol=1e-6)
    assert weights.done == 50


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=9
    )
)
def test_what_is_counted_is_as_if_all_batches_had_gone_through_one_after_the_other(
    seen: list[tuple[float, int, int]],
) -> None:
    """Whoever began where: a batch normalisation of momentum 0.1 keeps 0.9 with each batch."""
    weights = made(gather=2)
    expected = 1.0
    for variance, behind, batches in seen:
        changed = filled(weights, 0.001)
        changed["1.running_var"] = torch.full((3,), variance * (1 - 0.9**batches))
        base = max(0, weights.version - behind)
        weights.take("a", update(weights, tensors=changed, base=base, batches=batches))
        expected = 0.9**batches * expected + (1 - 0.9**batches) * variance
    weights.end()
    found = weights.module.state_dict()["1.running_var"]
    assert torch.allclose(found, torch.full((3,), expected), rtol=1e-4, atol=1e-4)


def test_an_update_whose_answer_was_lost_is_taken_once() -> None:
    weights = made()
    data = update(weights)
    assert [weights.take("a", data), weights.take("a", data)] == [1, 1]
    assert (weights.ledgers["a"].updates, weights.done) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "reason", "said"),
    [
        ({"value": math.nan}, held.NOT_FINITE, "0.weight holds what is no finite number"),
        ({"value": math.inf}, held.NOT_FINITE, "0.weight"),
        ({"loss": None}, held.NOT_FINITE, "the loss"),
        ({"value": 1e6}, held.EXPLODING, "most of it is in 0.weight"),
        ({"base": 7}, held.DAMAGED, "of version 7; the newest is 0"),
        ({"batches": 0}, held.DAMAGED, "of version 0"),
        ({"life": "0" * 32}, held.EARLIER, "before the server's restart"),
    ],
)
def test_what_can_not_be_is_refused_by_name_and_counted(
    changes: dict[str, Any], reason: str, said: str
) -> None:
    weights = made()
    before = copy.deepcopy(weights.module.state_dict())
    with pytest.raises(UpdateRefused, match=said) as refused:
        weights.take("a", update(weights, **changes))
    assert refused.value.reason == reason
    assert weights.ledgers["a"].refused == Counter({reason: 1})
    assert (weights.version, weights.ledgers["a"].updates) == (0, 0)
    assert all(torch.equal(before[n], t) for n, t in weights.module.state_dict().items())


def test_an_update_is_exploding_by_the_usual_norm_once_that_is_known() -> None:
    weights = made()
    for _ in range(8):
        weights.take("a", update(weights, 0.001))
    with pytest.raises(UpdateRefused, match="20 times the usual one"):
        weights.take("a", update(weights, 0.03))
    weights.take("a", update(weights, 0.015))


def test_nothing_is_taken_after_the_end_and_what_was_gathered_counts() -> None:
    weights = made(gather=5)
    weights.take("a", update(weights))
    weights.end()
    weights.end()
    assert weights.version == 1
    with pytest.raises(TrainingEnded):
        weights.take("a", update(weights))
    with pytest.raises(TrainingEnded):
        weights.message("a", 0, weights.life)


@pytest.mark.parametrize("mode", ["asynchronous", "local"])
def test_a_restarted_server_goes_on_where_its_checkpoint_was(mode: str, tmp_path: Path) -> None:
    first = made(mode=mode)
    for _ in range(3):
        first.take("a", update(first))
    first.save(tmp_path, None, b"x", Position(epoch=2), None)
    again = made(mode=mode)
    found = again.restore(tmp_path, None, b"x")
    assert found is not None
    assert found[0].epoch == 2
    assert (again.version, again.done, again.ledgers["a"].updates) == (3, 3, 3)
    with pytest.raises(UpdateRefused, match="before the server's restart"):
        again.take("a", update(again, life=first.life))
    # Both go on alike: the optimiser's state is kept as well.
    first.take("a", update(first))
    again.take("a", update(again))
    ours, theirs = first.module.state_dict(), again.module.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert made().restore(tmp_path / "none", None, b"x") is None


def test_a_worker_that_floods_has_one_request_at_a_time_and_so_many_a_second() -> None:
    allowance = Allowance(10)
    assert allowance.begin()
    assert not allowance.begin()
    allowance.end()
    allowed = 0
    for _ in range(1_000):
        if allowance.begin():
            allowed += 1
            allowance.end()
    assert 9 <= allowed < 1_000 // 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that commands run in, which leave the tests' signals alone."""
    monkeypatch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TOKENS = {"a": hashlib.sha256(b"x").hexdigest()}


@pytest.mark.parametrize(
    ("words", "tokens", "reason"),
    [
        (["--epochs", "0"], TOKENS, "--epochs is 0: allowed is 1"),
        (["--gather", "0"], TOKENS, "--gather is 0"),
        (["--staleness", "-1"], TOKENS, "--staleness is -1"),
        (["--local-steps", "5"], TOKENS, "--local-steps is of --mode local"),
        (["--top", "0.1"], TOKENS, "--top is of --compression top"),
        (["--compression", "top", "--top", "0.9"], TOKENS, "--top is 0.9: allowed is"),
        (["--epochs", "3", "--steps", "3"], TOKENS, "give one of them"),
        (["--listen", "here"], TOKENS, "--listen is 'here': allowed is host:port"),
        ([], {}, "names no worker"),
        ([], {"a": "secret"}, "must be its SHA-256"),
        ([], TOKENS, "can't use a, c and k for TLS"),
    ],
)
def test_a_wrong_server_is_refused(
    words: list[str], tokens: dict[str, str], reason: str, folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = folder / "workers.json"
    path.write_text(json.dumps(tokens), encoding="utf-8")
    common = ["--dataset", "none", "--authority", "a", "--certificate", "c", "--key", "k"]
    given_ = ["server", *common, "--output", "o", "--workers", str(path), *words]
    assert command.main(given_) == 2
    assert reason in capsys.readouterr().err


def test_a_worker_without_a_secret_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "token").write_text("short", encoding="utf-8")
    common = ["--dataset", "none", "--authority", "a", "--certificate", "c", "--key", "k"]
    server = ["--server", "127.0.0.1:1", "--token", str(folder / "token")]
    assert command.main(["worker", *common, *server]) == 2
    assert "at least 32 random ones" in capsys.readouterr().err
