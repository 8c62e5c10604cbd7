"""Checkpoints and model files, and what later stages read of a finished run.

Tensors are written without pickled code, with a digest, atomically.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from falaj.workloads.chat import Template, template_of_record
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path, read_artifact, write_artifact
from falaj.workloads.training import models, quantisation
from falaj.workloads.training import record as records
from falaj.workloads.training.models import TablePreprocessing
from falaj.workloads.training.own_code import ARCHIVE, OwnCode, unpack
from falaj.workloads.training.snapshot import Rows, load_rows, vocabulary_of
from falaj.workloads.training.tensors import tensor_of
from falaj.workloads.vocabulary import BytePairs, Vocabulary, of_bytes

_MAGIC = b"falaj.tensors/1\n"
_DIGEST_BYTES = 32


class DamagedFileError(WorkloadError):
    """A checkpoint or model file isn't what was written."""


def encode(state: dict[str, Any]) -> bytes:
    """Return ``state`` (tensors, numbers, texts, lists, dicts) with a digest before it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def decode(data: bytes, path: Path) -> dict[str, Any]:
    """Return what `encode` was given; no code from the file is ever run (``weights_only``).

    Raises:
        DamagedFileError: a byte is missing or differs; ``path`` names the file.
    """
    start = len(_MAGIC) + _DIGEST_BYTES
    payload = data[start:]
    intact = data[: len(_MAGIC)] == _MAGIC and (
        hashlib.sha256(payload).digest() == data[len(_MAGIC) : start]
    )
    if not intact:
        raise DamagedFileError(f"{path} is damaged: its digest does not match its content")
    try:
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise DamagedFileError(f"{path} can't be read by this version of torch") from error


def save(path: Path, state: dict[str, Any], keyring: KeyRing | None, context: bytes) -> None:
    """Replace the file at ``path`` atomically; errors as `sealed.write_artifact`."""
    write_artifact(path, encode(state), keyring, context)


def load(path: Path, keyring: KeyRing | None, context: bytes) -> dict[str, Any]:
    """Return what `save` wrote.

    Raises:
        DamagedFileError: it isn't what was written.
        WorkloadError: it is missing, or sealed for another role or with other keys.
    """
    return decode(read_artifact(path, keyring, context), artifact_path(path, keyring))


def random_state() -> dict[str, Any]:
    """Return the state of every random generator of the process, for `restore_random_state`."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(internal), gauss],
        "numpy": [name, tensor_of(np.asarray(keys).astype(np.int64)), position,
                  has_gauss, cached],
    }  # fmt: skip
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Put every random generator of the process back to where `random_state` saw it."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    keys = keys.numpy().astype(np.uint32)
    np.random.set_state((name, keys, position, has_gauss, cached))
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])


__all__ = [
    "Learned", "Rows", "Trained", "load_learned", "load_rows", "load_trained", "numbers_digest",
    "weights_digest",
]  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A finished run's model.

    Attributes:
        family: ``images``, ``table`` or ``text``.
        task: ``classification``, ``regression`` or ``language``.
        module: in evaluation mode; takes one float32 tensor: raw images (N, C, H, W), or the
            preprocessed features (N, F); gives logits (N, classes) or standardised values (N, 1).
            That of a text takes int64 tokens (N, S), and gives logits (N, S, vocabulary).
        preprocessing: the table's recipe, None for images.
        classes: the names of the classes, None for a regression.
        target: {"mean", "scale"} that bring a regression's output to real units, else None.
        record: the content of record.json.
        ranges: of what layers take and give, which 8 bits are to have; None: not learned.
        pairs: vocabulary of a text whose tokens aren't its characters.
    """

    family: str
    task: str
    module: nn.Module
    preprocessing: TablePreprocessing | None
    classes: list[str] | None
    target: dict[str, float] | None
    record: dict[str, Any]
    ranges: quantisation.Ranges | None = None
    pairs: BytePairs | None = None

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tokens of a text; None of anything else."""
        return vocabulary_of(self.family, self.classes, self.pairs)

    @property
    def exported(self) -> nn.Module:
        """What is exported of the module: another one where a team's own says so."""
        architecture = models.Architecture.from_json(self.record["model"]["architecture"])
        return models.exported_of(self.module, architecture.own)

    @property
    def template(self) -> Template | None:
        """What stands around messages, if it learned conversations."""
        return template_of_record(self.record)


@dataclass(frozen=True)
class Learned:
    """What a finished run learned, of which no module was made.

    Attributes:
        record: the content of record.json.
        architecture: what its module is.
        state: its numbers by name, on the CPU.
        ranges: as `Trained.ranges`, as they lie in the file; None: not learned.
        pairs: as `Trained.pairs`.
    """

    record: dict[str, Any]
    architecture: models.Architecture
    state: dict[str, Tensor]
    ranges: dict[str, Any] | None = None
    pairs: BytePairs | None = None

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tokens of a text; None of anything else."""
        return vocabulary_of(self.record["family"], self.record["classes"], self.pairs)

    @property
    def preprocessing(self) -> TablePreprocessing | None:
        """The table's recipe; None for images and texts."""
        recipe = self.record["preprocessing"]
        return TablePreprocessing.from_json(recipe) if recipe is not None else None


def load_learned(run_dir: Path, keyring: KeyRing | None) -> Learned:
    """Read what a finished run learned; nothing of a team's own code runs.

    Raises:
        WorkloadError: the run hasn't finished, or its files are missing, damaged or sealed with
            other keys.
    """
    with _whole(run_dir):
        return _learned(run_dir, keyring)


def load_trained(run_dir: Path, keyring: KeyRing | None) -> Trained:
    """Read a finished run, and make its module.

    Raises:
        WorkloadError: the run hasn't finished, or its files are missing, damaged or sealed with
            other keys.
    """
    with _whole(run_dir):
        return _trained(run_dir, _learned(run_dir, keyring), keyring)


@contextlib.contextmanager
def _whole(run_dir: Path) -> Generator[None, None, None]:
    """Say of what a record lacks that the run is damaged."""
    try:
        yield
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # The files' digests hold, but the record was edited, or another version wrote it.
        raise WorkloadError(
            f"the run in {run_dir} is damaged: its record lacks what its model needs; "
            "train it again"
        ) from error


def _code(run_dir: Path, digest: str, record: dict[str, Any], keyring: KeyRing | None) -> OwnCode:
    path = run_dir / ARCHIVE
    packed = read_artifact(path, keyring, records.context_of(record["identity"], ARCHIVE))
    return unpack(packed, digest, artifact_path(path, keyring))


def _learned(run_dir: Path, keyring: KeyRing | None) -> Learned:
    record = read_json(run_dir / records.RECORD, "the record of a finished run")
    if record.get("format") != records.FORMAT or record.get("status") != "finished":
        raise WorkloadError(f"{run_dir} holds no finished run: train it first")
    path = run_dir / records.MODEL
    context = records.context_of(record["identity"], records.MODEL)
    state = load(path, keyring, context)
    if state.get("identity") != record["identity"]:
        raise WorkloadError(f"{path} belongs to another run than {run_dir / records.RECORD}")
    if "digest" not in record["dataset"]:
        raise KeyError("dataset.digest")
    architecture = models.Architecture.from_json(json.loads(state["architecture"]))
    pairs = of_bytes(state["vocabulary"]) if "vocabulary" in state else None
    return Learned(record, architecture, state["state"], state.get("ranges"), pairs)


def _trained(run_dir: Path, learned: Learned, keyring: KeyRing | None) -> Trained:
    record, architecture = learned.record, learned.architecture
    code = _code(run_dir, architecture.own.code, record, keyring) if architecture.own else None
    module = models.build(architecture, code)
    module.load_state_dict(learned.state)
    return Trained(
        family=record["family"],
        task=record["task"],
        module=module.eval().requires_grad_(False),
        preprocessing=learned.preprocessing,
        classes=record["classes"],
        target=record["target"],
        record=record,
        ranges=quantisation.from_state(learned.ranges) if learned.ranges is not None else None,
        pairs=learned.pairs,
    )


def weights_digest(module: nn.Module) -> str:
    """Return the SHA-256 over the names, shapes and values of a module's numbers."""
    return numbers_digest(module.state_dict())


def numbers_digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over the names, shapes and values of numbers."""
    found = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        found.update(np.ascontiguousarray(tensor.to(torch.float32).numpy()).tobytes())
    return found.hexdigest()
