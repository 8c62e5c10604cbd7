"""A trained language model as other programs read it: weights, their names and the tokens.

The layers are those of Llama, so that what reads these from a folder takes it: safetensors with
the names of Hugging Face's ``LlamaForCausalLM``, its ``config.json``, and a ``tokenizer.json`` of
one word for each character, or of pairs of bytes. Nothing in it is code, and nothing is encrypted
any more.

https://huggingface.co/docs/transformers/model_doc/llama, https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from safetensors.torch import save
from torch import Tensor

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import (
    make_missing_folders,
    replacing_folder,
    storage_errors,
    write_atomic,
)
from falaj.workloads.llama_form import (
    CONFIGURATION,
    EMBEDDING,
    NORM,
    WEIGHTS,
    LlamaShape,
    configuration,
    of_layer,
)
from falaj.workloads.training.chat_forms import Form, form_of
from falaj.workloads.training.checkpoint import Trained
from falaj.workloads.training.decoder import Decoder, gated_units
from falaj.workloads.vocabulary import (
    PIECES,
    UNKNOWN,
    BytePairs,
    Vocabulary,
    printable,
)

TOKENISER: Final = "tokenizer.json"
SETTINGS: Final = "tokenizer_config.json"


def write(trained: Trained, output: Path) -> list[str]:
    """Write the model's files into a new folder, which appears whole or not at all.

    Args:
        trained: a finished run's model.
        output: a folder that isn't there, or is empty.

    Returns:
        The files' names.

    Raises:
        WorkloadError: the model is no language model of Falaj's, there is something in the folder,
            or it can't be written.
    """
    module, vocabulary = trained.module, trained.vocabulary
    if not isinstance(module, Decoder) or vocabulary is None:
        raise WorkloadError(
            f"the run learned a model of {trained.family}: only a language model has the form of "
            "Llama; an ONNX file of any model is in its package"
        )
    with storage_errors(output):
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise WorkloadError(f"{output} is there already: name a new folder, or remove it")
        make_missing_folders(output.absolute().parent)
    form = form_of(trained.template) if trained.template is not None else None
    texts = {name: _json(each) for name, each in documents(module, vocabulary, form).items()}
    files = {WEIGHTS: save(tensors(module), {"format": "pt"}), **texts}
    with replacing_folder(output.absolute()) as stage:
        for name, content in files.items():
            write_atomic(stage / name, content)
    return sorted(files)


def tensors(module: Decoder) -> dict[str, Tensor]:
    """Return the learned numbers by Llama's names; the matrix of tokens stands once."""
    return {
        name_of(name): tensor.detach().cpu().contiguous()
        for name, tensor in module.state_dict().items()
    }


def name_of(name: str) -> str:
    """Return Llama's name of one of a decoder's tensors."""
    of, _, _ = name.rpartition(".")
    if of == "embedding":
        return EMBEDDING
    if of == "norm":
        return NORM
    _, number, part = of.split(".", 2)
    return of_layer(int(number), part)


def documents(
    module: Decoder, vocabulary: Vocabulary, form: Form | None = None
) -> dict[str, dict[str, Any]]:
    """Return what says how to read the weights and tokens, by the names of the files.

    Args:
        module: a whole decoder.
        vocabulary: its tokens.
        form: of the conversations that it learned. Default: it learned none.
    """
    size, width = module.size, module.embedding.embedding_dim
    known = vocabulary.unknown is None
    return {
        CONFIGURATION: configuration(
            LlamaShape(
                tokens=vocabulary.size,
                width=width,
                units=gated_units(width),
                layers=size.layers,
                heads=size.heads,
                key_value_heads=size.key_value_heads,
                context=module.context,
            ),
            form.template.end if form is not None else None,
        ),
        TOKENISER: tokeniser(vocabulary, form),
        SETTINGS: {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **({} if known else {"unk_token": UNKNOWN}),
            "model_max_length": module.context,
            "clean_up_tokenization_spaces": False,
            **(_of_chats(form) if form is not None else {}),
        },
    }  # fmt: skip


def _of_chats(form: Form) -> dict[str, Any]:
    begin = [form.names[part] for part in form.template.begin if isinstance(part, int)]
    first = {"bos_token": begin[0]} if begin else {}
    return {**first, "eos_token": form.end, "chat_template": form.written[0]}


def tokeniser(vocabulary: Vocabulary, form: Form | None = None) -> dict[str, Any]:
    """Return what cuts a text into the tokens of a vocabulary, and numbers them.

    Args:
        vocabulary: of the tokens.
        form: names those that are its marks. Default: none is named.
    """
    made = _tokeniser(vocabulary)
    if form is None:
        return made
    numbers: dict[str, int] = made["model"]["vocab"]
    made["model"]["vocab"] = {form.names.get(each, name): each for name, each in numbers.items()}
    made["added_tokens"] = [
        {
            "id": number, "content": name, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True,
        }
        for number, name in sorted(form.names.items())
    ]  # fmt: skip
    return made


def _tokeniser(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "post_processor": None,
        **_applied(vocabulary),
    }


def _applied(vocabulary: Vocabulary) -> dict[str, Any]:
    """What cuts a text up, and what the parts are numbered by."""
    if isinstance(vocabulary, BytePairs):
        return {
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [_cut(PIECES), {"type": "ByteLevel", **_BARE}],
            },
            "decoder": {"type": "ByteLevel", **_BARE},
            "model": _model_of_pairs(vocabulary),
        }
    numbers = {each: number for number, each in enumerate(vocabulary.names)}
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": "\r\n"}, "content": "\n"},
        "pre_tokenizer": _cut(r"[\s\S]"),
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": numbers, "unk_token": UNKNOWN},
    }


_BARE: Final = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
"""Bytes as characters, and nothing else."""


def _cut(pattern: str) -> dict[str, Any]:
    return {
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip


def _model_of_pairs(vocabulary: BytePairs) -> dict[str, Any]:
    written = printable()
    names = ["".join(written[each] for each in of) for of in vocabulary.contents]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {each: number for number, each in enumerate(names)},
        "merges": [[names[first], names[second]] for first, second in vocabulary.pairs],
    }


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"
