"""Language models of random weights, as they are published: what follows depends on all before."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from falaj.workloads.engines import Session
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.language.generation import Language
from falaj.workloads.inference.models.model import Model, load
from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.optimization.export import (
    Serving,
    assemble,
    describe_inputs,
    describe_outputs,
    export_module,
)
from falaj.workloads.remembering import is_kept
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from tests.workloads.inference.oip import LIMITS

CHARACTERS = "\ufffd\nabcdefgh شكرا😀."
SIZE = DecoderSize(layers=2, heads=4, key_value_heads=2)
WIDTH = 32


def decoder(context: int, seed: int = 0) -> Decoder:
    """Weights far from even ones, so that answers differ by what came before."""
    torch.manual_seed(seed)
    made = Decoder(context, len(CHARACTERS), WIDTH, SIZE)
    with torch.no_grad():
        for each in made.parameters():
            each.mul_(8 if each.ndim > 1 else 1)
    return made.eval().requires_grad_(False)


def serving(context: int, characters: str = CHARACTERS) -> Serving:
    return Serving("text", None, (context,), list(characters), text_labels=True, target=None)


@cache
def published(context: int) -> tuple[bytes, dict[str, Any]]:
    """A package's graph, and the fields of its manifest that a server reads."""
    return packaged(decoder(context), serving(context))


def packaged(module: Decoder, around: Serving) -> tuple[bytes, dict[str, Any]]:
    """The same of any decoder."""
    graph = assemble(export_module(module, around.shape), around)
    fields = {
        "dataset": {"digest": "0" * 64},
        "lineage": {"run": "run", "dataset": "0" * 64},
        "family": "text",
        "task": "language",
        "classes": around.classes,
        "inputs": describe_inputs(graph, around),
        "outputs": describe_outputs(graph, around),
    }
    return graph.SerializeToString(), fields


@cache
def served(context: int) -> tuple[Model, Language]:
    """The same as a server has loaded it."""
    graph, manifest = published(context)
    model = load(graph, name="mlp", version="1", manifest=manifest, threads=1, limits=LIMITS)
    found = language.read(manifest, model.schema, graph, model.cache)
    assert found is not None
    return model, found


def probabilities(context: int, places: list[int]) -> NDArray[np.float32]:
    """What follows by a whole run over all of these, which are one window."""
    assert 1 <= len(places) <= context
    feed = {"tokens": np.array([places], dtype=np.int64)}
    (found,) = session(context).run(["probabilities"], feed)
    return np.asarray(found)[0]


@cache
def session(context: int) -> Session:
    return open_session(published(context)[0])


def forgetful(graph: bytes) -> bytes:
    """The same graph as packages had it that can't be told the past."""
    model = onnx.ModelProto.FromString(graph)
    known = {each.name for each in model.graph.initializer}
    for values in (model.graph.input, model.graph.output):
        kept = [each for each in values if each.name not in known and not is_kept(each.name)]
        del values[:]
        values.extend(kept)
    return model.SerializeToString()
