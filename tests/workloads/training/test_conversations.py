"""Conversations: their file, the rows made of it, what is learned of them, and who is asked."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from falaj.workloads import demo
from falaj.workloads.chat import ASSISTANT, CHATML, LLAMA_3, USER, Message, template_of
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization import __main__ as optimization
from falaj.workloads.optimization import card_text
from falaj.workloads.optimization.worth import NotComparableError, Served
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import batches, conversations, language, llama, loop, snapshot
from falaj.workloads.training import command as training
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.conversations import Conversation
from falaj.workloads.training.language import IGNORED
from falaj.workloads.training.start import open_start
from falaj.workloads.vocabulary import BytePairs, Characters
from tests.workloads.inference.serving import Site, call, started
from tests.workloads.optimization.conftest import Run, called, trained

CITIES = {"دبي": "Dubai", "العين": "Al Ain", "عجمان": "Ajman", "Sharjah": "الشارقة"}
CONTEXT = 64
PAIRS = BytePairs(((ord("a"), ord("b")),))


def exchange(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def written(folder: Path, count: int = 120) -> Path:
    chosen, lines = random.Random(2), list[str]()
    for number in range(count):
        city = chosen.choice([*CITIES])
        messages = exchange(f"{city} {number}?", f"{CITIES[city]}.")
        if number % 3 == 0:
            messages.insert(0, {"role": "system", "content": "Translate."})
        lines.append(json.dumps({"messages": messages}, ensure_ascii=False))
    path = folder / "cities.jsonl"
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return path


def source(path: Path, **more: Any) -> datasets.Source:
    said: dict[str, Any] = {"context": CONTEXT, "vocabulary": 256} | more
    return datasets.Source(str(path), **said)


# -- the file ------------------------------------------------------------------------------


GOOD = json.dumps({"messages": exchange("a", "b")})
BAD: list[tuple[str, str]] = [
    ("{", "line 2: it isn't JSON; a line is"),
    ("[" * 100_000, "line 2: it isn't JSON; a line is"),
    ("[]", "line 2: it has no list of messages; a line is"),
    ('{"messages": {}}', "line 2: it has no list of messages"),
    ('{"messages": [], "tools": []}', 'line 2: it has "tools"; a line is'),
    ('{"messages": []}', "line 2: no message is of 'assistant', and there is nothing to learn"),
    ('{"messages": ["a"]}', "line 2, message 1: it isn't a role and a content; allowed are role"),
    ('{"messages": [{"role": "user", "content": "a", "weight": 1}]}',
     'line 2, message 1: it has "weight"; allowed are role and content alone'),
    ('{"messages": [{"role": "tool", "content": "a"}]}',
     'line 2, message 1: the role is "tool"; allowed are system, user, assistant'),
    ('{"messages": [{"role": "user", "content": ["a"]}]}',
     "line 2, message 1: its content isn't a text"),
    (json.dumps({"messages": exchange("a", "")}),
     "line 2, message 2: its content isn't a text of one character at least"),
    (json.dumps({"messages": exchange("a", "b")[1:]}),
     "line 2: message 1 is of 'assistant' and comes first: it answers 'user'"),
    (json.dumps({"messages": exchange("a", "b")[:1]}), "line 2: no message is of 'assistant'"),
    (json.dumps({"messages": [*exchange("a", "b"), {"role": "system", "content": "c"}]}),
     "line 2: message 3 is of 'system', which may only be the first"),
    ('{"messages": [], "messages": []}', 'line 2: an object has "messages" twice; a line is'),
    ('{"messages": [{"role": "user", "content": "a", "content": "b"}]}',
     'line 2: an object has "content" twice; a line is'),
    (json.dumps({"messages": exchange("a\ud800b", "c")}),
     'line 2, message 1: its content has "\\ud800", which is half of a character'),
    (json.dumps({"messages": exchange("a", "\udfff")}),
     'line 2, message 2: its content has "\\udfff", which is half of a character'),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), BAD)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(WorkloadError) as caught:
        conversations.read(path, None)
    assert f"{path}, {words}" in str(caught.value)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["messages", "role", "content"]), inner), max_leaves=8,
))  # fmt: skip
def test_any_line_is_read_or_refused_in_words(value: Any) -> None:
    try:
        found = conversations.conversation_of(json.dumps(value), "line 1")
    except WorkloadError as error:
        assert str(error).startswith("line 1")
    else:
        assert ASSISTANT in {each.role for each in found}


def test_what_cant_be_a_dataset_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    for more, words in (
        ({"target": "x"}, "leave --target away"),
        ({"task": "regression"}, "use --task auto"),
        ({"vocabulary": Characters(("\ufffd", "a"))}, "--vocabulary-of knows characters alone"),
        ({"context": 8}, "120 of 120 conversations of .* take a larger --context"),
        ({"context": 7}, "--context is 7"),
    ):
        with pytest.raises(WorkloadError, match=words):
            datasets.build(source(path, **more))
    path.write_text(f"{GOOD}\n" * 50, encoding="utf-8")
    with pytest.raises(WorkloadError, match="has 1 different conversations; at least 20"):
        datasets.build(source(path))
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match="has no conversations: a line of JSON"):
        datasets.build(source(path))


# -- rows ----------------------------------------------------------------------------------

messages = st.text(alphabet="ab \nø", max_size=12)
talks: st.SearchStrategy[Conversation] = st.lists(
    st.tuples(messages, messages.filter(bool)), min_size=1, max_size=4
).map(
    lambda pairs: tuple(
        each for one, other in pairs for each in (Message(USER, one), Message(ASSISTANT, other))
    )
)


@given(st.lists(talks, min_size=1, max_size=5), st.sampled_from((CHATML, LLAMA_3)))
def test_rows_are_whole_exchanges_and_only_answers_are_learned(
    found: list[Conversation], template: Any
) -> None:
    made = conversations.rows(found, template, PAIRS, CONTEXT)
    assert len(made.after) + made.left_out == len(found)
    wanted = conversations.wanted(made.tokens, made.after, template, PAIRS)
    for row, after, asked, number in zip(
        made.tokens.tolist(), made.after.tolist(), wanted.tolist(), made.kept.tolist(), strict=True
    ):
        whole = found[number]
        read = conversations.messages_of([*row, after], template, PAIRS)
        assert tuple(read) == whole[: len(read)]
        said = [each for each in asked if each != IGNORED]
        answers = [each.content for each in read if each.role == ASSISTANT]
        assert answers
        assert PAIRS.decode(each for each in said if each != template.end) == "".join(answers)
        assert said.count(template.end) == len(answers)
        # What is wanted is what follows.
        following = [*row[1:], after]
        assert all(each in (IGNORED, one) for each, one in zip(asked, following, strict=True))


def test_a_dataset_says_what_was_done(tmp_path: Path) -> None:
    path = written(tmp_path)
    long = json.dumps({"messages": [*exchange("a", "b"), *exchange("c", "d" * 199)]})
    with path.open("a", encoding="utf-8") as stream:
        stream.write(
            "\n".join([long, GOOD, GOOD, json.dumps({"messages": exchange("e" * 199, "f")})])
        )
    made = datasets.build(source(path, context=100))
    said = made.description
    assert (said["family"], said["task"]) == ("text", "language")
    assert template_of(said) == made.template == CHATML
    assert said["rows"] == {"total": 122, "train": 97, "held_out": 25, "dropped": 2}
    assert said["notes"] == [
        "122 conversations, in tokens of 256 different ones; a row is one of up to 100, of which "
        "the assistant's are learned",
        "1 conversations were left out: they are there before",
        "1 are longer, and end with their last answer that fits",
        "1 were left out: not even their first answer fits",
    ]
    # Nobody's words lie in the open.
    assert "Translate" not in json.dumps(said)
    other = datasets.build(source(path, vocabulary=None))
    assert said["content_digest"] == other.description["content_digest"]
    assert said["digest"] != other.digest


def test_a_snapshot_is_opened_as_it_was_made(tmp_path: Path) -> None:
    made = datasets.build(source(written(tmp_path)))
    opened = snapshot.open_dataset(datasets.write(made, tmp_path / "kept", None), None)
    assert opened.template == CHATML
    for part in ("train", "held_out"):
        tokens, wanted = batches.windows(opened, part)
        assert np.array_equal(wanted.numpy(), made.wanted(part))
        assert tokens.shape == wanted.shape
        assert (wanted != IGNORED).any(1).all()


# -- what is learned -----------------------------------------------------------------------


def test_only_what_is_wanted_counts() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 4, 6)
    wanted = torch.tensor([[1, IGNORED, 2, IGNORED], [IGNORED] * 4])
    losses = loop.row_losses(logits, wanted, "language", 0.0)
    first = functional.cross_entropy(logits[0, [0, 2]], torch.tensor([1, 2]))
    assert losses.tolist() == pytest.approx([float(first), 0.0])
    whole = torch.randint(0, 6, (2, 4))
    mean = functional.cross_entropy(logits.flatten(0, 1), whole.flatten(), reduction="none")
    assert torch.allclose(loop.row_losses(logits, whole, "language", 0.0), mean.view(2, 4).mean(1))
    _, hits = loop.follow_rows(lambda _: logits, whole, logits.argmax(-1).where(
        wanted != IGNORED, IGNORED), 6)  # fmt: skip
    assert hits.tolist() == [1.0, 0.0]


def test_figures_are_of_what_is_wanted() -> None:
    wanted = np.array([[IGNORED, 97, 256, IGNORED]])
    assert language.tokens_a_character(PAIRS, wanted) == pytest.approx(2 / 3)
    assert language.guess_nats(wanted, wanted) == pytest.approx(
        float(-np.log(np.array([2, 2]) / 259).mean())
    )


@pytest.fixture(scope="module")
def cities(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("cities")
    cut = ("--source", str(written(folder)), "--vocabulary", "280", "--context", str(CONTEXT))
    small = ("--width", "32", "--layers", "2", "--heads", "2", "--key-value-heads", "1",
             "--learning-rate", "0.01", "--batch-size", "16")  # fmt: skip
    return trained(folder, *cut, epochs=14, model="auto", more=small)


@pytest.fixture(scope="module")
def made(cities: Run) -> Path:
    output = cities.path.parent / "optimised"
    done = called(
        optimization.main, "--run", str(cities.path), "--dataset", str(cities.dataset),
        "--output", str(output), "--engine", "onnxruntime", "--quantise", "never",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output


def told(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_record_judges_answers_alone(cities: Run) -> None:
    opened = snapshot.open_dataset(cities.dataset, None)
    figures = told(cities.path / "record.json")["metrics"]["held_out"]
    wanted = opened.wanted("held_out")
    assert figures["rows"] == len(wanted)
    assert figures["tokens"] == int((wanted != IGNORED).sum())
    # With the mark of the end each answer has a character more.
    assert figures["characters"] < figures["tokens"] + len(wanted)
    assert figures["nats_per_character"] < figures["baseline_nats"]
    assert load_trained(cities.path, None).template == CHATML


def test_a_package_says_how_it_is_asked(made: Path, cities: Run) -> None:
    fields = told(made / "fields.json")
    assert template_of(fields["dataset"]) == CHATML
    nats = told(cities.path / "record.json")["metrics"]["held_out"]["nats_per_character"]
    score = told(made / "optimization.json")["float"]["nats_per_character"]
    assert score == pytest.approx(nats, rel=1e-3)
    lines = dict(card_text.lines(fields))
    assert lines["judged by"] == "what the assistant says in held-out conversations"
    assert "conversations" in lines


def test_a_version_is_compared_by_its_answers(made: Path, cities: Run) -> None:
    fields, about = told(made / "fields.json"), told(cities.dataset / "dataset.json")
    rows = snapshot.load_rows(cities.dataset, None, "held_out")
    package: Any = SimpleNamespace(
        manifest=fields, version=1, read=lambda name: (made / name).read_bytes()
    )
    losses, chosen = Served(package, None).losses(rows, about)
    assert chosen.all()
    figures = told(cities.path / "record.json")["metrics"]["held_out"]
    assert losses["nats_per_character"].mean() == pytest.approx(
        figures["nats_per_token"], rel=1e-3
    )
    other = json.loads(json.dumps(about))
    other["features"][0]["chat"] = LLAMA_3.to_json()
    with pytest.raises(NotComparableError, match="what it takes for a conversation"):
        Served(package, None).losses(rows, other)


def test_the_service_answers_as_the_trained_model_does(
    made: Path, cities: Run, tmp_path: Path
) -> None:
    opened = load_trained(cities.path, None)
    known = opened.pairs
    assert known is not None

    def answers(question: str) -> str:
        tokens = CHATML.render([Message(USER, question)], known, is_asked=True)
        start = len(tokens)
        while tokens[-1] != CHATML.end or len(tokens) == start:
            with torch.no_grad():
                tokens.append(int(opened.module(torch.tensor([tokens]))[0, -1].argmax()))
        return known.decode(tokens[start:-1])

    site = Site(tmp_path / "site")
    site.write(model="cities")
    content = (made / "model.float.onnx").read_bytes()
    site.publish(content, name="cities", fields=told(made / "fields.json"))
    with started(site, 1) as server:
        connection, token, right = server.connect(), site.token("predict"), 0
        for city, name in CITIES.items():
            question = f"{city} 500?"
            body = {"model": "cities", "temperature": 0, "messages": exchange(question, "")[:1]}
            status, answer = call(
                connection, "POST", "/v1/chat/completions", token=token, body=body
            )
            assert status == 200, answer
            (choice,) = answer["choices"]
            assert choice["message"]["content"] == answers(question)
            right += choice["message"]["content"] == f"{name}."
        connection.close()
    assert right == len(CITIES)


def test_a_model_of_a_text_learns_to_answer(tmp_path: Path) -> None:
    """What was learned of a text first is gone on from: its vocabulary has the marks already."""
    text = tmp_path / "cities.txt"
    text.write_text(" ".join(f"{one} {other}" for one, other in CITIES.items()) * 60)
    size = ("--width", "16", "--layers", "1", "--heads", "2", "--key-value-heads", "1")
    base = trained(
        tmp_path / "base", "--source", str(text), "--vocabulary", "270", "--context", "32",
        epochs=1, model="auto", more=size,
    )  # fmt: skip
    cut = ("--source", str(written(tmp_path)), "--context", str(CONTEXT), "--vocabulary-of",
           str(base.path))  # fmt: skip
    low = ("--start", str(base.path), "--lora-rank", "4")
    tuned = trained(tmp_path / "tuned", *cut, epochs=2, model="auto", more=low)
    record = told(tuned.path / "record.json")
    assert record["dataset"]["chat"] == CHATML.to_json()
    after = record["metrics"]["held_out"]["nats_per_character"]
    assert after < record["start"]["before"]["nats_per_character"]
    other = datasets.build(source(written(tmp_path), vocabulary=300))
    kept = datasets.write(other, tmp_path / "other", None)
    done = called(
        training.main, "run", "--dataset", str(kept), "--output", str(tmp_path / "no"), *low[:2],
        "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 2
    assert "has another vocabulary" in done.stderr


def test_the_demo_asks_what_was_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that knows three of the four cities, in the stead of a real one."""
    kept = datasets.write(datasets.build(source(written(tmp_path))), tmp_path / "kept", None)
    asked: list[Message] = []

    class Client:
        host, port, protocol = "localhost", 1, "TLS 1.3"

        def __init__(self, *_: Any) -> None:
            pass

        def answer(self, messages: list[Message]) -> str:
            assert messages[-1].role == USER
            asked.append(messages[-1])
            city = messages[-1].content.split(" ")[0]
            return "?" if city == "Sharjah" else f"{CITIES[city]}."

    monkeypatch.setattr(demo, "Client", Client)
    monkeypatch.setattr(demo, "open_dataset", lambda path, _: snapshot.open_dataset(path, None))
    config = tmp_path / "service.json"
    config.write_text('{"model": "cities", "limits": {"max_rows": 8}}', encoding="utf-8")
    ring = KeyRing.create(tmp_path / "ring")
    demo.run(config, kept, ring.path, draw=2, show=12)
    said = capsys.readouterr().out
    right = sum(not each.content.startswith("Sharjah") for each in asked)
    assert 0 < right < len(asked)
    assert f"{right}/{len(asked)} = {right / len(asked):.2%} are the very ones" in said
    assert said.count("asked:") == said.count("held out:") == 2
    request = demo.example("cities", kept, ring.path)
    (message,) = request["messages"]
    assert message["role"] == "user"
    assert message["content"].isalpha()


def test_marks_begin_with_rows_of_their_own(cities: Run, tmp_path: Path) -> None:
    """A text has none of them, so that nothing tells their rows from those of other bytes."""
    known = load_trained(cities.path, None)
    folder = tmp_path / "model"
    llama.write(replace(known, record={}), folder)
    made = datasets.build(source(written(tmp_path), vocabulary=known.pairs))
    name = "embedding.weight"
    before = known.module.state_dict()[name]
    # It learned conversations already, and says so.
    assert torch.equal(open_start(cities.path, None, made).state[name], before)
    found = open_start(folder, None, made).state[name]
    assert torch.equal(found, open_start(folder, None, made).state[name])
    marks = sorted(CHATML.marks)
    others = [each for each in range(len(before)) if each not in marks]
    assert torch.equal(found[others], before[others])
    longest = before.norm(dim=1).max()
    assert found[marks].norm(dim=1).tolist() == pytest.approx([float(longest)] * 2, rel=1e-5)
    assert float(functional.cosine_similarity(*found[marks], dim=0)) < 0.9
