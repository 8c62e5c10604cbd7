"""Several models in one server: what goes wrong with one, who may ask which, and what is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falaj.workloads.inference import configuration, further, settings
from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.connections.http import Exchange
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.metrics import Counters
from falaj.workloads.inference.process import logs
from falaj.workloads.inference.protocol.routes import Router
from falaj.workloads.inference.rpc.messages import CLASSES
from falaj.workloads.inference.service import Service
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.workloads.inference import grpc_calls, languages, models
from tests.workloads.inference.serving import Server, Site, call, row, started
from tests.workloads.inference.test_service_settings import GOOD


class Other:
    """Another stack's registry, with keys of its own."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        self.keyring = KeyRing.create(root / "keyring")
        self.store = Store(root / "registry", self.keyring)

    def publish(
        self, name: str, seed: int = 1, *, promote: bool = True, model: bytes | None = None
    ) -> int:
        model = model or models.mlp(seed)
        files = {"model.onnx": model}
        made = self.store.publish(name, files, models.fields(model, "run"), self.keyring)
        if promote:
            self.store.promote(name, made.version)
        return made.version

    def tamper(self, name: str, version: int) -> None:
        """Change one byte of a sealed file."""
        (sealed,) = (self.root / "registry" / name / "versions" / str(version) / "files").glob(
            "model*"
        )
        content = bytearray(sealed.read_bytes())
        content[len(content) // 2] ^= 1
        sealed.chmod(0o600)
        sealed.write_bytes(content)

    def further(self, **more: Any) -> dict[str, Any]:
        """As the settings have a model of it."""
        return {"registry": str(self.root / "registry"), "keyring": str(self.root / "keyring"),
                **more}  # fmt: skip


OF_OTHER = {"registry": "/r", "keyring": "/k"}


def parsed(**changes: Any) -> settings.Settings:
    return settings.parse(Path("service.json"), json.dumps(GOOD | changes).encode())


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"models": []}, "models: got [], allowed is an object"),
    ({"models": {"price": None}}, "models.price: got null, allowed is an object"),
    ({"models": {"price": {"keyring": "/k"}}}, "models.price.registry is missing"),
    ({"models": {"price": {"registry": "/r"}}}, "models.price.keyring is missing"),
    ({"models": {GOOD["model"]: OF_OTHER}}, "that is the name of the first model"),
    ({"models": {"a/b": OF_OTHER}}, 'models.a/b: got "a/b"'),
    ({"models": {"": OF_OTHER}}, "first a letter or a digit"),
    ({"models": {"stats": OF_OTHER}}, "but not stats"),
    ({"models": {"price": OF_OTHER | {"alias": "No Alias"}}}, "models.price.alias"),
    ({"models": {"price": OF_OTHER | {"max_rows": 0}}}, "models.price.max_rows: got 0"),
    (
        {"models": {"price": OF_OTHER | {"max_body_bytes": 2**24}}},
        "allowed is at most limits.max_body_bytes, 8388608",
    ),
    ({"models": {"price": OF_OTHER | {"shadow": {}}}}, "models.price.shadow is not a known"),
    ({"models": {"price": OF_OTHER | {"jobs": {}}}}, "models.price.jobs is not a known"),
    ({"models": {"price": OF_OTHER | {"drift": {}}}}, "models.price.drift: got {}"),
    ({"models": {"price": OF_OTHER | {"batching": 1}}}, "models.price.batching: got 1"),
    (
        {"models": {"price": OF_OTHER | {"priorities": "low"}}},
        'models.price.priorities: got "low"',
    ),
    (
        {"models": {"price": OF_OTHER}, "upstream": {"url": "http://127.0.0.1:8000"}},
        "a server that runs its models itself",
    ),
    (
        {"auth": GOOD["auth"] | {"clients": {"a": ["predict:ghost"]}}},
        "got 'predict:ghost', and no model ghost is served",
    ),
    ({"auth": GOOD["auth"] | {"clients": {"a": ["admin:price"]}}}, "each but admin also"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_settings_that_name_no_further_models_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InferenceError) as caught:
        parsed(**changes)
    assert words in str(caught.value)


def test_a_further_model_has_its_own_limits_and_nothing_that_is_beside_the_first() -> None:
    found = parsed(
        models={"price": OF_OTHER | {"max_rows": 7}}, batching=True, priorities=True,
        jobs={}, experiment={"key": "x-customer"},
        auth=GOOD["auth"] | {"clients": {"a": ["predict:price", "observe"]}},
    )  # fmt: skip
    own = settings.of_further(found, "price")
    assert (own.model, own.registry, own.alias) == ("price", Path("/r"), "production")
    assert (own.limits.max_rows, own.limits.max_body_bytes) == (7, found.limits.max_body_bytes)
    beside = (own.batching, own.priorities, own.jobs, own.experiment, own.drift.enabled)
    assert beside == (False, False, None, None, True)
    assert not settings.of_further(
        parsed(models={"price": OF_OTHER | {"drift": False}}), "price"
    ).drift.enabled
    off = parsed(models={"price": OF_OTHER | {"drift": True}}, drift={"enabled": False})
    assert not settings.of_further(off, "price").drift.enabled
    for key in ("batching", "priorities"):
        found = parsed(models={"price": OF_OTHER | {key: True}})
        assert not getattr(found, key)
        assert getattr(settings.of_further(found, "price"), key)
    for of in (settings.of_shadow(found), settings.of_candidate(found), own):
        assert not of.models


def test_a_name_that_stands_twice_is_refused() -> None:
    given = '{"price": {"registry": "/r", "keyring": "/k"}, "price": {}}'
    with pytest.raises(InferenceError, match='"price" stands twice'):
        configuration.models_of_option(given)
    with pytest.raises(InferenceError, match="--models is not JSON"):
        configuration.models_of_option("{")


# -- who may ask which ------------------------------------------------------------------------

ROUTER = Router("first", "1", {"price": "3", "gone": None})


class Authenticator:
    """One that knows everybody as this caller."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def identify(self, authorization: object, certificate: object) -> Identity:
        del authorization, certificate
        return self._identity


def _refused(identity: Identity, path: str) -> tuple[int, str]:
    """What a caller is told of a path before a body is read."""
    service = Service.__new__(Service)
    known: Any = service
    known.router, known.further, known.counters, known.denials = ROUTER, {}, Counters(), {}
    known.jobs = known.watched = known.language = None
    known.runs = SimpleNamespace(upstream=None, engine=None)
    known.authenticator = Authenticator(identity)
    try:
        service.admit(Exchange(b"GET", path.encode()), None, b'""')
    except RequestError as error:
        return error.status, error.message
    return 200, ""


def _caller(*scopes: str) -> Identity:
    return Identity("shop", frozenset(scopes), "token", 2e9)


_RESTS = ("", "/ready", "/infer", "/config", "/stats", "/drift", "/feedback", "/jobs", "/jobs/a",
          "/jobs/a/result", "/versions/1", "/versions/1/infer", "/versions/9/config", "/ghost",
          "/versions/1/stats", "/openapi.json", "/versions", "/versions/3/ready")  # fmt: skip


@given(st.sampled_from(_RESTS), st.sampled_from(["predict:price", "observe:price", "x"]))
@example("/versions/3/config", "observe:price")
def test_who_may_not_ask_learns_no_more_than_the_name_it_gave(rest: str, scope: str) -> None:
    caller = _caller(scope)
    said = {
        name: _refused(caller, f"/v2/models/{name}{rest}") for name in ("first", "gone", "ghost")
    }
    for name, (status, message) in said.items():
        assert status == 403
        others = {"first", "gone", "ghost"} - {name}
        assert not any(other in message for other in others)
        assert message.replace(name, "NAME") == said["ghost"][1].replace("ghost", "NAME")


@pytest.mark.parametrize(
    ("scopes", "path", "status", "words"),
    [
        (("predict:price",), "/v2/models/price", 200, ""),
        (("predict:price",), "/v2", 200, ""),
        (("predict:price",), "/v2/models/price/config", 403, "observe (or observe:price)"),
        (("observe:price",), "/v2/models/price/stats", 200, ""),
        (("observe:price",), "/v2/models/stats", 200, ""),
        (("observe:price",), "/metrics", 403, "this needs the scope observe;"),
        (("observe:None", "observe:"), "/metrics", 403, "this needs the scope observe;"),
        (("predict:*", "predict: price"), "/v2/models/price", 403, "(or predict:price)"),
        (("predict:price",), "/v1/models", 403, "this needs the scope predict;"),
        (("predict:price",), "/v1/ghost", 403, "this needs the scope predict;"),
        (("predict:price",), "/v2/openapi.json", 403, "this needs the scope predict;"),
        (("predict:price",), "/v2/ghost", 404, "see /v2"),
        (("predict:price",), "/v2/models/price/jobs", 405, "this path takes POST"),
        (("predict:price",), "/v2/models/price/jobs/x", 200, ""),
        (("predict:price",), "/v2/models/gone/jobs/x", 403, "(or predict:gone)"),
        (("predict:price",), "/v2/models/price/ghost", 404, "/v2/models/price/openapi.json"),
        (("predict:price",), "/v2/models/price/versions/9", 404, "served is version '3'"),
        (("predict:first",), "/v2/models/first", 200, ""),
        (("predict:first",), "/v1/models", 200, ""),
        (("predict",), "/v2/models/price", 200, ""),
        (("predict",), "/v2/models/ghost", 404, "served are 'first', 'price', 'gone'"),
        (("admin",), "/v2/models/price/config", 200, ""),
        (("predict:price", "predict:gone"), "/v2/models/gone/versions/1", 503, "'gone' can't be"),
    ],
)
def test_a_scope_may_be_held_for_one_model(
    scopes: tuple[str, ...], path: str, status: int, words: str
) -> None:
    found = _refused(_caller(*scopes), path)
    assert found[0] == status
    assert words in found[1]
    if scopes == ("predict:price",):
        assert "first" not in found[1]


@pytest.mark.parametrize("scope", ["predict:", "predict:a b", "admin:price", "root:price", ":a"])
def test_tokens_for_what_is_no_scope_are_not_made(site: Site, scope: str) -> None:
    with pytest.raises(InferenceError, match="unknown scope"):
        site.token(scope)


# -- a server -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a first model, one that is well, one that was changed, and one that is not."""
    root = tmp_path_factory.mktemp("beside")
    site, other = Site(root / "site"), Other(root / "other")
    other.publish("price")
    other.publish("changed")
    other.tamper("changed", 1)
    other.publish("wide", model=models.heavy())
    site.write(
        models={
            "price": other.further(max_rows=2, max_body_bytes=4096),
            "wide": other.further(batching=True, priorities=True),
            "changed": other.further(),
            "missing": other.further(),
        },
        auth=site.document["auth"] | {"clients": {"caller": ["predict:price"]}},
    )
    with started(site, site.publish(models.mlp())) as server:
        yield server


def _ask(server: Server, model: str, *scopes: str, **more: Any) -> tuple[int, Any]:
    token = server.site.token(*scopes) if scopes else None
    path = f"/v2/models/{model}/infer"
    return call(server.connect(**more), "POST", path, token=token, body=row())


def test_each_model_answers_for_itself_and_broken_ones_alone_do_not(beside: Server) -> None:
    for scope in ("predict", "predict:mlp"):
        assert _ask(beside, "mlp", scope)[1]["model_name"] == "mlp"
    first, price = _ask(beside, "mlp", "predict"), _ask(beside, "price", "predict:price")
    assert (price[0], price[1]["model_name"], price[1]["model_version"]) == (200, "price", "1")
    assert price[1]["outputs"][0]["data"] != first[1]["outputs"][0]["data"]
    assert _ask(beside, "price", certificate="caller")[0] == 200
    assert _ask(beside, "mlp", certificate="caller")[0] == 403
    assert _ask(beside, "mlp", "predict:price")[0] == 403
    assert _ask(beside, "price", "predict:mlp")[0] == 403
    for name in ("changed", "missing"):
        status, said = _ask(beside, name, "predict")
        assert status == 503
        assert said["error"].startswith(f"the model '{name}' can't be asked now")
        assert str(beside.site.root.parent) not in said["error"]
    facts = beside.state()["models"]
    assert {name: each["state"] for name, each in facts.items()} == {
        "price": "serving", "wide": "serving", "changed": "unavailable", "missing": "unavailable",
    }  # fmt: skip
    assert facts["price"]["bytes"] > 1000
    assert "changed" in facts["changed"]["error"]


def test_a_known_head_stays_with_its_model_and_its_caller(beside: Server) -> None:
    connection, token = beside.connect(), beside.site.token("predict:price")
    found = [
        call(connection, "POST", f"/v2/models/{name}/infer", token=token, body=row())[0]
        for name in ("price", "price", "mlp", "price", "ghost", "price", "mlp")
    ]
    assert found == [200, 200, 403, 200, 403, 200, 403]


def test_a_further_model_has_limits_of_its_own(beside: Server) -> None:
    tensor = {"name": "input", "datatype": "FP32", "shape": [3, 64], "data": [0.5] * 192}
    connection, token = beside.connect(), beside.site.token("predict")
    for name, rows, status in (("mlp", tensor, 200), ("price", tensor, 400)):
        path = f"/v2/models/{name}/infer"
        assert call(connection, "POST", path, token=token, body={"inputs": [rows]})[0] == status
    large = row(id="x" * 900, parameters={"a": "b" * 5000})
    assert call(connection, "POST", "/v2/models/price/infer", token=token, body=large)[0] == 413


def test_a_further_model_has_a_queue_of_its_own(beside: Server) -> None:
    connection, observer = beside.connect(), beside.site.token("observe")

    def told(model: str, what: str) -> Any:
        path = f"/v2/models/{model}/{what}"
        return call(connection, "GET", path, token=observer)[1]

    def asked(model: str, priority: str, *scopes: str) -> int:
        token, body = beside.site.token(*scopes), row(parameters={"priority": priority})
        return call(connection, "POST", f"/v2/models/{model}/infer", token=token, body=body)[0]

    reason = told("wide", "config")["parameters"]["batching"]["string_value"]
    assert reason.startswith("on: up to "), "a wide network is quicker for several rows"
    assert f"batching of wide is {reason}" in beside.errors.read_text()
    for other in ("mlp", "price"):
        assert "batching" not in told(other, "config").get("parameters", {})
    assert asked("wide", "low", "predict:wide") == 200
    assert "batch_stats" in told("wide", "stats")["model_stats"][0]
    assert asked("wide", "high", "predict:wide", "urgent:price") == 403
    assert asked("wide", "high", "predict:wide", "urgent:wide") == 200
    assert asked("wide", "none", "predict:wide") == 400
    # These have no such queue, and pass over what they are told of it.
    for other in ("mlp", "price"):
        assert asked(other, "high", f"predict:{other}") == 200


def test_what_is_told_of_models_is_told_to_those_who_may_know(beside: Server) -> None:
    connection = beside.connect()

    def get(path: str, *scopes: str, method: str = "GET") -> tuple[int, Any]:
        return call(connection, method, path, token=beside.site.token(*scopes))

    def names(*scopes: str) -> dict[str, str]:
        status, found = get("/v2/repository/index", *scopes, method="POST")
        assert status == 200
        return {each["name"]: each["state"] for each in found}

    asked = call(
        connection,
        "POST",
        "/v2/models/price/infer",
        token=beside.site.token("predict"),
        body=row(),
    )
    assert asked[0] == 200
    assert names("observe") == {
        "mlp": "READY", "price": "READY", "wide": "READY",
        "changed": "UNAVAILABLE", "missing": "UNAVAILABLE",
    }  # fmt: skip
    assert names("observe:price") == {"price": "READY"}
    index = get("/v2/repository/index", "observe:changed", method="POST")[1]
    assert [each["name"] for each in index] == ["changed"]
    assert index[0]["reason"]
    assert get("/v2/repository/index", "predict:price", method="POST")[0] == 403
    assert get("/v2/models/price", "predict:price")[1]["name"] == "price"
    assert get("/v2/models/price/ready", "predict")[1] == {"name": "price", "ready": True}
    assert get("/v2/models/changed/ready", "predict")[0] == 503
    assert get("/v2/models/price/config", "observe:price")[1]["name"] == "price"
    assert get("/v2/health/ready", "predict")[0] == 200
    described = get("/v2/models/price/openapi.json", "predict:price")[1]
    assert set(described["paths"]) >= {"/v2/models/price/infer", "/v2/models/price/stats"}
    # The settings have no section jobs.
    assert not any("mlp" in path or "jobs" in path for path in described["paths"])
    stats = get("/v2/models/stats", "observe:price")[1]
    assert {each["name"] for each in stats["model_stats"]} == {"price"}
    assert {each["name"] for each in get("/v2/models/stats", "observe")[1]["model_stats"]} == {
        "mlp", "price", "wide",
    }  # fmt: skip
    assert get("/v2/models/price/stats", "observe")[1]["model_stats"][0]["inference_count"] > 0


def test_counts_and_the_audit_log_are_by_model(beside: Server) -> None:
    site = beside.site
    before = _metrics(beside)
    for _ in range(2):
        assert _ask(beside, "price", "predict:price")[0] == 200
    assert _ask(beside, "price", "predict:mlp")[0] == 403
    assert _ask(beside, "changed", "predict")[0] == 503
    after = _metrics(beside)

    def more(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    of_price, of_first = 'model="price",version="1"', 'model="mlp",version="1"'
    assert more(f"falaj_inference_rows_total{{{of_price}}}") == 2
    assert more(f"falaj_inference_rows_total{{{of_first}}}") == 0
    denied = 'model="price",status="403",version="1"'
    assert more(f"falaj_inference_denied_total{{{denied}}}") == 1
    refused = 'model="changed",route="infer",status="503",version="0"'
    assert more(f"falaj_inference_responses_total{{{refused}}}") == 1
    for name, version in (("mlp", 1), ("price", 1), ("changed", 0), ("missing", 0)):
        assert after[f'falaj_inference_served_version{{model="{name}"}}'] == version
    audit = site.logs / "audit.jsonl"
    beside.wait(lambda _: '"models":{"price"' in audit.read_text(), "callers by model")
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    callers = [each["models"] for each in records if "models" in each]
    assert all(each["price"]["version"] == 1 for each in callers if "price" in each)
    told = {each["model"]: each for each in records if each["event"] == "further model"}
    assert told["price"]["state"] == "serving"
    assert "reason" in told["changed"]
    assert logs.verify(site.logs)["records"] == len(records)


def _metrics(server: Server) -> dict[str, float]:
    text = call(server.connect(), "GET", "/metrics", token=server.site.token("observe"))[1]
    lines = [each for each in text.decode().splitlines() if each[:1] != "#"]
    return {name: float(value) for name, _, value in (each.rpartition(" ") for each in lines)}


def test_grpc_asks_each_model_by_its_name(beside: Server) -> None:
    limited = grpc_calls.Client(beside, token=beside.site.token("predict:price"))
    try:
        message = CLASSES["ModelInferRequest"](model_name="price")
        tensor = message.inputs.add(name="input", datatype="FP32", shape=[1, 64])
        tensor.contents.fp32_contents.extend([0.5] * 64)
        assert limited.call("ModelInfer", message).model_name == "price"
        named = CLASSES["ModelReadyRequest"](name="price")
        assert limited.call("ModelReady", named).ready
        asked = CLASSES["ModelMetadataRequest"](name="price")
        assert limited.call("ModelMetadata", asked).name == "price"
        for name in ("mlp", "changed", "ghost"):
            message.model_name = name
            with pytest.raises(grpc.RpcError) as caught:
                limited.call("ModelInfer", message)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert f"predict:{name}" in str(caught.value.details())
    finally:
        limited.channel.close()


def test_a_new_version_is_followed_and_what_is_not_as_it_was_signed_is_not(
    tmp_path: Path, start: Callable[..., Server]
) -> None:
    site, other = Site(tmp_path / "site"), Other(tmp_path / "other")
    other.publish("price", 1)
    folder = tmp_path / "other" / "registry"
    shutil.copytree(folder, tmp_path / "older")
    site.write(models={"price": other.further()})
    server = start(site).serving(site.publish(models.mlp()))
    token = site.token("predict")

    def version() -> str:
        connection = server.connect()
        assert call(connection, "POST", "/v2/models/mlp/infer", token=token, body=row())[0] == 200
        found = call(connection, "POST", "/v2/models/price/infer", token=token, body=row())
        assert found[0] == 200
        return found[1]["model_version"]

    def told(number: int, words: str | None) -> Callable[[dict[str, Any]], bool]:
        def holds(state: dict[str, Any]) -> bool:
            price = state.get("models", {}).get("price", {})
            error = price.get("error")
            # Workers of the version before answer until they have gone.
            settled = len(state["workers"]) == 1 and price.get("version") == number
            return settled and (error is None if words is None else words in (error or ""))

        return holds

    assert version() == "1"
    assert other.publish("price", 2) == 2
    server.wait(told(2, None), "version 2")
    assert version() == "2"
    # Changed after it was signed: the one before stays, and it is said why.
    assert other.publish("price", 3, promote=False) == 3
    other.tamper("price", 3)
    other.store.promote("price", 3)
    server.wait(told(2, "model.onnx"), "version 3 is refused")
    assert version() == "2"
    # The whole registry is put back to before version 2.
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "older", folder)
    server.wait(told(2, "was there already"), "the older list is refused")
    assert version() == "2"
    # A new master has seen the newer list too, and no version that it may serve.
    assert server.stop() == 0
    server = start(site).serving(1)
    state = server.state()["models"]["price"]
    assert (state["version"], "was there already" in state["error"]) == (None, True)
    assert _ask(server, "price", "predict")[0] == 503
    assert _ask(server, "mlp", "predict")[0] == 200
    assert other.publish("price", 4) == 2  # made anew, its list is younger again
    other.publish("price", 5)
    server.wait(told(3, None), "a list that is newer")
    assert server.stop() == 0


def test_a_language_model_is_the_first_model_or_none(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    version = languages.publish(site)
    own = {"registry": str(tmp_path / "site/registry"), "keyring": str(tmp_path / "site/keyring")}
    site.write(model="other", models={languages.NAME: own})
    known = settings.read(site.config)
    with ThreadPoolExecutor(1) as pool:
        found = further.load(
            known, {languages.NAME: {"version": version}}, streams=1, threads=1, pool=pool,
            statistics=_nothing,
            watch=lambda *_: pytest.fail("it isn't watched"),
        )  # fmt: skip
    assert "is a language model" in (found[languages.NAME].error or "")


async def _nothing(model: str) -> bytes:
    del model
    return b"{}"
