"""A language model on the page: it goes on with what somebody writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from falaj.stacks.command import service
from tests.stacks.page.site import make_stack, serving
from tests.stacks.page.test_page import HOSTILE, Visitor, plain, require_harmless
from tests.workloads.inference.languages import (
    CHARACTERS,
    NAME,
    bigrams,
    fields,
    greedy,
    publish,
    table,
)
from tests.workloads.inference.serving import started

WRITTEN = {"prompt": "a b", "max_tokens": "12", "temperature": "0"}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    root = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FALAJ_HOME", str(root / "home"))
        stack, site = make_stack(root, NAME)
        with started(site, publish(site)), serving(stack) as running:
            yield Visitor(running)


def test_a_text_is_gone_on_with(visitor: Visitor) -> None:
    shown = visitor.get("/").text
    require_harmless(shown)
    assert "Text to go on with" in plain(shown)
    assert "Go on" in plain(shown)
    assert "Predict a row" not in plain(shown)
    assert "Drift isn't watched of a language model" in plain(shown)
    assert "no reference" not in plain(shown)
    answer = visitor.post("/predict", WRITTEN, X_Part="1")
    assert answer.status == 200, answer.text
    require_harmless(answer.text)
    assert f'<span class="meta">a b</span>{greedy("a b", 12)}</p>' in answer.text
    assert "version 1 answered" in plain(answer.text)
    whole = visitor.post("/predict", WRITTEN)
    assert whole.status == 200
    assert greedy("a b", 12) in whole.text
    assert ">\na b</textarea>" in whole.text


def test_status_has_the_address_that_is_called(
    visitor: Visitor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert service.status(visitor.running.page.stack) == 0
    shown = capsys.readouterr().out
    assert "/v1/completions" in shown
    assert "/infer" not in shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_tokens": "some"}, "'some' is no whole number"),
        ({"max_tokens": ""}, "'' is no whole number"),
        ({"max_tokens": "-1"}, "-1 is outside of 0 to"),
        ({"max_tokens": "0"}, "max_tokens: got 0, allowed is a whole number from 1 to 1024"),
        ({"temperature": ""}, "this model needs a number here"),
        ({"temperature": "hot"}, "'hot' is no number"),
        ({"temperature": "3"}, "temperature: got 3.0, allowed is a number from 0 to 2"),
    ],
)
def test_what_is_wrong_is_told_by_its_field(
    visitor: Visitor, given: dict[str, str], said: str
) -> None:
    answer = visitor.post("/predict", WRITTEN | given, X_Part="1")
    assert answer.status == 400
    assert said in plain(answer.text)


def test_a_hostile_text_stays_a_text(visitor: Visitor) -> None:
    answer = visitor.post("/predict", WRITTEN | {"prompt": HOSTILE, "max_tokens": "3"}, X_Part="1")
    assert answer.status == 200
    require_harmless(answer.text)
    assert "onerror=alert" in plain(answer.text)


def test_a_hostile_vocabulary_stays_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    stack, site = make_stack(tmp_path, NAME)
    hostile = "".join(dict.fromkeys("\ufffd" + HOSTILE))[: len(CHARACTERS)]
    version = site.publish(bigrams(table(0, hostile), hostile), fields=fields(hostile))
    with started(site, version), serving(stack) as running:
        answer = Visitor(running).post("/predict", WRITTEN | {"max_tokens": "300"}, X_Part="1")
    assert answer.status == 200
    require_harmless(answer.text)
