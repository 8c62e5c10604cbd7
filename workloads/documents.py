"""What documents of others hold (JSON, YAML, objects of a cluster), read without trusting them.

`isinstance(value, dict)` leaves the type checker with keys and values that it knows nothing of.
The rest of the house has these in `wire/documents.py`, which workloads may not know.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeGuard


class TwiceError(ValueError):
    """A key stands twice in one object: whoever reads it would take one, and drop the other."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{json.dumps(key, ensure_ascii=False)} stands twice in one object")
        self.key = key


def parse_json(text: str | bytes) -> Any:
    """Read one document of JSON as RFC 8259 has it, each key once (as RFC 7493 wants it).

    Args:
        text: the document; bytes are UTF-8, a byte order mark before them is left out.

    Raises:
        TwiceError: an object has a key twice.
        ValueError: it isn't JSON in UTF-8; `NaN` and `Infinity`, which `json` takes, are none, and
            neither are numbers that only infinity stands for.
        RecursionError: it is nested too deeply.
    """
    # `json` itself would take UTF-16 as well, and halves of surrogate pairs in UTF-8.
    read = text if isinstance(text, str) else text.decode("utf-8-sig")
    return json.loads(
        read, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise TwiceError(next(key for key, count in counts.items() if count > 1))
    return found


def _finite(number: str) -> float:
    found = float(number)
    if math.isinf(found):
        raise ValueError(f"{number[:40]} is beyond the numbers of 64 bits")
    return found


def _no_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def is_dictionary(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object of JSON, whose keys are text."""
    return isinstance(value, dict)


def is_sequence(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a list."""
    return isinstance(value, list)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a mapping, such as an object of JSON, else an empty one."""
    return value if _is_mapping(value) else {}
