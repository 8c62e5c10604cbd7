"""Inputs and outputs of a language model's graph with which it isn't run again over what came
before: keys and values of the past, which are kept between two runs.

The inputs have defaults, so that the same graph answers whole rows where nobody gives them. The
past lies in slots of which the first ones are filled; what the others hold counts for nothing, so
that a run with more room than there are tokens needs no copy. The default is one slot that isn't
filled: no engine meets an empty tensor.
"""

from __future__ import annotations

from typing import Final

FILLED: Final = "past_length"
"""Input, INT64 (1,): slots that are filled, which is the place of the first given token."""
ASKED: Final = "asked"
"""Input, INT64 (P,): places among the given tokens, of which `LOGITS` says what follows; default:
the last one."""
LOGITS: Final = "logits"
"""Output, FP32 (N, P, tokens)."""
CHUNK: Final = 256
"""Tokens of each text that one run takes at most: a long prompt takes turns with others' steps."""
PAST_DIMENSIONS: Final = 4
"""Of keys and values: texts, heads, slots, numbers of a head."""
_PAST: Final = "past."
_PRESENT: Final = "present."
_KINDS: Final = ("keys", "values")


def past_names(layers: int) -> list[str]:
    """Return the inputs of the past: keys and values by layer, FP32 (N, heads, slots, size)."""
    return [f"{_PAST}{layer}.{kind}" for layer in range(layers) for kind in _KINDS]


def present_of(past: str) -> str:
    """Return the output with what the given tokens (N, heads, S, size) add to an input."""
    return _PRESENT + past.removeprefix(_PAST)


def layers_of(inputs: list[str]) -> int:
    """Return how many layers have a past among a graph's inputs with defaults; 0: it has none."""
    layers = sum(each.startswith(_PAST) for each in inputs) // len(_KINDS)
    return layers if {FILLED, ASKED, *past_names(layers)} <= set(inputs) else 0


def is_kept(output: str) -> bool:
    """Tell whether an output is for who keeps the past, and no answer."""
    return output == LOGITS or output.startswith(_PRESENT)
