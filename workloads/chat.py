"""How a conversation becomes tokens: the chat template of a language model.

A template is a plain declaration, never a program: what stands before and after a message of each
role, as texts and as marks. So nothing of a package is run to word a request. The `chat_template`
of other programs is Jinja, which can loop for ever and reaches Python's objects unless it is
fenced in; of those, forms that are known are recognised by their text, and no other one is run.

A mark is one of the bytes that no text in UTF-8 has, `MARKS`: each is a token of `BytePairs`
already, which `encode` gives for no text whatsoever. What somebody writes can therefore not end
their message, nor begin another one, and any model of byte pairs may be taught conversations
without another vocabulary. RFC 3629, 3: https://www.rfc-editor.org/rfc/rfc3629#section-3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from falaj.workloads.documents import is_dictionary, is_sequence, mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.vocabulary import BYTES, Vocabulary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MARKS: Final = range(0xF8, BYTES)
"""Tokens that no text has."""
SYSTEM: Final = "system"
USER: Final = "user"
ASSISTANT: Final = "assistant"
ROLES: Final = (SYSTEM, USER, ASSISTANT)
_FORMAT: Final = "falaj.chat/1"
_MOST_PARTS: Final = 8
_MOST_CHARACTERS: Final = 64

Part = int | str
"""A mark, or a text."""


@dataclass(frozen=True)
class Message:
    """A part of a conversation.

    Attributes:
        role: of `ROLES`.
        content: what it says.
    """

    role: str
    content: str


def disorder(messages: Sequence[Message]) -> str | None:
    """Return why messages aren't a conversation; None: they are one.

    Instructions come first, the user begins, and no role but the user's comes twice in a row.
    """
    for place, (before, each) in enumerate(zip((None, *messages), messages, strict=False)):
        came = before.role if before is not None else None
        if each.role == SYSTEM and place:
            return f"message {place + 1} is of '{SYSTEM}', which may only be the first"
        if each.role == ASSISTANT and came != USER:
            where = f"after '{came}'" if came else "first"
            return (
                f"message {place + 1} is of '{ASSISTANT}' and comes {where}: it answers '{USER}'"
            )
    return None


@dataclass(frozen=True)
class Around:
    """What stands around a message of a role.

    Attributes:
        before: with a mark at least.
        after: its content.
    """

    before: tuple[Part, ...]
    after: tuple[Part, ...]


@dataclass(frozen=True)
class Template:
    """How conversations become tokens.

    Attributes:
        begin: what stands before all messages.
        around: each of `ROLES`.
        end: the mark with which an answer of the assistant ends.

    Raises:
        WorkloadError: it wouldn't tell messages apart.
    """

    begin: tuple[Part, ...]
    around: Mapping[str, Around]
    end: int

    def __post_init__(self) -> None:
        if set(self.around) != set(ROLES):
            raise _wrong(f"it has no words for each of {', '.join(ROLES)}, and for no other")
        befores = [self.around[role].before for role in ROLES]
        for place, each in enumerate(befores):
            if not any(isinstance(part, int) for part in each):
                raise _wrong(f"no mark stands before a message of '{ROLES[place]}'")
            others = befores[:place] + befores[place + 1 :]
            if any(other[: len(each)] == each for other in others):
                raise _wrong(f"'{ROLES[place]}' begins as another role does")
        if self.around[ASSISTANT].after[:1] != (self.end,):
            raise _wrong("an answer doesn't end with its mark")
        if self.end in self.around[ASSISTANT].before:
            raise _wrong("an answer begins with the mark that ends it")

    @cached_property
    def marks(self) -> frozenset[int]:
        """All that it has."""
        parts = [*self.begin]
        for each in self.around.values():
            parts += [*each.before, *each.after]
        return frozenset(part for part in parts if isinstance(part, int))

    def to_json(self) -> dict[str, Any]:
        """Return it as `of_json` reads it."""
        return {
            "format": _FORMAT,
            "begin": list(self.begin),
            "roles": {
                role: {"before": list(each.before), "after": list(each.after)}
                for role, each in sorted(self.around.items())
            },
            "end": self.end,
        }

    # -- tokens ----------------------------------------------------------------------------

    def render(
        self, messages: Sequence[Message], vocabulary: Vocabulary, *, is_asked: bool
    ) -> list[int]:
        """Return the tokens of messages.

        Args:
            messages: in their order.
            vocabulary: that has `MARKS`.
            is_asked: whether an answer is to follow.
        """
        found = _tokens(self.begin, vocabulary)
        for each in messages:
            around = self.around[each.role]
            found += _tokens(around.before, vocabulary)
            found += vocabulary.encode(each.content)
            found += _tokens(around.after, vocabulary)
        return found + (_tokens(self.around[ASSISTANT].before, vocabulary) if is_asked else [])

    def answers(self, tokens: NDArray[np.int64], vocabulary: Vocabulary) -> NDArray[np.bool_]:
        """Tell which tokens of conversations the assistant says, with the mark that ends each.

        Args:
            tokens: (N, S), each row from a conversation's beginning.
            vocabulary: theirs.

        Returns:
            (N, S).
        """
        import numpy as np  # noqa: PLC0415 - who only asks whether there is a template lacks it

        before = np.array(_tokens(self.around[ASSISTANT].before, vocabulary), dtype=np.int64)
        length: int = tokens.shape[1]
        places = np.arange(length)
        begins = np.zeros(tokens.shape, dtype=np.bool_)
        if length > len(before):
            windows = np.lib.stride_tricks.sliding_window_view(tokens, len(before), axis=1)
            begins[:, len(before) :] = (windows == before).all(axis=2)[:, :-1]
        begun = np.maximum.accumulate(np.where(begins, places, -1), axis=1)
        ended = np.maximum.accumulate(np.where(tokens == self.end, places, -1), axis=1)
        # That which ends an answer belongs to it: only an end before a token counts.
        ended = np.concatenate([np.full((len(tokens), 1), -1), ended[:, :-1]], axis=1)
        return (begun >= 0) & (begun > ended)

    def read(self, tokens: Sequence[int], vocabulary: Vocabulary) -> list[Message]:
        """Return the whole messages of tokens, as `render` made them; what follows is left."""
        heads = {role: _tokens(self.around[role].before, vocabulary) for role in ROLES}
        place, found = len(_tokens(self.begin, vocabulary)), list[Message]()
        while True:
            role = next(
                (each for each, head in heads.items()
                 if list(tokens[place : place + len(head)]) == head), None
            )  # fmt: skip
            if role is None:
                return found
            start = end = place + len(heads[role])
            while end < len(tokens) and tokens[end] not in MARKS:
                end += 1
            after = _tokens(self.around[role].after, vocabulary)
            if list(tokens[end : end + len(after)]) != after:
                return found
            found.append(Message(role, vocabulary.decode(tokens[start:end])))
            place = end + len(after)


def _tokens(parts: Sequence[Part], vocabulary: Vocabulary) -> list[int]:
    found: list[int] = []
    for part in parts:
        found += [part] if isinstance(part, int) else vocabulary.encode(part)
    return found


def _chatml(start: int, end: int) -> Template:
    around = {role: Around((start, f"{role}\n"), (end, "\n")) for role in ROLES}
    return Template((), around, end)


def _llama(begin: int, start: int, close: int, end: int) -> Template:
    around = {role: Around((start, role, close, "\n\n"), (end,)) for role in ROLES}
    return Template((begin,), around, end)


CHATML: Final = _chatml(0xF8, 0xF9)
"""Of what Falaj teaches, and of many others' models:
https://github.com/openai/openai-python/blob/release-v0.28.0/chatml.md"""
LLAMA_3: Final = _llama(0xFA, 0xFB, 0xFC, 0xFD)
"""https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-3/"""


def of_json(value: object) -> Template:
    """Return what `Template.to_json` wrote.

    Raises:
        WorkloadError: it is no such template, and why.
    """
    given = mapping(value)
    if given.get("format") != _FORMAT or set(given) != {"format", "begin", "roles", "end"}:
        raise _wrong(f"it isn't of the format {_FORMAT!r}, with begin, roles and end alone")
    roles, end = given["roles"], given["end"]
    if not is_dictionary(roles):
        raise _wrong("its roles aren't an object")
    around: dict[str, Around] = {}
    for role, each in roles.items():
        marks = mapping(each)
        if set(marks) != {"before", "after"}:
            raise _wrong("a role has other members than before and after")
        around[role] = Around(_parts(marks["before"]), _parts(marks["after"]))
    if type(end) is not int or end not in MARKS:
        raise _wrong("its end is no mark")
    return Template(_parts(given["begin"]), around, end)


def described_template(dataset: object) -> Any:
    """Return what is said of a template; None: there is none.

    Args:
        dataset: dataset.json, or what a package's manifest says of the dataset.
    """
    features = mapping(dataset).get("features")
    return mapping(features[0]).get("chat") if is_sequence(features) and features else None


def template_of(dataset: object) -> Template | None:
    """Return the template of a dataset, likewise.

    Raises:
        WorkloadError: it is damaged.
    """
    described = described_template(dataset)
    return None if described is None else of_json(described)


def template_of_record(record: object) -> Template | None:
    """Return the template of what a run learned, by its record, likewise."""
    found = mapping(mapping(record).get("dataset"))
    return of_json(found["chat"]) if "chat" in found else None


def _parts(value: object) -> tuple[Part, ...]:
    if not is_sequence(value) or len(value) > _MOST_PARTS or not all(map(_is_part, value)):
        raise _wrong(
            f"what stands around messages aren't lists of up to {_MOST_PARTS} marks "
            f"({MARKS[0]} to {MARKS[-1]}) and texts of 1 to {_MOST_CHARACTERS} characters"
        )
    return tuple(value)


def _is_part(value: object) -> bool:
    if isinstance(value, str):
        return 1 <= len(value) <= _MOST_CHARACTERS
    return type(value) is int and value in MARKS


def _wrong(reason: str) -> WorkloadError:
    return WorkloadError(
        f"the chat template can't be used: {reason}. It was damaged, or made by another version: "
        "make the dataset again, and train and publish again"
    )
