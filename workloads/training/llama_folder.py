"""A language model in Llama's form that somebody gives, read strictly.

What `llama.write` writes, and what other programs make of that when they change its numbers. Only
what a decoder of Falaj's computes is taken: a field that would have it compute anything else is
refused by name, and so is what isn't known. No file of code or of pickled code is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from falaj.workloads.bounds import DATASET, DECODER, TRAINING, Bound
from falaj.workloads.chat import Template
from falaj.workloads.documents import is_sequence
from falaj.workloads.errors import WorkloadError, printable
from falaj.workloads.files import reading_errors
from falaj.workloads.llama_form import ROTARY_BASE
from falaj.workloads.training import language, llama
from falaj.workloads.training.chat_forms import Form, form_of_jinja
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.models import Architecture
from falaj.workloads.vocabulary import MOST_TOKENS, BytePairs, Characters, Vocabulary

_MOST_CONFIGURATION: Final = 64 << 10
_MOST_TOKENISER: Final = 32 << 20
_MOST_SETTINGS: Final = 256 << 10
_TEMPLATE: Final = "chat_template.jinja"
_MOST_HEADER: Final = 4 << 20
"""Bytes of the files' texts: 256 layers have a header of 0.4 MiB, and 65,536 pairs of bytes stand
twice in a tokeniser, each with at most 264 bytes, of which few have more than half."""
_LENGTH: Final = 8
"""Bytes before the header, which say how long it is, the lowest first:
https://github.com/huggingface/safetensors#format"""
_SIZES: Final[Mapping[str, tuple[str, Bound]]] = {
    "layers": ("num_hidden_layers", DECODER["layers"]),
    "heads": ("num_attention_heads", DECODER["heads"]),
    "key_value_heads": ("num_key_value_heads", DECODER["key_value_heads"]),
    "width": ("hidden_size", TRAINING["width"]),
    "context": ("max_position_embeddings", DATASET["context"]),
    "tokens": ("vocab_size", Bound(1, MOST_TOKENS)),
}
_TYPES: Final = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of a number, by what safetensors calls its type."""
_WITHOUT_EFFECT: Final = frozenset({
    "transformers_version", "_name_or_path", "initializer_range", "use_cache", "torch_dtype",
    "dtype", "bos_token_id", "eos_token_id", "pad_token_id",
})  # fmt: skip
"""Of a configuration: what a forward pass doesn't depend on."""
_ROPE: Final = {"rope_type": "default", "rope_theta": ROTARY_BASE}
_AS_HERE: Final[Mapping[str, Any]] = {
    "attention_dropout": 0.0, "pretraining_tp": 1, "rope_scaling": None, "rope_parameters": _ROPE,
    "partial_rotary_factor": 1.0,
}  # fmt: skip
"""What other programs add, and the only value with which they compute the same."""
_PAIR: Final = 2
_ADDS_NOTHING: Final[Mapping[str, object]] = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {},
}
"""What other programs write where nothing comes before or after a text."""


@dataclass(frozen=True)
class Given:
    """A model that was read.

    Attributes:
        architecture: what the weights are of.
        state: they, float32, by the names of a `Decoder`'s, on the CPU.
        vocabulary: its tokens.
        template: what conversations are worded with; None: it says nothing of them.
    """

    architecture: Architecture
    state: dict[str, Tensor]
    vocabulary: Vocabulary
    template: Template | None


def is_one(folder: Path) -> bool:
    """Tell whether there is a model in Llama's form, whole or not."""
    return (folder / llama.CONFIGURATION).is_file()


def read(folder: Path) -> Given:
    """Read a model.

    Raises:
        WorkloadError: a file is missing, too large or damaged, or the model isn't of the form that
            Falaj writes; names the file and what in it.
    """
    configuration = _read_document(folder / llama.CONFIGURATION, _MOST_CONFIGURATION)
    sizes = _sizes(folder / llama.CONFIGURATION, configuration)
    vocabulary = read_vocabulary(folder)
    if vocabulary.size != sizes["tokens"]:
        raise _error(
            folder / llama.TOKENISER,
            f"has {vocabulary.size:,} {vocabulary.unit}, and {llama.CONFIGURATION} says "
            f"{sizes['tokens']:,}",
        )
    size = DecoderSize(sizes["layers"], sizes["heads"], sizes["key_value_heads"])
    for each in size.misfits(sizes["width"]):
        raise _error(
            folder / llama.CONFIGURATION,
            f"{_SIZES[each.name][0]} is {each.given}: allowed is {each.allowed}",
        )
    with torch.device("meta"):
        form = Decoder(sizes["context"], vocabulary.size, sizes["width"], size)
    _check_configuration(folder / llama.CONFIGURATION, configuration, form, vocabulary)
    return Given(
        Architecture(
            language.FAMILY, (sizes["context"],), vocabulary.size, sizes["width"], decoder=size
        ),
        _read_weights(folder, form),
        vocabulary,
        read_template(folder),
    )


def read_vocabulary(folder: Path) -> Vocabulary:
    """Return the tokens of a model: characters, or pairs of bytes.

    Raises:
        WorkloadError: as `read`.
    """
    path = folder / llama.TOKENISER
    given = _read_document(path, _MOST_TOKENISER)
    model = given.get("model")
    numbers: object = cast("Any", model).get("vocab") if isinstance(model, dict) else None
    if not isinstance(numbers, dict) or not all(
        type(each) is int for each in cast("dict[str, object]", numbers).values()
    ):
        raise _error(path, "model.vocab doesn't say a number for each token")
    known = cast("dict[str, int]", numbers)
    merges: object = cast("Any", model).get("merges")
    vocabulary = _characters(path, known) if merges is None else _pairs(path, known, merges)
    form = _read_form(folder) if merges is not None else None
    cut = f"isn't the one that cuts a text into the {vocabulary.unit} of model.vocab"
    wanted = llama.tokeniser(vocabulary, form)
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"):
        is_empty = key == "post_processor" and given.get(key) == _ADDS_NOTHING
        if given.get(key) != wanted[key] and not is_empty:
            raise _error(path, f"{key} {cut}")
    added = _objects(given.get("added_tokens"))
    if form is not None:
        _check_marks(path, added, form)
        return vocabulary
    if added and vocabulary.unknown is None:
        raise _error(
            path, "added_tokens has some, which cut a text before its pairs: allowed are those of "
            f"a known chat_template in {llama.SETTINGS}, which has none"
        )  # fmt: skip
    for each in added:
        content, number = each.get("content"), each.get("id")
        if not isinstance(content, str) or content not in known or known[content] != number:
            raise _error(path, "added_tokens has what isn't in model.vocab")
    return vocabulary


def read_template(folder: Path) -> Template | None:
    """Return what conversations are worded with; None: nothing is said of them.

    Raises:
        WorkloadError: it is none that is known.
    """
    form = _read_form(folder)
    return form.template if form is not None else None


def _read_form(folder: Path) -> Form | None:
    path = folder / llama.SETTINGS
    if not path.exists() and not (folder / _TEMPLATE).exists():
        return None
    written = _read_document(path, _MOST_SETTINGS).get("chat_template") if path.exists() else None
    beside = folder / _TEMPLATE
    if written is None and beside.exists():
        # Where newer programs write it.
        path, written = beside, _read_text(beside, _MOST_SETTINGS)
    if written is None:
        return None
    try:
        return form_of_jinja(written)
    except WorkloadError as error:
        raise _error(path, str(error)) from error


def _check_marks(path: Path, added: list[dict[str, object]], form: Form) -> None:
    """Refuse what cuts a text elsewhere than at the marks of conversations."""
    numbers = {each.get("content"): each.get("id") for each in added}
    is_loose = any(each.get(key) for each in added for key in ("lstrip", "rstrip", "single_word"))
    if numbers != {name: number for number, name in form.names.items()} or is_loose:
        wanted = ", ".join(f"{name} as {number}" for number, name in form.names.items())
        raise _error(
            path, f"added_tokens aren't the marks of {form.name}, {wanted}, and no others"
        )


def _characters(path: Path, known: dict[str, int]) -> Characters:
    names = sorted(known, key=lambda each: known[each])
    if sorted(known.values()) != list(range(len(known))) or not language.is_vocabulary(names):
        raise _error(
            path,
            f"model.vocab isn't of the form that Falaj writes: {language.UNKNOWN!r} at 0, then "
            f"each character once in the order of Unicode, {language.MOST_CHARACTERS:,} at most",
        )
    return Characters(tuple(names))


def _pairs(path: Path, known: dict[str, int], merges: object) -> BytePairs:
    """Pairs by their numbers; that each has the name that it is made of, the caller looks at."""
    pairs: list[tuple[int, int]] = []
    for each in merges if is_sequence(merges) else [merges]:
        names = each if is_sequence(each) else []
        numbers = [known.get(name, -1) for name in names if isinstance(name, str)]
        if len(names) != len(numbers) or len(numbers) != _PAIR or min(numbers) < 0:
            raise _error(
                path, f"model.merges has {_shown(each)}: allowed are lists of two of model.vocab"
            )
        pairs.append((numbers[0], numbers[1]))
    try:
        return BytePairs(tuple(pairs))
    except WorkloadError as error:
        raise _error(path, f"model.merges: {error}") from error


def _objects(value: object) -> list[dict[str, object]]:
    """The objects of a list; what is none becomes an empty one."""
    given = cast("list[object]", value) if isinstance(value, list) else [value] if value else []
    return [cast("dict[str, object]", each) if isinstance(each, dict) else {} for each in given]


def _sizes(path: Path, configuration: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, (key, bound) in _SIZES.items():
        given: object = configuration.get(key)
        if not isinstance(given, int) or not bound.allows(given):
            raise _error(path, f"{key} is {_shown(given)}: allowed is {bound.description}")
        found[name] = given
    return found


def _check_configuration(
    path: Path, given: dict[str, Any], form: Decoder, vocabulary: Vocabulary
) -> None:
    wanted = llama.documents(form, vocabulary)[llama.CONFIGURATION]
    if "auto_map" in given:
        raise _error(path, "auto_map names code to run, and none is: remove it")
    for key, value in given.items():
        if key in _WITHOUT_EFFECT:
            continue
        if key not in wanted and key not in _AS_HERE:
            raise _error(path, f"{_shown(key)} isn't known: a decoder of Falaj's has none")
        right = wanted[key] if key in wanted else _AS_HERE[key]
        if value != right or isinstance(value, bool) != isinstance(right, bool):
            raise _error(path, f"{key} is {_shown(value)}: allowed is {_shown(right)}")
    for key in wanted.keys() - given.keys() - _WITHOUT_EFFECT:
        # Newer programs write the base of the positions with their form.
        if key != "rope_theta" or "rope_parameters" not in given:
            raise _error(path, f"{key} is missing: allowed is {_shown(wanted[key])}")


def _read_weights(folder: Path, form: Decoder) -> dict[str, Tensor]:
    """The tensors that a decoder of this form has, and no others."""
    path = folder / llama.WEIGHTS
    shapes = {name: tuple(each.shape) for name, each in form.state_dict().items()}
    ours = {llama.name_of(name): name for name in shapes}
    numbers = sum(each.numel() for each in form.state_dict().values())
    _check_size(path, numbers)
    try:
        with (
            reading_errors(path, "the weights"),
            cast("Any", safe_open)(path, framework="pt") as weights,
        ):
            names: set[str] = set(weights.keys())
            for name in sorted(names ^ ours.keys()):
                what = "isn't known" if name in names else "is missing"
                raise _error(path, f"the tensor {_shown(name)} {what}")
            state: dict[str, Tensor] = {}
            for name, of in ours.items():
                part = weights.get_slice(name)
                if tuple(part.get_shape()) != shapes[of]:
                    shape = list(part.get_shape())
                    raise _error(
                        path, f"{name} has the shape {shape}: allowed is {list(shapes[of])}"
                    )
                if part.get_dtype() not in _TYPES:
                    allowed = ", ".join(_TYPES)
                    raise _error(path, f"{name} is of {part.get_dtype()}: allowed are {allowed}")
                # A copy: the file may change once it was read.
                state[of] = weights.get_tensor(name).to(torch.float32, copy=True)
    except SafetensorError as error:
        raise _error(path, f"is damaged: {printable(str(error))}") from error
    for name, of in ours.items():
        if not bool(torch.isfinite(state[of]).all()):
            raise _error(path, f"{name} has numbers that are none (NaN or infinite)")
    return state


def _check_size(path: Path, numbers: int) -> None:
    """Refuse a file whose size or header can't be right, before anything maps it."""
    if not path.is_file():
        raise _error(
            path,
            "is missing: weights are read from this one file of safetensors alone; .bin and .pt "
            "files hold pickled code, which is never run",
        )
    with reading_errors(path, "the weights"), path.open("rb") as stream:
        size = path.stat().st_size
        header = int.from_bytes(stream.read(_LENGTH), "little")
    if header > _MOST_HEADER:
        raise _error(path, f"has a header of {header:,} bytes: allowed are {_MOST_HEADER:,}")
    # Twice what the numbers take: what is wrong in a file that is hardly too large is told better.
    most = _LENGTH + header + 2 * numbers * max(_TYPES.values())
    if size > most:
        raise _error(path, f"has {size:,} bytes: allowed for {numbers:,} numbers are {most:,}")


def _read_text(path: Path, most: int) -> str:
    return _read_bytes(path, most).decode("utf-8", "replace")


def _read_bytes(path: Path, most: int) -> bytes:
    if path.exists() and not path.is_file():
        raise _error(path, "is no file")
    with reading_errors(path, "the file"), path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise _error(path, f"has more than {most:,} bytes")
    return data


def _read_document(path: Path, most: int) -> dict[str, Any]:
    data = _read_bytes(path, most)
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _error(path, f"isn't valid JSON: {printable(str(error))}") from error
    if not isinstance(found, dict):
        raise _error(path, "isn't a JSON object")
    return cast("dict[str, Any]", found)


_MOST_SHOWN: Final = 60


def _shown(value: object) -> str:
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def _error(path: Path, reason: str) -> WorkloadError:
    return WorkloadError(f"{path}: {reason}")
