"""OpenAI's API for chats: `/v1/chat/completions`.

https://platform.openai.com/docs/api-reference/chat: as `completions`, a request is checked whole
before it starts, and what it asks for that isn't offered is refused by name. Messages become
tokens by the package's chat template, whose marks no text has, so that a message can't be another
one's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from falaj.workloads.chat import ROLES, SYSTEM, USER, Message, Template, disorder
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.language.completions import (
    MOST_CHOICES,
    Asked,
    Completion,
    Fields,
)
from falaj.workloads.inference.language.generation import (
    MOST_ENCODED,
    Language,
    Prompt,
    Text,
)
from falaj.workloads.inference.language.likelihoods import MOST_LOGPROBS

MOST_MESSAGES: Final = 1_024
MOST_PARTS: Final = 64
"""Texts of one message."""
OF_CALLER: Final = ("user", "safety_identifier", "prompt_cache_key")
"""Texts that tell a caller's callers apart, of whom nothing else here knows."""
DEVELOPER: Final = "developer"
"""What OpenAI calls `SYSTEM` of newer models."""
FIELDS: Final = (
    "model", "messages", "max_completion_tokens", "max_tokens", "temperature", "top_p", "n",
    "stream", "stream_options", "stop", "seed", "logprobs", "top_logprobs", *OF_CALLER,
)  # fmt: skip
_WITHOUT_EFFECT: Final[Mapping[str, tuple[Any, ...]]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": (),
    "verbosity": (),
    "store": (False,),
    "metadata": ({},),
    "service_tier": ("auto", "default"),
}
"""Fields of OpenAI's that aren't offered, and values with which they would change nothing."""
_OF_MESSAGE: Final = ("role", "content")


def require_template(language: Language, name: str) -> Template:
    """Return how conversations become tokens.

    Args:
        language: the model's.
        name: the model's.

    Raises:
        RequestError: 404, the model has learned none.
    """
    if language.template is None:
        raise RequestError(
            404,
            f"'{name}' isn't a chat model: its package has no chat template, as it didn't learn "
            "from conversations; /v1/completions goes on with a text. A dataset of conversations "
            "(.jsonl) makes a chat model of it",
            field="model",
        )
    return language.template


def read(body: bytes | bytearray, model: str, language: Language, most_tokens: int) -> Asked:
    """Check a request's body.

    Args:
        body: of the request.
        model: the name of the one that is served.
        language: its tokens, and its template.
        most_tokens: that may be asked for.

    Raises:
        RequestError: 404, it is for another model, or that is none of chats; 400 for anything else
            that is wrong, with the field, what was given and what is allowed.
    """
    template = require_template(language, model)
    fields = Fields(body, "messages")
    fields.model(model)
    messages = _messages(fields)
    choices = fields.whole("n", 1, MOST_CHOICES, 1) or 1
    asked = _most(fields, most_tokens)
    sampling = fields.sampling()
    stream, usage = fields.streaming()
    stops = fields.stops()
    logprobs = _logprobs(fields)
    callers = fields.callers(*OF_CALLER)
    for name, allowed in _WITHOUT_EFFECT.items():
        fields.refuse(name, *allowed)
    fields.refuse_others(FIELDS)
    tokens = template.render(messages, language.vocabulary, is_asked=True)
    room = language.context - len(tokens)
    if room < 1:
        raise RequestError(
            400,
            f"messages: they have {len(tokens):,} tokens with what stands around them, and the "
            f"model looks back on {language.context:,}, of which its answer needs one at least: "
            "leave out the oldest messages",
            field="messages", code="context_length_exceeded",
        )  # fmt: skip
    begun = Prompt(tokens, 0, len(tokens))
    return Asked(
        prompts=(), begun=(begun,), most=min(asked, room), choices=choices, sampling=sampling,
        stops=stops, stream=stream, usage=usage, echo=False, logprobs=logprobs, callers=callers,
    )  # fmt: skip


def _most(fields: Fields, most_tokens: int) -> int:
    """Tokens of an answer: by the newer name, or by the older one."""
    newer = fields.whole("max_completion_tokens", 1, most_tokens, None)
    older = fields.whole("max_tokens", 1, most_tokens, None)
    if newer is not None and older is not None and newer != older:
        raise fields.error(
            "max_tokens", older, f"the same as max_completion_tokens ({newer}), or one of both"
        )
    return newer or older or most_tokens


def _logprobs(fields: Fields) -> int | None:
    is_told = fields.flag("logprobs")
    most = fields.whole("top_logprobs", 0, MOST_LOGPROBS, None)
    if most is not None and not is_told:
        raise RequestError(
            400, "top_logprobs is of logprobs: set logprobs to true, or leave it out",
            field="top_logprobs",
        )  # fmt: skip
    return (most or 0) if is_told else None


# -- messages ------------------------------------------------------------------------------


def _messages(fields: Fields) -> list[Message]:
    value = fields.take("messages")
    given = cast("list[Any]", value) if type(value) is list else []
    if not 1 <= len(given) <= MOST_MESSAGES:
        raise RequestError(
            400, f"messages: allowed is a list of 1 to {MOST_MESSAGES} messages", field="messages"
        )
    found = [_message(each, f"messages[{place}]") for place, each in enumerate(given)]
    if (characters := sum(len(each.content) for each in found)) > MOST_ENCODED:
        raise RequestError(
            400,
            f"messages: {characters:,} characters in all; allowed are {MOST_ENCODED:,}",
            field="messages",
        )
    reason = disorder(found)
    if reason is None and found[-1].role != USER:
        reason = f"the last message is of '{found[-1].role}'; answered is one of '{USER}'"
    if reason is not None:
        raise RequestError(400, f"messages: {reason}", field="messages")
    return found


def _message(value: Any, place: str) -> Message:
    if type(value) is not dict:
        raise _wrong(place, "allowed is an object with role and content")
    given = cast("dict[str, Any]", value)
    role = given.get("role")
    known = (*ROLES, DEVELOPER)
    if role not in known:
        shown = f"'{role[:40]}'" if isinstance(role, str) else "no text"
        raise _wrong(f"{place}.role", f"it is {shown}; allowed are {', '.join(known)}")
    for name, each in given.items():
        # What the client's own objects have where nothing is said.
        if name not in _OF_MESSAGE and each is not None and each != []:
            raise _wrong(
                f"{place}.{name[:40]}",
                f"it isn't offered here; allowed are {', '.join(_OF_MESSAGE)}",
            )
    content = _content(given.get("content"), f"{place}.content")
    return Message(SYSTEM if role == DEVELOPER else cast("str", role), content)


def _content(value: Any, place: str) -> str:
    """A message's text, which may be in parts. What was given isn't told: it is somebody's."""
    if type(value) is str:
        return value
    parts = cast("list[Any]", value) if type(value) is list else []
    if not 1 <= len(parts) <= MOST_PARTS:
        raise _wrong(place, f"allowed is a text, or a list of 1 to {MOST_PARTS} parts of text")
    found: list[str] = []
    for number, part in enumerate(parts):
        match part:
            case {"type": "text", "text": str(text), **others} if not others:
                found.append(text)
            case {"type": str(kind)} if kind != "text":
                raise _wrong(
                    f"{place}[{number}]", f"'{kind[:40]}' isn't offered here: allowed is text"
                )
            case _:
                raise _wrong(f"{place}[{number}]", 'allowed is {"type": "text", "text": "…"}')
    return "".join(found)


def _wrong(place: str, reason: str) -> RequestError:
    return RequestError(400, f"{place}: {reason}", field=place)


# -- answers -------------------------------------------------------------------------------


class ChatCompletion(Completion):
    """A request for answers to a conversation, that has a place, and what is answered."""

    prefix: ClassVar[str] = "chatcmpl"
    kind: ClassVar[str] = "chat.completion"
    piece: ClassVar[str] = "chat.completion.chunk"

    def choice(self, text: Text, shown: str) -> Mapping[str, Any]:
        """Return the message of an answer that has ended."""
        message = {"role": "assistant", "content": shown, "refusal": None}
        return self._said(text, shown, "message", message)

    def part(self, text: Text, shown: str) -> Mapping[str, Any]:
        """Return what is added to a message."""
        return self._said(text, shown, "delta", {"content": shown} if shown else {})

    def beginnings(self, texts: Sequence[Text]) -> Sequence[Mapping[str, Any]]:
        """Return for each answer who says it."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return [
            {"index": each.index, "delta": delta, "logprobs": None, "finish_reason": None}
            for each in texts
        ]

    def _said(
        self, text: Text, shown: str, what: str, content: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        most = self.logprobs
        logprobs = None if most is None else text.told.take_of_chat(shown, most)
        return {
            "index": text.index, what: content, "logprobs": logprobs, "finish_reason": text.finish,
        }  # fmt: skip
