"""What a training begins with: digests of weights and vocabularies in a folder on this machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from falaj.components.local import machine
from falaj.components.local.machine import InvalidInput, InvalidInputsError

_RECORD: Final = "record.json"
_CONFIGURATION: Final = "config.json"
_OTHERS: Final = (_CONFIGURATION, "tokenizer.json", "model.safetensors")
"""Of a model in Llama's form."""
_MORE: Final = ("tokenizer_config.json",)
"""Likewise of one that knows conversations: how they are worded."""
_PAIRS: Final = "falaj.vocabulary/1"
"""Form that a run writes its pairs of bytes in, of which its record has the digest."""


def weights_sha256(folder: Path, key: str) -> str:
    """SHA-256 of what says which weights a folder holds.

    Args:
        folder: of a finished run, whose record counts, or of a model in Llama's form.
        key: the input that names it.

    Raises:
        InvalidInputsError: it holds neither, or can't be read.
    """
    if (folder / _CONFIGURATION).is_file():
        more = tuple(name for name in _MORE if (folder / name).is_file())
        return machine.digest_of_files(((name, folder / name) for name in (*_OTHERS, *more)), key)
    try:
        return hashlib.sha256((folder / _RECORD).read_bytes()).hexdigest()
    except OSError as error:
        raise _neither(folder, key, error.strerror or str(error)) from error


def vocabulary_sha256(folder: Path, key: str) -> str:
    """SHA-256 of the vocabulary of a language model in a folder, the same in both forms.

    Args:
        folder: as `weights_sha256`.
        key: the input that names it.

    Raises:
        InvalidInputsError: it holds none, or can't be read.
    """
    is_other = (folder / _CONFIGURATION).is_file()
    path = folder / (_OTHERS[1] if is_other else _RECORD)
    try:
        content: Any = json.loads(path.read_bytes())
        if not is_other:
            described = content.get("dataset", {}).get("vocabulary")
            if described is not None:
                return str(described["digest"])
            vocabulary = content["classes"]
        elif "merges" in content["model"]:
            return _pairs_sha256(content["model"])
        else:
            numbers: dict[str, int] = content["model"]["vocab"]
            vocabulary = sorted(numbers, key=lambda each: numbers[each])
        return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()
    except OSError as error:
        raise _neither(folder, key, error.strerror or str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _neither(folder, key, f"{path.name} has no vocabulary") from error


def _pairs_sha256(model: dict[str, Any]) -> str:
    """SHA-256 of pairs of bytes, the same as in the record of the run that learned them."""
    numbers = model["vocab"]
    pairs = [[numbers[first], numbers[second]] for first, second in model["merges"]]
    written = json.dumps({"format": _PAIRS, "pairs": pairs}, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def _neither(folder: Path, key: str, why: str) -> InvalidInputsError:
    reason = (
        f"given {folder}, which holds neither a finished run ({_RECORD}) nor a model in Llama's "
        f"form ({_CONFIGURATION}): {why}"
    )
    return InvalidInputsError([InvalidInput(key, reason)])
