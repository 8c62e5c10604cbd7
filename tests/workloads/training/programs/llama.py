"""What Hugging Face's programs make of folders of weights, in a process of their own.

Reads a JSON list of ``{"folder", "tokens", "text", "more"}`` and prints one of ``{"logits",
"numbers", "decoded", "text"}``: logits of the tokens, the numbers of a text and what they become
again, and the text with ``more`` characters, the likeliest each time. With ``again`` it writes the
model and what cuts its texts to that folder. Without ``text`` there are logits alone, of a folder
without a vocabulary. With ``messages`` there are also the tokens of that ``chat``, to be answered.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, logging


def answered(asked: dict[str, Any]) -> dict[str, Any]:
    model: Any = LlamaForCausalLM.from_pretrained(asked["folder"])
    if "text" not in asked:
        with torch.no_grad():
            return {"logits": model.eval()(torch.tensor(asked["tokens"])).logits.tolist()}
    tokeniser: Any = PreTrainedTokenizerFast.from_pretrained(asked["folder"])
    numbers = tokeniser(asked["text"], add_special_tokens=False).input_ids
    found = {"numbers": numbers, "decoded": tokeniser.decode(numbers)}
    if asked.get("messages"):
        found["chat"] = tokeniser.apply_chat_template(
            asked["messages"], add_generation_prompt=True, return_dict=False
        )
    if asked.get("again"):
        model.save_pretrained(asked["again"])
        tokeniser.save_pretrained(asked["again"])
    with torch.no_grad():
        if asked["tokens"]:
            found["logits"] = model.eval()(torch.tensor(asked["tokens"])).logits.tolist()
        if asked["more"]:
            made = model.generate(
                torch.tensor([numbers]), max_new_tokens=asked["more"], do_sample=False
            )
            found["text"] = tokeniser.decode(made[0, len(numbers) :])
    return found


logging.set_verbosity_error()
logging.disable_progress_bar()
print(json.dumps([answered(each) for each in json.load(sys.stdin)]))
