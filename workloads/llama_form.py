"""The form in which other programs read a language model: Llama's names, and its ``config.json``.

A decoder of Falaj's computes what Llama computes, so that what reads that form takes it.
https://huggingface.co/docs/transformers/model_doc/llama
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

WEIGHTS: Final = "model.safetensors"
CONFIGURATION: Final = "config.json"
ROTARY_BASE: Final = 10_000.0
"""Of the positions' frequencies."""
NORM_EPSILON: Final = 2.0**-23
"""What a norm adds where nothing is said: torch's, the distance of 1 from the next FP32."""
EMBEDDING: Final = "model.embed_tokens.weight"
NORM: Final = "model.norm.weight"
HEAD: Final = "lm_head.weight"
"""Of models whose matrix of tokens in isn't that of tokens out."""
OF_LAYER: Final = {
    "before": "input_layernorm",
    "between": "post_attention_layernorm",
    "attention.questions": "self_attn.q_proj",
    "attention.keys": "self_attn.k_proj",
    "attention.values": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "units.gate": "mlp.gate_proj",
    "units.up": "mlp.up_proj",
    "units.down": "mlp.down_proj",
}
"""Llama's names of a layer's parts, by a decoder's."""


@dataclass(frozen=True, kw_only=True)
class LlamaShape:
    """How large a model is.

    Attributes:
        tokens: that it tells apart.
        width: numbers between the layers.
        units: gated ones, in each layer.
        layers: one after the other.
        heads: of questions, in each layer.
        key_value_heads: of keys and values.
        context: tokens that are looked back on at most.
    """

    tokens: int
    width: int
    units: int
    layers: int
    heads: int
    key_value_heads: int
    context: int


def of_layer(number: int, part: str) -> str:
    """Return Llama's name of a part of a layer, one of `OF_LAYER`."""
    return f"model.layers.{number}.{OF_LAYER[part]}.weight"


def configuration(shape: LlamaShape, end: int | None, *, is_tied: bool = True) -> dict[str, Any]:
    """Return ``config.json``.

    Args:
        shape: of the model.
        end: the token that ends an answer; None: none does.
        is_tied: whether one matrix is for tokens in and out. Default: it is.
    """
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.tokens,
        "hidden_size": shape.width,
        "intermediate_size": shape.units,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_value_heads,
        "head_dim": shape.width // shape.heads,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": NORM_EPSILON,
        "rope_theta": ROTARY_BASE,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": is_tied,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": None,
        "torch_dtype": "float32",
    }
