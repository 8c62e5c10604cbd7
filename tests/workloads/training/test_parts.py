"""Pieces of tensors: whoever wrote them, any other division reads the same numbers."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import checkpoint, parts
from falaj.workloads.training import record as records
from falaj.workloads.training.distributed import Team
from falaj.workloads.training.parts import Parts, Place, Whole, Writer
from falaj.workloads.training.pieces import Tensors

IDENTITY = "a" * 64
WEIGHT = {"module/weight": None}
ALONE = Team(0, 1, torch.device("cpu"))


def cuts(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size), max_size=3).map(lambda each: sorted({0, *each, size}))


@st.composite
def divided(draw: st.DrawFn) -> tuple[Tensor, list[Place], Place]:
    """A tensor, places that cover it, and one that is asked for."""
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    down, across = draw(cuts(rows)), draw(cuts(columns))
    places = [
        Place((top, left), (bottom - top, right - left))
        for top, bottom in pairwise(down)
        for left, right in pairwise(across)
    ]
    top, left = draw(st.integers(0, rows)), draw(st.integers(0, columns))
    sizes = (draw(st.integers(0, rows - top)), draw(st.integers(0, columns - left)))
    tensor = torch.arange(rows * columns).reshape(rows, columns).float()
    return tensor, draw(st.permutations(places)), Place((top, left), sizes)


def piece(tensor: Tensor, place: Place) -> Tensor:
    (top, left), (height, width) = place.offsets, place.sizes
    return tensor[top : top + height, left : left + width].clone()


@given(divided(), st.integers(0, 5))
def test_any_piece_is_put_together_of_any_others(
    tmp_path_factory: pytest.TempPathFactory, found: tuple[Tensor, list[Place], Place], rank: int
) -> None:
    tensor, places, wanted = found
    folder = tmp_path_factory.mktemp("parts")
    for number, each in enumerate(places):
        name = records.part_name("t", number)
        state = {"pieces": {"module/w": piece(tensor, each)}}
        checkpoint.save(folder / name, state, None, records.context_of(IDENTITY, name))
    index = [json.dumps({"module/w": [each.offsets, each.sizes]}) for each in places]
    source = Parts(folder, None, IDENTITY, {"token": "t", "index": index}, rank)
    assert source.shapes == {"module/w": tuple(tensor.shape)}
    assert torch.equal(source.read({"module/w": wanted})["module/w"], piece(tensor, wanted))
    assert torch.equal(source.read({"module/w": None})["module/w"], tensor)


def write(folder: Path, keyring: KeyRing | None, value: float) -> dict[str, object]:
    """A checkpoint of one process; returns what it says of its parts."""
    writer = Writer(folder, keyring, IDENTITY, ALONE)
    tensors = Tensors(nn.Linear(2, 2))
    pieces = {
        "module/weight": torch.full((2, 2), value), "optimiser/weight/step": torch.tensor(3.0),
    }  # fmt: skip
    writer.begin(pieces, tensors.places(pieces), {"groups": []}, {"position": {"epoch": 1}})
    assert writer.is_begun
    writer.finish()
    assert not writer.is_begun
    assert not writer.is_writing
    context = records.context_of(IDENTITY, records.CHECKPOINT)
    state = checkpoint.load(folder / records.CHECKPOINT, keyring, context)
    assert state["position"] == {"epoch": 1}
    return state["optimisation"][parts.PARTS]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_checkpoint_replaces_the_one_before_when_all_is_written(
    tmp_path: Path, sealed: bool
) -> None:
    keyring = KeyRing.create(tmp_path / "keys") if sealed else None
    folder = tmp_path / "run"
    folder.mkdir()
    write(folder, keyring, 1.0)
    said = write(folder, keyring, 2.0)
    assert len(list(folder.glob("checkpoint.*.*"))) == 1
    source = Parts(folder, keyring, IDENTITY, said, 0)
    found = source.read({"module/weight": None, "optimiser/weight/step": None})
    assert torch.equal(found["module/weight"], torch.full((2, 2), 2.0))
    assert found["optimiser/weight/step"] == 3.0


def test_a_damaged_foreign_or_missing_part_is_refused(tmp_path: Path) -> None:
    said = write(tmp_path, None, 1.0)
    (part,) = tmp_path.glob("checkpoint.*.*")
    data = part.read_bytes()
    part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(WorkloadError, match="is damaged"):
        Parts(tmp_path, None, IDENTITY, said, 0).read(WEIGHT)
    part.unlink()
    with pytest.raises(WorkloadError, match=part.name):
        Parts(tmp_path, None, IDENTITY, said, 0).read(WEIGHT)


def test_a_sealed_part_is_of_one_run_and_one_checkpoint(tmp_path: Path) -> None:
    keyring = KeyRing.create(tmp_path / "keys")
    said = write(tmp_path, keyring, 1.0)
    (part,) = tmp_path.glob("checkpoint.*.*")
    with pytest.raises(WorkloadError):
        Parts(tmp_path, keyring, "b" * 64, said, 0).read(WEIGHT)
    token = str(said["token"])
    other = token[:-1] + ("0" if token[-1] != "0" else "1")
    part.rename(tmp_path / part.name.replace(token, other))
    with pytest.raises(WorkloadError):
        Parts(tmp_path, keyring, IDENTITY, {**said, "token": other}, 0).read(WEIGHT)


def test_parts_that_cant_be_written_leave_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = write(tmp_path, None, 1.0)

    def full(*_: object) -> None:
        raise WorkloadError("no space")

    whole = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(WorkloadError, match="no space"):
        write(tmp_path, None, 2.0)
    monkeypatch.setattr(checkpoint, "save", whole)
    source = Parts(tmp_path, None, IDENTITY, said, 0)
    assert torch.equal(source.read(WEIGHT)["module/weight"], torch.full((2, 2), 1.0))


def test_a_whole_checkpoint_is_read_in_pieces() -> None:
    module = nn.Linear(3, 4)
    optimiser = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    state = {
        "module": module.state_dict(), "average": module.state_dict(),
        "best": module.state_dict(), "optimiser": optimiser.state_dict(),
        "optimised": ["weight", "bias"],
    }  # fmt: skip
    source = Whole(state)
    wanted = {"module/weight": Place((1, 0), (2, 3)), "optimiser/bias/step": None}
    found = source.read(wanted)
    assert torch.equal(found["module/weight"], module.weight[1:3])
    assert found["optimiser/bias/step"] == 1
    assert source.shapes["optimiser/weight/exp_avg"] == (4, 3)
    whole = parts.whole_of_parts(
        source, {"groups": [{"lr": 0.1}], "names": [["weight", "bias"]], "scheduler": {}},
        ["weight", "bias"],
    )  # fmt: skip
    again = torch.optim.AdamW(nn.Linear(3, 4).parameters())
    again.load_state_dict(whole["optimiser"])
    assert again.param_groups[0]["lr"] == 0.1


def test_a_checkpoint_of_an_earlier_version_isnt_gone_on_from_in_part() -> None:
    state = {"module": {}, "average": {}, "best": {}, "optimiser": {"state": {0: {}}}}
    with pytest.raises(WorkloadError, match="an earlier version"):
        Whole(state)
