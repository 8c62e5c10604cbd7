"""The client of registries: against crane's registry, with crane as judge, and hostile fronts."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import NotThereError, RegistryError, WorkloadError
from falaj.workloads.registry.distribution import Answer, Login, RegistryClient, read_login
from falaj.workloads.registry.oci_layout import MAX_DOCUMENT_BYTES
from falaj.workloads.registry.package import Package
from tests.stacks.images.registries import Registry, crane, running
from tests.workloads.registry.fronts import BASIC, QUICK, TOKEN, Asked, basic, bearer, standing
from tests.workloads.registry.images import Sent, send

NAME = "models/digits"


@pytest.fixture
def registry(tmp_path: Path) -> Generator[Registry]:
    with running(tmp_path / "images") as made:
        yield made


@pytest.fixture
def sent(package: Package, tmp_path: Path) -> Sent:
    return send(package, tmp_path / "sent")


def client(*hosts: str) -> RegistryClient:
    login = Login(BASIC.removeprefix("Basic "))
    return RegistryClient(dict.fromkeys(hosts, login), pauses=QUICK)


def test_it_sends_and_asks_as_crane_does(registry: Registry, sent: Sent) -> None:
    repository, own = f"{registry.address}/{NAME}", client()
    assert own.tags(repository) == []
    assert own.digest(f"{repository}:v1") is None
    own.push(sent.image, f"{repository}:v1")
    own.push(sent.image, f"{repository}:v2")
    own.push(sent.keys, f"{repository}:v1.keys.1")
    digest = crane("digest", f"{repository}:v1")
    assert digest == sent.package.itself.digest
    assert own.digest(f"{repository}:v1") == digest
    assert own.digest(f"{repository}@{digest}") == digest
    assert sorted(own.tags(repository)) == sorted(crane("ls", repository).split())
    assert own.repositories(registry.address) == [NAME]
    manifest = own.manifest_bytes(f"{repository}:v1", MAX_DOCUMENT_BYTES)
    assert manifest.decode() == crane("manifest", f"{repository}:v1")
    layer = sent.package.layers[0]
    assert len(own.blob(f"{repository}@{layer.digest}", layer.size)) == layer.size


def test_parts_that_are_there_are_not_sent_again(registry: Registry, sent: Sent) -> None:
    with standing(registry.address) as front:
        own = client()
        own.push(sent.image, f"{front.address}/{NAME}:v1")
        first = len([each for each in front.asked if each.method == "POST"])
        own.push(sent.image, f"{front.address}/{NAME}:v2")
        assert len([each for each in front.asked if each.method == "POST"]) == first > 0


def test_what_is_not_there_or_too_large_is_said(registry: Registry, sent: Sent) -> None:
    repository, own = f"{registry.address}/{NAME}", client()
    with pytest.raises(NotThereError, match="has no"):
        own.manifest_bytes(f"{repository}:v1", MAX_DOCUMENT_BYTES)
    own.push(sent.image, f"{repository}:v1")
    with pytest.raises(RegistryError, match="more than 10 bytes"):
        own.manifest_bytes(f"{repository}:v1", 10)
    layer = sent.package.layers[0]
    with pytest.raises(RegistryError, match="more than"):
        own.blob(f"{repository}@{layer.digest}", layer.size - 1)
    with pytest.raises(RegistryError, match="something else"):
        own.blob(f"{repository}@{layer.digest}", layer.size + 1)


def test_a_changed_blob_is_refused(registry: Registry, sent: Sent) -> None:
    repository, own = f"{registry.address}/{NAME}", client()
    own.push(sent.image, f"{repository}:v1")
    layer = sent.package.layers[0]

    def lie(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
        return (200, {}, bytes(layer.size)) if "/blobs/" in asked.path else None

    with (
        standing(registry.address, answer=lie) as front,
        pytest.raises(RegistryError, match="something else"),
    ):
        own.blob(f"{front.address}/{NAME}@{layer.digest}", layer.size)


def test_passwords_reach_the_registry_that_they_are_for(registry: Registry, sent: Sent) -> None:
    with standing(registry.address, answer=basic) as front:
        with pytest.raises(RegistryError, match=r"refused access.*\n.*UNAUTHORIZED: not so"):
            client("elsewhere.example.ae").tags(f"{front.address}/{NAME}")
        assert set(front.authorisations()) == {""}
        client(front.address).push(sent.image, f"{front.address}/{NAME}:v1")
    assert crane("digest", f"{registry.address}/{NAME}:v1") == sent.package.itself.digest


def test_a_token_is_bought_from_the_registry_s_own_host(registry: Registry, sent: Sent) -> None:
    with standing(registry.address) as front:
        front.answer = bearer(lambda: f"http://{front.address}/token")
        own = client(front.address)
        own.push(sent.image, f"{front.address}/{NAME}:v1")
        assert own.tags(f"{front.address}/{NAME}") == ["v1"]
        bought = [each.path for each in front.asked if each.path.startswith("/token")]
        # Whoever only asks gets no right to send.
        assert len(bought) == 2
        assert bought[0].endswith("scope=repository%3Amodels%2Fdigits%3Apull")
        assert bought[1].endswith("scope=repository%3Amodels%2Fdigits%3Apull%2Cpush")


def test_no_password_goes_to_a_token_server_elsewhere(registry: Registry) -> None:
    with standing() as thief, standing(registry.address) as front:
        front.answer = bearer(lambda: f"http://{thief.address}/token")
        with pytest.raises(RegistryError, match="registry's own host alone"):
            client(front.address).tags(f"{front.address}/{NAME}")
        assert thief.asked == []


def test_an_ended_token_is_bought_anew(registry: Registry) -> None:
    ended: list[bool] = []
    with standing(registry.address) as front:
        ask = bearer(lambda: f"http://{front.address}/token")

        def answer(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
            if asked.headers.get("Authorization") == f"Bearer {TOKEN}" and not ended:
                ended.append(True)
                return ask(Asked(asked.method, asked.path, {}, b""))
            return ask(asked)

        front.answer = answer
        own = client(front.address)
        with pytest.raises(RegistryError, match="refused access"):
            own.tags(f"{front.address}/{NAME}")
        assert own.tags(f"{front.address}/{NAME}") == []


def test_blobs_kept_elsewhere_are_fetched_without_a_login(registry: Registry, sent: Sent) -> None:
    client().push(sent.image, f"{registry.address}/{NAME}:v1")
    layer = sent.package.layers[0]
    with standing(registry.address) as store, standing(registry.address) as front:

        def elsewhere(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
            if "/blobs/" in asked.path:
                return 307, {"Location": f"http://{store.address}{asked.path}"}, b""
            return basic(asked)

        front.answer = elsewhere
        own = client(front.address, store.address)
        found = own.blob(f"{front.address}/{NAME}@{layer.digest}", layer.size)
        assert len(found) == layer.size
        assert store.authorisations() == [""]
        # What is kept elsewhere is there.
        own.push(sent.image, f"{front.address}/{NAME}:v2")
        assert not [each for each in front.asked if each.method == "POST"]


def test_blobs_kept_elsewhere_without_tls_are_not_fetched(
    monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> None:
    own = client()
    moved = {"Location": f"http://{registry.address}/x"}

    def answer(*_: object, **__: object) -> Answer:
        return Answer(http.client.HTTPConnection("x"), Said(307, moved), "https://x.example/v2/")  # type: ignore[arg-type]

    monkeypatch.setattr(own, "_once", answer)
    with pytest.raises(RegistryError, match="without TLS"):
        own.part(f"x.example/{NAME}@sha256:{'0' * 64}")


@dataclass
class Said:
    """An answer over TLS."""

    status: int
    headers: dict[str, str]

    def getheader(self, name: str) -> str | None:
        return self.headers.get(name)


def test_nothing_is_sent_to_another_host(registry: Registry, sent: Sent) -> None:
    with standing() as thief, standing(registry.address) as front:

        def elsewhere(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
            if asked.method == "POST":
                return 202, {"Location": f"http://{thief.address}/upload"}, b""
            return None

        front.answer = elsewhere
        with pytest.raises(RegistryError, match="own host gets anything"):
            client().push(sent.image, f"{front.address}/{NAME}:v1")
        assert thief.asked == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_that_passes_is_waited_for(registry: Registry, sent: Sent, status: int) -> None:
    seen: dict[tuple[str, str], int] = {}

    def trouble(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
        # Each upload has a place of its own.
        key = (asked.method, asked.path.partition("uploads/")[0])
        seen[key] = seen.get(key, 0) + 1
        return (status, {}, b"busy") if seen[key] % 3 == 1 else None

    with standing(registry.address, answer=trouble) as front:
        client().push(sent.image, f"{front.address}/{NAME}:v1")
    assert crane("digest", f"{registry.address}/{NAME}:v1") == sent.package.itself.digest


def test_trouble_that_stays_is_told(sent: Sent) -> None:
    with standing(answer=lambda _: (503, {}, b"closed for today")) as front:
        with pytest.raises(RegistryError, match=r"answers 503\n  closed for today"):
            client().tags(f"{front.address}/{NAME}")
        assert len(front.asked) == len(QUICK) + 1
        with pytest.raises(RegistryError, match="answers 503"):
            client().push(sent.image, f"{front.address}/{NAME}:v1")


def test_nobody_there_is_told() -> None:
    with standing() as front:
        address = front.address
    with pytest.raises(RegistryError, match="can't be reached"):
        client().tags(f"{address}/{NAME}")


def test_a_list_goes_on_where_the_registry_says(registry: Registry) -> None:
    def pages(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
        if "last=" in asked.path:
            return 200, {}, json.dumps({"tags": ["v2"]}).encode()
        link = f'</v2/{NAME}/tags/list?last=v1>; rel="next"'
        return 200, {"Link": link}, json.dumps({"tags": ["v1"]}).encode()

    with standing(answer=pages) as front:
        assert client().tags(f"{front.address}/{NAME}") == ["v1", "v2"]

    def abroad(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
        return 200, {"Link": '<https://abroad.example/next>; rel="next"'}, b'{"tags": ["v1"]}'

    with standing(answer=abroad) as front, pytest.raises(RegistryError, match="goes on at abroad"):
        client().tags(f"{front.address}/{NAME}")


@pytest.mark.parametrize("text", [b"", b"[]", b"nonsense", b"\xff", b'"x"'])
def test_an_answer_that_is_none_is_told(text: bytes) -> None:
    with (
        standing(answer=lambda _: (200, {}, text)) as front,
        pytest.raises(RegistryError, match="something else"),
    ):
        client().tags(f"{front.address}/{NAME}")


def test_a_catalogue_may_be_kept_to_oneself() -> None:
    for status in (404, 405):
        with (
            standing(answer=lambda _, status=status: (status, {}, b"")) as front,
            pytest.raises(NotThereError),
        ):
            client().repositories(front.address)


@pytest.mark.parametrize(
    "reference",
    ["", "models", "https://registry.example.ae/x:v1", "host/UPPER:v1", "host/x:v1:v2"],
)
def test_what_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(WorkloadError, match="allowed: HOST"):
        client().digest(reference)


def config(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_logins_are_read_as_container_tools_write_them(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"robot:pass:word").decode()
    path = config(
        tmp_path,
        {
            "auths": {
                "registry.example.ae": {"auth": encoded},
                "https://other.example.ae:8443/v1/": {"username": "a", "password": "b"},
                "acme.azurecr.io": {"auth": encoded, "identitytoken": "refresh"},
            }
        },
    )
    assert read_login(path, "registry.example.ae") == Login(encoded)
    assert read_login(path, "other.example.ae:8443").header() == "Basic YTpi"
    assert read_login(path, "acme.azurecr.io") == Login(refresh="refresh")
    assert encoded not in repr(read_login(path, "registry.example.ae"))
    with pytest.raises(WorkloadError, match=r"no login for example.ae; it has: acme.azurecr.io, "):
        read_login(path, "example.ae")


@pytest.mark.parametrize(
    "document",
    [
        "", "[]", "{}", "nonsense", {"auths": []}, {"auths": {"h": "hunter2"}},
        {"auths": {"h": {"auth": "hunter2"}}}, {"auths": {"h": {"username": "hunter2"}}},
        {"auths": {"h": {"auth": base64.b64encode(b"hunter2").decode()}}},
    ],
)  # fmt: skip
def test_what_holds_no_logins_is_refused_without_saying_it(
    tmp_path: Path, document: object
) -> None:
    with pytest.raises(WorkloadError, match="has no logins of registries") as refused:
        read_login(config(tmp_path, document), "h")
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


@given(st.text())
def test_any_text_is_refused_or_read(text: str) -> None:
    with contextlib.suppress(WorkloadError):
        client().digest(text)
