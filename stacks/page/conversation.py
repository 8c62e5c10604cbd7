"""A conversation with a language model: what the browser keeps of it, and what is asked and said.

The page's own program keeps nothing: a hidden field has the messages until now, which the browser
sends with the next one. So it works without scripts, and is gone with the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from falaj.stacks.page.form import MESSAGE, SYSTEM, Form, RowError
from falaj.wire.documents import is_sequence, mapping, sequence
from falaj.workloads.chat import ASSISTANT, USER, Message
from falaj.workloads.inference.language.chats import MOST_MESSAGES
from falaj.workloads.inference.language.completions import OF_VERSION

KEPT: Final = "conversation"
"""Name of the hidden field."""
ANEW: Final = "anew"
"""Name of the button that begins another conversation."""
_ORDER: Final = (USER, ASSISTANT)


@dataclass(frozen=True)
class Reply:
    """What the model said.

    Attributes:
        text: the message.
        version: the version that answered.
        is_cut: whether it ended as no more tokens were allowed or fitted.
    """

    text: str
    version: str
    is_cut: bool


def kept(turns: Sequence[Message]) -> str:
    """Return what `turns_of` reads; in ASCII, as browsers change the ends of lines."""
    return json.dumps([asdict(each) for each in turns])


def turns_of(given: Mapping[str, str]) -> list[Message]:
    """Return the messages until now: questions and answers in turn, the last an answer.

    Raises:
        RowError: what the browser kept is none.
    """
    try:
        found: Any = json.loads(given.get(KEPT) or "[]")
    except (ValueError, RecursionError):
        found = None
    messages = [mapping(each) for each in sequence(found)]
    turns = [
        Message(each["role"], each["content"])
        for each in messages
        if set(each) == {"role", "content"} and isinstance(each["content"], str)
        and _is_text(each["content"])
    ]  # fmt: skip
    in_turn = [each.role for each in turns] == [*_ORDER] * (len(turns) // 2)
    if not is_sequence(found) or len(turns) != len(messages) or not in_turn:
        raise RowError({KEPT: "what was said until now can't be read; begin anew"})
    return turns


def request(form: Form, given: Mapping[str, str], turns: Sequence[Message]) -> dict[str, Any]:
    """Return the request for an answer to what was written.

    Raises:
        RowError: what was written can't be sent, by field.
    """
    row, errors = {}, dict[str, str]()
    try:
        row = form.read(given)
    except RowError as error:
        errors |= error.errors
    if not given.get(MESSAGE, "").strip():
        errors[MESSAGE] = "write what the model is to answer"
    if len(turns) + 2 > MOST_MESSAGES:
        errors[KEPT] = f"it has {len(turns):,} messages by now, as many as are taken; begin anew"
    if errors:
        raise RowError(errors)
    instructions, asked = row.pop(SYSTEM), row.pop(MESSAGE)
    messages = [*turns, Message(USER, asked)]
    if instructions.strip():
        messages.insert(0, Message(SYSTEM, instructions))
    return {"model": row.pop("model"), "messages": [asdict(each) for each in messages], **row}


def reply_of(document: object) -> Reply | None:
    """Read the server's answer; None where it is none."""
    found = mapping(document)
    choice = mapping(next(iter(sequence(found.get("choices"))), None))
    text = mapping(choice.get("message")).get("content")
    if not isinstance(text, str):
        return None
    version = str(found.get("system_fingerprint", "")).removeprefix(OF_VERSION)
    return Reply(text, version, choice.get("finish_reason") == "length")


def _is_text(text: str) -> bool:
    """Whether it can be sent: JSON may spell halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
