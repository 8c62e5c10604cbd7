"""Learning of a vocabulary of byte pairs, by the library `tokenizers` of Hugging Face.

It counts and joins in compiled code, and asks no network. What it learned is kept in Falaj's own
form, `falaj.workloads.vocabulary`, which encodes without it: serving has no need of the library.
https://github.com/huggingface/tokenizers (Apache-2.0)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from falaj.workloads.vocabulary import BYTES, PIECES, BytePairs, printable

_LEAST: Final = 2
"""Times that a pair has to be there to become a token."""


def learn(texts: Iterable[str], size: int) -> BytePairs:
    """Return the vocabulary of texts; the same texts have the same one.

    Args:
        texts: parts of a text.
        size: tokens, `BYTES` at least; fewer are found where no more pairs are there twice.
    """
    from tokenizers import (  # noqa: PLC0415 - only for those who ask for it
        Regex,
        Tokenizer,
        models,
        pre_tokenizers,
        trainers,
    )

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=_LEAST,
        show_progress=False,
        initial_alphabet=list(printable()),
    )
    made.train_from_iterator(texts, trainer)
    model: dict[str, Any] = json.loads(made.to_str())["model"]
    numbers = {written: number for number, written in enumerate(printable())}
    pairs: list[tuple[int, int]] = []
    for first, second in model["merges"]:
        # Two pairs may be one text: the first of them stays.
        if first + second not in numbers:
            pairs.append((numbers[first], numbers[second]))
            numbers[first + second] = len(numbers)
    return BytePairs(tuple(pairs[: size - BYTES]))
