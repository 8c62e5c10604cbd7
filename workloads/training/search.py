"""What a sweep tries: parameters of a run, each with its range or its choices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.options import CLASS_WEIGHTS, RANGES, Requested

TUNABLE = (
    "learning_rate", "weight_decay", "batch_size", "width", "label_smoothing", "gradient_clip",
    "class_weights",
)  # fmt: skip
"""Parameters that change what is learned, and not only how fast."""

_WHOLE = frozenset(
    each.name for each in fields(Requested) if "int" in str(each.type) and each.name in TUNABLE
)
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"^({_NUMBER})\.\.({_NUMBER})(:log)?$")
_SAY = "name=low..high, name=low..high:log or name=one|two|three"


def spaces(texts: Sequence[str]) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions by the parameter's name.

    Args:
        texts: each as ``learning_rate=1e-4..1e-1:log`` or ``width=8|16|32``.

    Raises:
        WorkloadError: a text can't be read, names no parameter that is learned from, or leaves
            the parameter's allowed range.
    """
    found: dict[str, BaseDistribution] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if name not in TUNABLE:
            raise WorkloadError(f"--search {text!r}: allowed are {', '.join(TUNABLE)}, as {_SAY}")
        if name in found:
            raise WorkloadError(f"--search names {name} twice: give each parameter once")
        found[name] = _space(name, values.strip(), text)
    if not found:
        raise WorkloadError(f"--search is missing: say what is tried, as {_SAY}")
    return found


def _space(name: str, values: str, text: str) -> BaseDistribution:
    if range_ := _RANGE.match(values):
        return _interval(name, range_[1], range_[2], bool(range_[3]), text)
    choices = [each.strip() for each in values.split("|")]
    if not all(choices) or len(set(choices)) != len(choices):
        raise WorkloadError(f"--search {text!r} can't be read: allowed is {_SAY}")
    return CategoricalDistribution([_value(name, each, text) for each in choices])


def _interval(name: str, low: str, high: str, log: bool, text: str) -> BaseDistribution:
    if name == "class_weights":
        raise WorkloadError(f"--search {text!r}: allowed are {'|'.join(CLASS_WEIGHTS)}")
    least, most = _number(name, low, text), _number(name, high, text)
    if not least < most or (log and least <= 0):
        raise WorkloadError(
            f"--search {text!r}: the first number must be the smaller one, and above 0 with :log"
        )
    if isinstance(least, int) and isinstance(most, int):
        return IntDistribution(least, most, log=log)
    return FloatDistribution(least, most, log=log)


def _value(name: str, text: str, whole: str) -> int | float | str:
    if name == "class_weights":
        if text not in CLASS_WEIGHTS:
            raise WorkloadError(f"--search {whole!r}: allowed are {', '.join(CLASS_WEIGHTS)}")
        return text
    return _number(name, text, whole)


def _number(name: str, text: str, whole: str) -> int | float:
    try:
        number = int(text) if name in _WHOLE else float(text)
    except ValueError:
        kind = "whole numbers" if name in _WHOLE else "numbers"
        raise WorkloadError(f"--search {whole!r}: {name} takes {kind}, not {text!r}") from None
    low, high = RANGES[name]
    if not low <= number <= high:
        raise WorkloadError(f"--search {whole!r}: {name} is allowed from {low:g} to {high:g}")
    return number
