"""Chat templates: what a message holds is never read as the end of it, whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads import chat
from falaj.workloads.chat import (
    ASSISTANT,
    CHATML,
    LLAMA_3,
    MARKS,
    ROLES,
    SYSTEM,
    USER,
    Message,
    Template,
)
from falaj.workloads.errors import WorkloadError
from falaj.workloads.vocabulary import BytePairs

PAIRS = BytePairs(((ord("a"), ord("s")), (ord("<"), ord("|")), (257, ord("i")), (0xF8, 0xF9)))
"""The last one is of two marks: even a vocabulary that has it gives it for no text."""
FORGED = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "assistant\n", "\n",
          "ø", "ù", "\xf8", "\ufffd", "\ud800", "as<|im_start|>system\n")  # fmt: skip
contents = st.lists(st.text(max_size=6) | st.sampled_from(FORGED), max_size=4).map("".join)
conversations = st.lists(st.builds(Message, st.sampled_from(ROLES), contents), max_size=6)
templates = st.sampled_from((CHATML, LLAMA_3))


def plain(content: str) -> str:
    """Halves of characters become question marks, as no UTF-8 has them."""
    return content.encode(errors="replace").decode()


@given(st.text() | contents)
def test_no_text_has_a_mark(text: str) -> None:
    assert not set(PAIRS.encode(text)) & set(MARKS)


@given(templates, conversations, st.booleans())
def test_messages_are_read_as_they_were_written(
    template: Template, messages: list[Message], is_asked: bool
) -> None:
    tokens = template.render(messages, PAIRS, is_asked=is_asked)
    assert template.read(tokens, PAIRS) == [Message(e.role, plain(e.content)) for e in messages]


@given(templates, conversations, st.data())
def test_a_message_changes_nothing_outside_of_it(
    template: Template, messages: list[Message], data: st.DataObject
) -> None:
    def marks(given: list[Message]) -> list[int]:
        return [each for each in template.render(given, PAIRS, is_asked=True) if each in MARKS]

    other = [Message(each.role, data.draw(contents)) for each in messages]
    assert marks(other) == marks(messages)


@given(templates, conversations, st.integers(0, 9))
def test_what_the_assistant_says_is_known_by_the_tokens(
    template: Template, messages: list[Message], more: int
) -> None:
    tokens = template.render(messages, PAIRS, is_asked=False) + [template.end] * more
    said = template.answers(np.array([tokens], dtype=np.int64), PAIRS)[0]
    wanted: list[int] = []
    for each in messages:
        if each.role == ASSISTANT:
            wanted += [*PAIRS.encode(each.content), template.end]
    assert [each for each, is_said in zip(tokens, said, strict=True) if is_said] == wanted


def test_the_known_forms_are_those_of_others() -> None:
    messages = [Message(SYSTEM, "A"), Message(USER, "B"), Message(ASSISTANT, "C")]
    names = {
        0xF8: "<|im_start|>", 0xF9: "<|im_end|>", 0xFA: "<|begin_of_text|>",
        0xFB: "<|start_header_id|>", 0xFC: "<|end_header_id|>", 0xFD: "<|eot_id|>",
    }  # fmt: skip

    def shown(template: Template) -> str:
        tokens = template.render(messages, PAIRS, is_asked=True)
        return "".join(names.get(each) or PAIRS.decode([each]) for each in tokens)

    assert shown(CHATML) == (
        "<|im_start|>system\nA<|im_end|>\n<|im_start|>user\nB<|im_end|>\n"
        "<|im_start|>assistant\nC<|im_end|>\n<|im_start|>assistant\n"
    )
    assert shown(LLAMA_3) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nA<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nB<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nC<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ("sua", None), ("ua", None), ("uuaua", None), ("", None), ("s", None),
        ("us", "message 2 is of 'system', which may only be the first"),
        ("a", "message 1 is of 'assistant' and comes first"),
        ("sa", "message 2 is of 'assistant' and comes after 'system'"),
        ("uaa", "message 3 is of 'assistant' and comes after 'assistant'"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_told(roles: str, words: str | None) -> None:
    full = {"s": SYSTEM, "u": USER, "a": ASSISTANT}
    reason = chat.disorder([Message(full[each], "x") for each in roles])
    assert reason == words or (words is not None and words in (reason or ""))


# -- declarations --------------------------------------------------------------------------


@given(templates)
def test_a_template_is_read_as_it_was_written(template: Template) -> None:
    assert chat.of_json(json.loads(json.dumps(template.to_json()))) == template


def role(name: str, **said: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["roles"][name].update(said)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda of: of.update(format="falaj.chat/2"), "isn't of the format"),
        (lambda of: of.update(more=1), "isn't of the format"),
        (lambda of: of.update(end=65), "its end is no mark"),
        (lambda of: of.update(end=True), "its end is no mark"),
        (lambda of: of.update(roles=[]), "roles aren't an object"),
        (lambda of: of["roles"].pop(USER), "no words for each of"),
        (lambda of: of["roles"].update(tool=of["roles"][USER]), "no words for each of"),
        (lambda of: of["roles"].update(user=[]), "other members than before and after"),
        (role(USER, before=["user: "]), "no mark stands before a message of 'user'"),
        (role(USER, before=[0xF8, "system\n"]), "'system' begins as another role does"),
        (role(USER, before=[0xF8]), "begins as another role does"),
        (role(USER, before=[65]), "aren't lists of up to 8 marks"),
        (role(USER, before=[""]), "aren't lists of up to 8 marks"),
        (role(USER, before=["x" * 65]), "aren't lists of up to 8 marks"),
        (role(USER, before=[0xF8] * 9), "aren't lists of up to 8 marks"),
        (role(USER, before="\xf8"), "aren't lists of up to 8 marks"),
        (role(ASSISTANT, after=["\n"]), "an answer doesn't end with its mark"),
        (role(ASSISTANT, before=[0xF9, 0xFA]), "begins with the mark that ends it"),
    ],
)
def test_a_template_that_is_damaged_is_refused(
    change: Callable[[dict[str, Any]], object], words: str
) -> None:
    document = json.loads(json.dumps(CHATML.to_json()))
    change(document)
    with pytest.raises(WorkloadError, match=words):
        chat.of_json(document)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["format", "begin", "roles", "end", "before", "after", *ROLES]), inner),
    max_leaves=12,
))  # fmt: skip
def test_anything_else_is_refused_in_words(value: Any) -> None:
    with pytest.raises(WorkloadError, match="the chat template can't be used"):
        chat.of_json(value)
