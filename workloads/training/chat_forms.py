"""Chat templates as other programs write them: the few that are known, by their very text.

What they write is Jinja (https://huggingface.co/docs/transformers/chat_templating), a program that
comes with somebody's model. None is run here: one that is known, word for word, stands for a
`Template`, and any other is refused. So a model learns from conversations, and is asked, as its
first makers worded them, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from falaj.workloads.chat import CHATML, LLAMA_3, Template
from falaj.workloads.errors import WorkloadError


@dataclass(frozen=True)
class Form:
    """A template and how others write it.

    Attributes:
        name: for people.
        template: what it is here.
        names: of its marks, by their numbers; the last is the one that ends an answer.
        written: the Jinja that stands for it, as it is written here; then as others do.
    """

    name: str
    template: Template
    names: Mapping[int, str]
    written: tuple[str, ...]

    @property
    def end(self) -> str:
        """The name of the mark that ends an answer."""
        return self.names[self.template.end]


_PROMPT: Final = "{% if add_generation_prompt %}{{ %s }}{% endif %}"
_CHATML_ASKED: Final = _PROMPT.replace("%s", r"'<|im_start|>assistant\n'")
_LLAMA_ASKED: Final = _PROMPT.replace("%s", r"'<|start_header_id|>assistant<|end_header_id|>\n\n'")
_LLAMA_MESSAGES: Final = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    r"'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content']"
    "{trim} + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}"
)
FORMS: Final = (
    Form(
        "ChatML", CHATML, {0xF8: "<|im_start|>", 0xF9: "<|im_end|>"},
        (
            r"{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
            r"message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" + _CHATML_ASKED,
            r"{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
            r"message['content'] + '<|im_end|>\n' }}{% endfor %}" + _CHATML_ASKED,
        ),
    ),
    Form(
        "Llama 3", LLAMA_3,
        {
            0xFA: "<|begin_of_text|>", 0xFB: "<|start_header_id|>", 0xFC: "<|end_header_id|>",
            0xFD: "<|eot_id|>",
        },
        (
            _LLAMA_MESSAGES.replace("{trim}", "") + _LLAMA_ASKED,
            # White space at the ends of a message is kept here.
            _LLAMA_MESSAGES.replace("{trim}", " | trim") + _LLAMA_ASKED,
        ),
    ),
)  # fmt: skip
_LLAMA_2: Final = "[INST]"
_KNOWN: Final = ", ".join(each.name for each in FORMS)


def form_of(template: Template) -> Form:
    """Return how others write a template.

    Raises:
        WorkloadError: they don't.
    """
    for each in FORMS:
        if each.template == template:
            return each
    raise WorkloadError(f"its chat template is none that other programs know ({_KNOWN})")


def form_of_jinja(written: object) -> Form:
    """Return the form that a `chat_template` of another program stands for.

    Raises:
        WorkloadError: it is none that is known; says what to give.
    """
    text = written if isinstance(written, str) else ""
    for each in FORMS:
        if _plain(text) in map(_plain, each.written):
            return each
    if _LLAMA_2 in text:
        raise WorkloadError(
            "chat_template is Llama 2's, whose marks are plain text that a message can forge: "
            f"allowed are {_KNOWN}, or none; without one, conversations are worded in ChatML"
        )
    raise WorkloadError(
        f"chat_template is none of those that are known ({_KNOWN}), and no program is run to find "
        "out: put one of these there word for word, as `export` writes it, or remove it; without "
        "one, conversations are worded in ChatML"
    )


def _plain(text: str) -> str:
    """What is left of Jinja without what doesn't matter: spaces, quotes, lines within tags."""
    text = text.replace("{%-", "{%").replace("-%}", "%}").replace('"', "'").replace("\n", "\\n")
    return re.sub(r"\s+|(?<=%\})\\n|\\n(?=\{%)", "", text)
