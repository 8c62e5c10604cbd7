"""An independent client, `openai`, unchanged but for its address and the authority it trusts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from openai.types import Completion

from tests.newcomer import documents
from tests.workloads.inference.languages import (
    CHARACTERS,
    NAME,
    bigrams,
    greedy,
    publish,
    table,
)
from tests.workloads.inference.serving import Server, Site, started


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("spoken") / "site")
    with started(site, publish(site)) as server:
        yield server


def options(server: Server, key: str | None = None) -> dict[str, Any]:
    return {
        "base_url": f"https://localhost:{server.port}/v1",
        "api_key": key or server.site.token(),
        "max_retries": 0,
    }


@pytest.fixture
def client(spoken: Server) -> Iterator[openai.OpenAI]:
    with opened(spoken) as found:
        yield found


def opened(server: Server, key: str | None = None) -> openai.OpenAI:
    trusting = httpx2.Client(verify=server.site.pki.client_context())
    return openai.OpenAI(http_client=trusting, **options(server, key))


def test_a_text_is_completed(client: openai.OpenAI) -> None:
    found = client.completions.create(model=NAME, prompt="شكرا", temperature=0, max_tokens=30)
    assert isinstance(found, Completion)
    (choice,) = found.choices
    assert (choice.text, choice.finish_reason) == (greedy("شكرا", 30), "length")
    assert found.model == NAME
    assert found.usage is not None
    assert found.usage.total_tokens == 34


def test_many_options_at_once(client: openai.OpenAI) -> None:
    found = client.completions.create(
        model=NAME, prompt=["a", "😀"], n=2, seed=5, temperature=0.7, top_p=0.9, max_tokens=20,
        stop=["..", "\n\n"], echo=True, user="somebody", best_of=2, presence_penalty=0,
    )  # fmt: skip
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert [choice.text[0] for choice in found.choices] == ["a", "a", "😀", "😀"]
    assert {choice.finish_reason for choice in found.choices} <= {"stop", "length"}
    assert not any("\ufffd" in choice.text for choice in found.choices)


def test_a_text_is_streamed(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model=NAME, prompt="a", temperature=0, max_tokens=30, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    pieces = list(stream)
    text = "".join(choice.text for piece in pieces for choice in piece.choices)
    assert text == greedy("a", 30)
    assert len(pieces) == 31
    usage = pieces[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (1, 30)


def test_the_pages_program_works(
    spoken: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = documents.other("language", "python")
    for said, here in {
        '["make", "-s", "token"]': f'["echo", "Authorization: Bearer {spoken.site.token()}"]',
        'Path.home() / ".local/share/falaj/stacks/local/pki/ca.crt"':
            f'Path("{spoken.site.pki.folder / "ca.crt"}")',
        "localhost:8443": f"localhost:{spoken.port}", '"notes"': f'"{NAME}"',
    }.items():  # fmt: skip
        assert program.count(said) == 1, said
        program = program.replace(said, here)
    monkeypatch.chdir(spoken.site.root)
    exec(program, {})  # noqa: S102 - what the page tells everybody to run
    assert len(capsys.readouterr().out) == 200


def test_many_clients_stream_at_once(spoken: Server) -> None:
    trusting = spoken.site.pki.client_context()

    async def one(client: openai.AsyncOpenAI, prompt: str) -> str:
        stream = await client.completions.create(
            model=NAME, prompt=prompt, temperature=0, max_tokens=50, stream=True
        )
        return "".join([piece.choices[0].text async for piece in stream])

    async def all_of() -> list[str]:
        http = httpx2.AsyncClient(verify=trusting)
        async with openai.AsyncOpenAI(http_client=http, **options(spoken)) as client:
            return await asyncio.gather(*(one(client, each) for each in CHARACTERS[1:9]))

    assert asyncio.run(all_of()) == [greedy(each, 50) for each in CHARACTERS[1:9]]


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).owned_by == "falaj"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-2")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"model": "gpt-2"}, openai.NotFoundError, "model"),
        ({"max_tokens": 1025}, openai.BadRequestError, "max_tokens"),
        ({"logprobs": 6}, openai.BadRequestError, "logprobs"),
        ({"extra_body": {"best": 1}}, openai.BadRequestError, "best"),
        ({"prompt": [1, 2, 3]}, openai.BadRequestError, "prompt"),
    ],
)
def test_refusals_are_its_exceptions(
    client: openai.OpenAI, changes: dict[str, Any], error: type[openai.APIStatusError], field: str
) -> None:
    create: Any = client.completions.create
    with pytest.raises(error) as caught:
        create(**({"model": NAME, "prompt": "a"} | changes))
    assert caught.value.param == field
    assert field in caught.value.message


def test_who_may_not_is_told_so(spoken: Server) -> None:
    with opened(spoken, "nonsense") as client, pytest.raises(openai.AuthenticationError):
        client.completions.create(model=NAME, prompt="a")
    observer = spoken.site.token("observe")
    with opened(spoken, observer) as client, pytest.raises(openai.PermissionDeniedError):
        client.completions.create(model=NAME, prompt="a")


def test_chats_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="isn't a chat model"):
        client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "Hi"}])


def test_another_model_has_none_of_it(running: Server) -> None:
    with opened(running) as client, pytest.raises(openai.NotFoundError, match="/v2/models/mlp"):
        client.completions.create(model="mlp", prompt="a")


def test_a_failure_in_a_stream_is_an_exception(site: Site, start: Callable[..., Server]) -> None:
    logits = table()
    logits[CHARACTERS.index("b")] = np.nan
    logits[CHARACTERS.index("a"), CHARACTERS.index("b")] = 9
    server = start(site).serving(publish(site, bigrams(logits)))
    with opened(server) as client:
        stream = client.completions.create(model=NAME, prompt="a", temperature=0, stream=True)
        with pytest.raises(openai.APIError, match="aren't numbers"):
            list(stream)
        with pytest.raises(openai.InternalServerError):
            client.completions.create(model=NAME, prompt="b", temperature=0, stream=True)
