"""A language model: the text that it learns from, the decoder, and a run that is stopped."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.bounds import DECODER
from falaj.workloads.errors import STOPPED, WorkloadError
from falaj.workloads.federation.plan import Plan, task_of
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import batches, language, snapshot, sweep
from falaj.workloads.training import command as training
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import record as records
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.launcher import resolve
from falaj.workloads.training.models import Architecture
from falaj.workloads.training.options import Requested
from falaj.workloads.training.stopping import StopRequest
from tests.examples import examples
from tests.workloads.optimization.conftest import Done, called

WORDS = ("قهوة", "شاي", "تمر", "coffee", "tea", "dates")
SMALL = ("--device", "cpu", "--threads", "1", "--width", "16", "--epochs", "2", "--seed", "5")


def _text(words: int) -> str:
    chosen = random.Random(3)
    return " ".join(chosen.choice(WORDS) for _ in range(words))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "orders.txt"
    path.write_text(_text(2_500), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> KeyRing:
    return KeyRing.create(tmp_path_factory.mktemp("keys") / "keyring")


@pytest.fixture(scope="module")
def folder(text: Path, ring: KeyRing, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = datasets.build(datasets.Source(str(text), seed=3))
    return datasets.write(dataset, tmp_path_factory.mktemp("datasets"), ring)


def _train(folder: Path, ring: KeyRing, output: Path, *more: str) -> Done:
    return called(
        training.main, "run", "--dataset", str(folder), "--output", str(output),
        "--keyring", str(ring.path), *SMALL, *more,
    )  # fmt: skip


def _record(output: Path) -> dict[str, Any]:
    return json.loads((output / records.RECORD).read_text())


# -- data ------------------------------------------------------------------------------------


def test_windows_hold_the_text_and_what_follows(text: Path, folder: Path, ring: KeyRing) -> None:
    dataset = snapshot.open_dataset(folder, ring)
    characters = dataset.classes or []
    assert (dataset.family, dataset.task, characters[0]) == ("text", "language", "\ufffd")
    written = text.read_text(encoding="utf-8")
    for part in ("train", "held_out"):
        tokens, following = batches.windows(dataset, part)
        assert tokens.shape == following.shape
        assert tokens.shape[1] == language.CONTEXT
        for row, after in zip(tokens.tolist(), following.tolist(), strict=True):
            assert row[1:] == after[:-1]
            assert "".join(characters[each] for each in [*row, after[-1]]) in written


def test_no_window_is_in_both_parts(folder: Path, ring: KeyRing) -> None:
    dataset = snapshot.open_dataset(folder, ring)
    rows = dataset.description["rows"]
    assert rows["train"] + rows["held_out"] == rows["total"] == len(dataset.labels)
    assert rows["held_out"] == pytest.approx(0.2 * rows["total"], rel=0.1)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_numbers_mean_their_characters(texts: list[str]) -> None:
    points = np.array([ord(each) for each in "".join(texts)], dtype=np.int64)
    learned = points[: max(1, len(points) // 2)]
    characters = language.vocabulary(learned)
    assert len(set(characters)) == len(characters) <= language.MOST_CHARACTERS
    for point, number in zip(points, language.numbered(points, characters), strict=True):
        if number:
            assert characters[number] == chr(point)
        else:
            assert chr(point) not in characters[1:]


def test_what_only_the_held_out_part_has_is_unknown() -> None:
    characters = language.vocabulary(np.array([97, 97, 98], dtype=np.int64))
    assert characters == ["\ufffd", "a", "b"]
    assert language.numbered(np.array([97, 1602, 98]), characters).tolist() == [1, 0, 2]


def test_a_guess_costs_the_logarithm_of_how_many_there_are() -> None:
    every = np.arange(8)
    assert language.guess_nats(every, every) == pytest.approx(math.log(8))


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        (b"too short", {}, "at least 6,401 are needed"),
        (b"", {}, "at least 6,401 are needed"),
        (b"\xff\xfe\x00" * 9_000, {"encoding": "utf-8"}, "is not utf-8"),
        (b"plain text " * 900, {"target": "x"}, "leave --target away"),
        (b"plain text " * 900, {"task": "regression"}, "use --task auto"),
        (b"nul \0 " * 2_000, {}, "NUL character"),
    ],
)
def test_what_is_no_text_is_refused(
    tmp_path: Path, content: bytes, more: dict[str, str], said: str
) -> None:
    path = tmp_path / "given.txt"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=said):
        datasets.build(replace(datasets.Source(str(path)), **more))


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="can't be read: No such file"):
        datasets.build(datasets.Source(str(tmp_path / "none.txt")))
    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(language.MOST_BYTES + 1)
    with pytest.raises(WorkloadError, match="take a part of it"):
        datasets.build(datasets.Source(str(large)))


# -- the decoder -----------------------------------------------------------------------------


def test_no_character_is_known_before_it_comes() -> None:
    torch.manual_seed(1)
    decoder = Decoder(12, 9, 16).eval()
    first = torch.randint(0, 9, (2, 12))
    second = first.clone()
    second[:, 7:] = (second[:, 7:] + 1) % 9
    with torch.no_grad():
        one, other = decoder(first), decoder(second)
    torch.testing.assert_close(one[:, :7], other[:, :7])
    assert not torch.allclose(one[:, 7:], other[:, 7:])


def test_a_shorter_window_is_answered_as_the_beginning_of_a_longer_one() -> None:
    torch.manual_seed(2)
    decoder = Decoder(12, 9, 16).eval()
    tokens = torch.randint(0, 9, (3, 12))
    with torch.no_grad():
        torch.testing.assert_close(decoder(tokens[:, :5]), decoder(tokens)[:, :5])


def test_positions_turn_as_complex_numbers_do() -> None:
    """By the definition, which multiplies pairs by exp(i * position * frequency)."""
    from falaj.workloads.training import decoder

    heads = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    frequencies = 10_000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    angles = torch.outer(torch.arange(5, dtype=torch.float64), frequencies)
    turned = decoder._turned(heads, (angles.cos(), angles.sin()))  # pyright: ignore[reportPrivateUsage]
    pairs = torch.complex(heads[..., :4], heads[..., 4:])
    wanted = pairs * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(turned, torch.cat((wanted.real, wanted.imag), dim=-1))


def test_a_width_that_heads_cannot_share_is_refused(
    folder: Path, ring: KeyRing, tmp_path: Path
) -> None:
    done = _train(folder, ring, tmp_path / "run", "--width", "100")
    assert done.returncode == 2
    assert "--width is 100: allowed is multiples of 8" in done.stderr


SIZES = st.builds(DecoderSize, st.integers(1, 3), st.integers(1, 6), st.integers(1, 6))
GIVEN = st.fixed_dictionaries(
    {"width": st.integers(1, 60), "tensor": st.integers(1, 4), "pipeline": st.integers(1, 4)}
)


@settings(max_examples=examples(30))
@given(SIZES, GIVEN)
def test_what_does_not_go_together_is_told_and_the_rest_answers(
    size: DecoderSize, given: dict[str, int]
) -> None:
    misfits = size.misfits(**given)
    if not misfits:
        decoder = Decoder(8, 5, given["width"], size)
        assert decoder(torch.zeros(2, 8, dtype=torch.int64)).shape == (2, 8, 5)
        assert len(decoder.layers) == size.layers >= given["pipeline"]
        keys = decoder.get_parameter("layers.0.attention.keys.weight")
        assert keys.shape[0] == size.key_value_heads * given["width"] // size.heads
        assert size.key_value_heads % given["tensor"] == 0
        return
    for each in misfits:
        said = {**given, "key_value_heads": size.key_value_heads}
        assert each.given == said[each.name]
        # What is proposed goes, at least with what was asked for beside it.
        said[each.name] = each.near
        sized = replace(size, key_value_heads=said.pop("key_value_heads"))
        assert each.name not in {other.name for other in sized.misfits(**said)}


def test_the_size_of_old_runs_is_no_other_run(folder: Path, ring: KeyRing) -> None:
    dataset = snapshot.open_dataset(folder, ring)
    usual = resolve(Requested(device="cpu"), dataset)
    said = resolve(Requested(device="cpu", layers=4, heads=4, key_value_heads=2), dataset)
    other = resolve(Requested(device="cpu", layers=5), dataset)
    assert usual == said
    assert "layers" not in Architecture("text", (8,), 5, 16).to_json()
    names = {each.identity(dataset.digest) for each in (usual, said, other)}
    assert len(names) == 2
    # As a run of an earlier version was named.
    values = {k: v for k, v in usual.to_json().items() if k not in DECODER}
    del values["compression"]
    for name in ("processes", "threads", "device", "accumulation", "checkpoint_every", "shard",
                 "tensor", "pipeline", "recompute", "compile"):  # fmt: skip
        del values[name]
    assert usual.identity(dataset.digest) == snapshot.digest(
        {"dataset": dataset.digest, "parameters": values}
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--heads", "3"), "--key-value-heads is 2: allowed is a number that divides 3"),
        (("--layers", "0"), "--layers is 0: allowed is 1 to 256"),
        (("--heads", "16", "--width", "48"), "multiples of 32, as a language model has 16 heads"),
        (("--tensor", "4", "--processes", "4"), "--tensor is 4: allowed is a number that divides"),
        (("--pipeline", "6", "--processes", "6"), "--pipeline is 6: allowed is 1 to 4"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(
    folder: Path, ring: KeyRing, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = _train(folder, ring, tmp_path / "run", *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "run").exists()


def test_sizes_of_a_language_model_are_of_texts_alone(ring: KeyRing, tmp_path: Path) -> None:
    digits = datasets.write(datasets.build(datasets.Source("digits")), tmp_path, ring)
    done = _train(digits, ring, tmp_path / "run", "--heads", "4")
    assert (done.returncode, "--heads 4 is of Falaj's language model" in done.stderr) == (2, True)
    with pytest.raises(WorkloadError, match="--context 64 is of texts, and digits is none"):
        datasets.build(datasets.Source("digits", context=64))


def test_another_size_and_context_are_trained_and_kept(
    text: Path, ring: KeyRing, tmp_path: Path
) -> None:
    dataset = datasets.build(datasets.Source(str(text), seed=3, context=48))
    assert dataset.context == 48
    place = datasets.write(dataset, tmp_path, ring)
    words = ("--layers", "2", "--heads", "8", "--key-value-heads", "4", "--width", "32")
    done = _train(place, ring, tmp_path / "run", *words)
    assert done.returncode == 0, done.stderr
    trained = load_trained(tmp_path / "run", ring)
    decoder = trained.module
    assert isinstance(decoder, Decoder)
    assert (decoder.context, len(decoder.layers)) == (48, 2)
    assert decoder.get_parameter("layers.1.attention.keys.weight").shape == (16, 32)
    assert trained.record["parameters"]["heads"] == 8
    assert trained.record["model"]["architecture"]["decoder"]["key_value_heads"] == 4


# -- runs ------------------------------------------------------------------------------------


def test_a_stopped_run_ends_as_one_that_was_not(
    folder: Path, ring: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = _train(folder, ring, tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    whole = _record(tmp_path / "whole")
    figures = whole["metrics"]["held_out"]
    assert figures["nats_per_character"] < figures["baseline_nats"]
    assert figures["perplexity"] == pytest.approx(math.exp(figures["nats_per_character"]))
    assert records.headline(whole)["metric_name"] == "nats_per_character"

    asked = iter([False] * 12)
    with monkeypatch.context() as patched:
        patched.setattr(StopRequest, "asked", lambda _: next(asked, True))
        assert _train(folder, ring, tmp_path / "stopped").returncode == STOPPED
    assert not (tmp_path / "stopped" / records.RECORD).exists()
    assert _train(folder, ring, tmp_path / "stopped").returncode == 0
    assert _record(tmp_path / "stopped")["metrics"] == whole["metrics"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--class-weights", "balanced"), "is of classifications"),
        (("--model", "mine:Network", "--code", "{code}"), "learn from images and tables"),
    ],
)
def test_what_a_language_model_has_no_use_for_is_refused(
    folder: Path, ring: KeyRing, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text("import torch\nclass Network(torch.nn.Module):\n    pass\n")
    given = [each.format(code=code) for each in more]
    done = called(
        training.main, "run", "--dataset", str(folder), "--output", str(tmp_path / "run"),
        "--keyring", str(ring.path), "--device", "cpu", *given,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr


def test_trials_on_a_text_are_judged_by_the_nats_of_a_character(
    folder: Path, tmp_path: Path
) -> None:
    assert sweep.metric_name(folder) == "nats_per_character"
    study = sweep.open_study(tmp_path, folder, 1, "none")
    assert sweep.summary(study)["direction"] == "minimize"


def _ran(command: str, folder: Path) -> str:
    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_two_processes_learn_as_one_does(folder: Path, ring: KeyRing, tmp_path: Path) -> None:
    program = f"{sys.executable} -m falaj.workloads.training"
    for processes in (1, 2):
        _ran(
            f"{program} run --dataset {folder} --output {tmp_path / str(processes)} "
            f"--keyring {ring.path} --processes {processes} {' '.join(SMALL)}",
            tmp_path,
        )
    one, two = (
        _record(tmp_path / each)["metrics"]["held_out"]["nats_per_character"] for each in "12"
    )
    assert one == pytest.approx(two, abs=1e-4)


def test_a_federation_learns_from_no_text(folder: Path, ring: KeyRing) -> None:
    dataset = snapshot.open_dataset(folder, ring)
    parameters = resolve(Requested(device="cpu", width=16), dataset)
    prepared = batches.prepare(dataset, parameters)
    plan = Plan(
        rounds=1, epochs=1, batch_size=8, learning_rate=1e-3, clip=0.0, equal=False, seed=1
    )
    with pytest.raises(WorkloadError, match="learns from images and tables"):
        task_of(dataset, prepared, plan)


@pytest.mark.thorough
def test_real_text_is_learned_better_than_by_pairs_of_characters(tmp_path: Path) -> None:
    """The topics of Python's own help, which come with every interpreter; one epoch."""
    path = tmp_path / "topics.txt"
    path.write_text("\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    dataset = datasets.build(datasets.Source(str(path), seed=7))
    datasets.write(dataset, tmp_path / "datasets", None)
    (made,) = (tmp_path / "datasets").iterdir()
    done = called(
        training.main, "run", "--dataset", str(made), "--output", str(tmp_path / "run"),
        "--device", "cpu", "--epochs", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pairs = np.ones((len(dataset.classes or []),) * 2)
    learned, judged = (batches.windows(dataset, part) for part in ("train", "held_out"))
    np.add.at(pairs, tuple(each.numpy().ravel() for each in learned), 1)
    shares = pairs / pairs.sum(axis=1, keepdims=True)
    guess = -np.log(shares[tuple(each.numpy().ravel() for each in judged)]).mean()
    figures = _record(tmp_path / "run")["metrics"]["held_out"]
    assert figures["nats_per_character"] < 0.85 * guess
