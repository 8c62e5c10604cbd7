"""Conversations that a language model learns to answer in: their file, and the rows made of it.

A line of the file is one conversation in the form that OpenAI's fine-tuning takes, JSON with
``messages`` alone: https://platform.openai.com/docs/guides/supervised-fine-tuning. A row is one
conversation from its beginning, in tokens; what is over is filled up with the mark that ends an
answer. Only what the assistant says is learned: what else is predicted counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.chat import ASSISTANT, ROLES, Message, Template, disorder
from falaj.workloads.documents import TwiceError, is_sequence, mapping, parse_json
from falaj.workloads.errors import WorkloadError
from falaj.workloads.surrogates import half_of_pair
from falaj.workloads.training import language
from falaj.workloads.vocabulary import Vocabulary

VOCABULARY: Final = 1_024
"""Tokens that are learned where nothing else is asked for."""
LEAST: Final = 20
"""Conversations, of which some are held out."""
_MOST_SHOWN: Final = 60

Conversation = tuple[Message, ...]


def read(path: Path, encoding: str | None) -> list[Conversation]:
    """Read a file of conversations.

    Raises:
        WorkloadError: it can't be read, or a line is no conversation: names the first such line,
            and what in it.
    """
    found: list[Conversation] = []
    lines = language.read(path, encoding).split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(conversation_of(line, f"{path}, line {number:,}"))
    if not found:
        raise WorkloadError(f"{path} has no conversations: a line of JSON for each is needed")
    return found


def conversation_of(line: str, place: str) -> Conversation:
    """Return the conversation of a line.

    Args:
        line: in JSON.
        place: where it is, for messages.

    Raises:
        WorkloadError: it is none, and why.
    """
    allowed = (
        'a line is {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", '
        '"content": "…"}]}'
    )
    try:
        given: object = parse_json(line)
    except TwiceError as error:
        raise WorkloadError(
            f"{place}: an object has {_shown(error.key)} twice; {allowed}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{place}: it isn't JSON; {allowed}") from error
    document = mapping(given)
    if set(document) != {"messages"} or not is_sequence(document["messages"]):
        others = sorted(document.keys() - {"messages"})
        has = f"it has {_shown(others[0])}" if others else "it has no list of messages"
        raise WorkloadError(f"{place}: {has}; {allowed}, with messages alone")
    messages = [
        _message(each, f"{place}, message {count}")
        for count, each in enumerate(document["messages"], 1)
    ]
    reason = disorder(messages)
    if reason is None and not any(each.role == ASSISTANT for each in messages):
        reason = f"no message is of '{ASSISTANT}', and there is nothing to learn"
    if reason is not None:
        raise WorkloadError(f"{place}: {reason}")
    return tuple(messages)


def _message(given: object, place: str) -> Message:
    message = mapping(given)
    if set(message) != {"role", "content"}:
        others = sorted(message.keys() - {"role", "content"})
        has = f"it has {_shown(others[0])}" if others else "it isn't a role and a content"
        raise WorkloadError(f"{place}: {has}; allowed are role and content alone")
    if message["role"] not in ROLES:
        raise WorkloadError(
            f"{place}: the role is {_shown(message['role'])}; allowed are {', '.join(ROLES)}"
        )
    content = message["content"]
    if not isinstance(content, str) or (message["role"] == ASSISTANT and not content):
        what = "a text" if content != "" else "a text of one character at least"
        raise WorkloadError(f"{place}: its content isn't {what}")
    if (half := half_of_pair(content)) is not None:
        raise WorkloadError(
            f"{place}: its content has {_shown(half)}, which is half of a character; a whole one "
            "is written as it is, or as both of its halves"
        )
    return Message(message["role"], content)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


@dataclass(frozen=True)
class Rows:
    """Conversations as a model learns from them.

    Attributes:
        tokens: (N, S), each row from a conversation's beginning.
        after: the token after each row, (N,).
        kept: which of the conversations each row is, (N,).
        shortened: how many lost messages at their end.
        left_out: how many have no answer that fits.
    """

    tokens: NDArray[np.int64]
    after: NDArray[np.int64]
    kept: NDArray[np.int64]
    shortened: int
    left_out: int


def rows(
    conversations: Sequence[Conversation], template: Template, vocabulary: Vocabulary, context: int
) -> Rows:
    """Return conversations in tokens; a long one ends with its last answer that fits.

    Args:
        conversations: in their order.
        template: what stands around messages.
        vocabulary: of the tokens.
        context: tokens of a row.
    """
    made: list[list[int]] = []
    kept: list[int] = []
    shortened = 0
    most = context + 1
    for number, messages in enumerate(conversations):
        tokens = template.render(messages, vocabulary, is_asked=False)
        # What follows the end of the last answer is predicted nowhere.
        last = len(tokens) - 1 - tokens[::-1].index(template.end)
        if last < most:
            kept.append(number)
            made.append(tokens[:most])
            continue
        begun = np.array([tokens[:most]], dtype=np.int64)
        ends = np.flatnonzero(template.answers(begun, vocabulary) & (begun == template.end))
        if len(ends):
            shortened += 1
            kept.append(number)
            made.append(tokens[: int(ends[-1]) + 1])
    whole = np.full((len(made), most), template.end, dtype=np.int64)
    for place, tokens in enumerate(made):
        whole[place, : len(tokens)] = tokens
    return Rows(
        whole[:, :-1], whole[:, -1], np.array(kept, dtype=np.int64), shortened,
        len(conversations) - len(made),
    )  # fmt: skip


def wanted(
    tokens: NDArray[np.int64], after: NDArray[np.int64], template: Template, vocabulary: Vocabulary
) -> NDArray[np.int64]:
    """Return what is learned after each token of rows (N, S).

    It is the token that follows where the assistant says it, else `language.IGNORED`.

    Args:
        tokens: (N, S), as `rows` made them.
        after: the token after each row, (N,).
        template: that they were made with.
        vocabulary: theirs.
    """
    whole = np.concatenate([tokens, after[:, None]], axis=1)
    answers = template.answers(whole, vocabulary)
    return np.where(answers, whole, language.IGNORED)[:, 1:]


def messages_of(row: Sequence[int], template: Template, vocabulary: Vocabulary) -> list[Message]:
    """Return the messages of a row, as `rows` made it, with the token after it."""
    tokens = list(row)
    while tokens and tokens[-1] == template.end:
        tokens.pop()
    ended = template.render([Message(ASSISTANT, "")], vocabulary, is_asked=False)
    last = ended[ended.index(template.end) :]
    return max((template.read([*tokens, *rest], vocabulary) for rest in ([], last)), key=len)
