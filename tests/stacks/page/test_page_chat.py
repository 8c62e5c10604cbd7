"""A language model that answers to conversations, on the page."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.stacks.command import service
from falaj.stacks.page import conversation
from falaj.stacks.page.form import RowError
from falaj.stacks.page.live import EVERY
from falaj.workloads.chat import ASSISTANT, USER, Message
from tests.stacks.page.site import make_stack, serving
from tests.stacks.page.test_page import HOSTILE, Answer, Visitor, plain, require_harmless
from tests.workloads.inference.languages import NAME
from tests.workloads.inference.serving import started
from tests.workloads.inference.test_chats import ANSWER, manifest, model

WRITTEN = {"message": "Hello", "system": "", "max_tokens": "12", "temperature": "0"}
KEPT = re.compile(r'name="conversation" form="ask" value="([^"]*)"')


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    root = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FALAJ_HOME", str(root / "home"))
        stack, site = make_stack(root, NAME)
        version = site.publish(model(), fields=manifest())
        with started(site, version), serving(stack) as running:
            yield Visitor(running)


def kept(answer: Answer) -> str:
    (found,) = KEPT.findall(answer.text)
    return html.unescape(found)


def said(answer: Answer) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in json.loads(kept(answer))]


def sent(answer: Answer) -> dict[str, object]:
    (found,) = re.findall(r'aria-label="What was sent">([^<]*)<', answer.text)
    return json.loads(html.unescape(found))


def test_live_figures_are_of_texts(visitor: Visitor) -> None:
    def counts() -> list[int]:
        shown = plain(visitor.get("/").text)
        found = re.search(r"([\d,]+) answered, (\d+) failed", shown)
        assert found is not None, shown
        return [int(each) for each in found.groups()]

    visitor.get("/")
    time.sleep(EVERY)
    before = counts()
    assert visitor.post("/predict", WRITTEN, X_Part="1").status == 200
    time.sleep(EVERY)
    assert counts() == [before[0] + 1, before[1]]
    shown = visitor.get("/").text
    assert "First token of 99 %" in shown
    assert "tokens per second" in shown


def test_a_conversation_goes_on_and_begins_anew(visitor: Visitor) -> None:
    shown = visitor.get("/").text
    require_harmless(shown)
    for each in ("Your message", "Instructions", "Send", "The conversation comes here."):
        assert each in plain(shown)
    assert "Text to go on with" not in plain(shown)
    first = visitor.post("/predict", WRITTEN | {"system": "Be brief."}, X_Part="1")
    assert first.status == 200, first.text
    require_harmless(first.text)
    assert said(first) == [(USER, "Hello"), (ASSISTANT, ANSWER)]
    assert "version 1 answered" in plain(first.text)
    assert sent(first)["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
    ]  # fmt: skip
    # As a browser without scripts sends it: the whole page comes back, the message is empty again.
    again = visitor.post("/predict", WRITTEN | {"message": "a\r\nb", "conversation": kept(first)})
    assert again.status == 200
    assert said(again) == [*said(first), (USER, "a\nb"), (ASSISTANT, ANSWER)]
    assert again.text.count('<li class="turn') == 4
    assert re.search(r'<textarea id="message"[^>]*>\n</textarea>', again.text)
    anew = visitor.post("/predict", WRITTEN | {"conversation": kept(again), "anew": "1"})
    assert anew.status == 200
    assert said(anew) == []
    assert "The conversation comes here." in plain(anew.text)
    assert ">\nHello</textarea>" in anew.text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"message": " \n"}, "write what the model is to answer"),
        ({"max_tokens": "0"}, "max_tokens: got 0, allowed is a whole number from 1 to 1024"),
        ({"temperature": "hot"}, "'hot' is no number"),
        ({"message": "long " * 200}, "leave out the oldest messages"),
        ({"conversation": "{"}, "what was said until now can't be read; begin anew"),
        ({"conversation": '[{"role": "user", "content": "x"}]'}, "can't be read"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_lost(
    visitor: Visitor, given: dict[str, str], says: str
) -> None:
    turns = conversation.kept([Message(USER, "before"), Message(ASSISTANT, "and after")])
    answer = visitor.post("/predict", WRITTEN | {"conversation": turns} | given)
    assert answer.status == 400
    assert says in plain(answer.text)
    require_harmless(answer.text)
    assert "Begin anew" in answer.text
    if "conversation" not in given:
        assert said(answer) == [(USER, "before"), (ASSISTANT, "and after")]
    if "message" not in given:
        assert ">\nHello</textarea>" in answer.text


def test_hostile_turns_stay_texts(visitor: Visitor) -> None:
    odd = f"{HOSTILE}</textarea><script>alert(1)</script>\x00\x1b[2J"
    turns = conversation.kept([Message(USER, odd), Message(ASSISTANT, odd)])
    answer = visitor.post(
        "/predict", WRITTEN | {"message": HOSTILE, "conversation": turns}, X_Part="1"
    )
    # It is longer than the model looks back on; what was said is shown all the same.
    assert answer.status in (200, 400)
    require_harmless(answer.text)
    assert "\x00" not in answer.text
    assert "\x1b" not in answer.text
    assert said(answer)[:2] == [(USER, odd), (ASSISTANT, odd)]


_TEXTS = st.text(max_size=20)


@settings(deadline=None)
@given(st.lists(st.tuples(_TEXTS, _TEXTS), max_size=4))
def test_what_is_kept_comes_back(pairs: list[tuple[str, str]]) -> None:
    turns = [
        Message(role, each)
        for pair in pairs
        for role, each in zip((USER, ASSISTANT), pair, strict=True)
    ]
    text = conversation.kept(turns)
    assert text.isascii()
    assert text.isprintable()
    assert conversation.turns_of({"conversation": text}) == turns


@given(
    st.text(max_size=30)
    | st.recursive(
        st.none() | st.integers() | st.sampled_from([USER, ASSISTANT, "system", "\ud800"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["role", "content"]), inner, max_size=2)
        ),
        max_leaves=8,
    ).map(json.dumps)
)
def test_what_is_no_conversation_is_refused(text: str) -> None:
    try:
        found = conversation.turns_of({"conversation": text})
    except RowError:
        return
    assert [each.role for each in found] == [USER, ASSISTANT] * (len(found) // 2)


@pytest.mark.parametrize(
    "document", [None, [], {"choices": []}, {"choices": [{"message": {"content": 1}}]}]
)
def test_what_is_no_answer(document: object) -> None:
    assert conversation.reply_of(document) is None


def test_status_has_the_address_that_is_called(
    visitor: Visitor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert service.status(visitor.running.page.stack) == 0
    shown = capsys.readouterr().out
    assert "/v1/chat/completions" in shown
    assert "/infer" not in shown
