"""Jobs of further models: each belongs to the model that was asked, over restarts and versions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falaj.workloads.inference.process import logs
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.protocol.routes import Router
from falaj.workloads.inference.rpc.messages import CLASSES
from tests.workloads.inference import models
from tests.workloads.inference.grpc_calls import row as grpc_row
from tests.workloads.inference.serving import PATIENCE, Server, Site, call, row, started
from tests.workloads.inference.test_further_models import Other
from tests.workloads.inference.test_jobs_grpc import Asker
from tests.workloads.inference.test_jobs_served import ON, QUICK, Caller, folder_of, steps
from tests.workloads.inference.test_jobs_served import token_of as token_of_subject

Start = Callable[..., Server]
NO_JOB = "you have no such job"


# -- paths -------------------------------------------------------------------------------------

ROUTER = Router("first", "1", {"price": "3", "jobs": "1", "versions": "2", "gone": None})
SERVED = ("first", "price", "jobs", "versions", "gone")


@pytest.mark.parametrize("model", SERVED)
def test_a_job_is_asked_for_below_its_models_name(model: str) -> None:
    base = f"/v2/models/{model}/jobs"
    for path, name in (("", routes.JOBS), ("/x", routes.JOB), ("/x/result", routes.JOB_RESULT)):
        found = ROUTER.find((base + path).encode())
        assert found is not None
        assert (found.name, found.model, found.scope) == (name, model, "predict")
    assert ROUTER.job_of(f"{base}/x/result".encode()) == "x"


segments = st.sampled_from(
    [*SERVED, "jobs", "result", "..", ".", "", "%2e%2e", "%2f", "a%2Fjobs", "versions", "1", "3",
     "\u0633\u0639\u0631", "x", "\0", "models", "v2"]
)  # fmt: skip


@given(st.lists(segments, max_size=8))
@example(["price", "jobs", "..", "..", "first", "jobs", "x"])
@example(["price", "jobs", "jobs", "x"])
@example(["jobs", "x"])
@example(["jobs", "jobs", "x", "result"])
@example(["first%2Fjobs%2Fx"])
def test_no_path_asks_for_another_models_job_than_it_begins_with(parts: list[str]) -> None:
    """The scope is demanded of the route's model; what is found is found below that name."""
    url = ("/v2/models/" + "/".join(quote(each, safe="%.") for each in parts)).encode()
    found = ROUTER.find(url)
    if found is None or found.name not in (routes.JOBS, routes.JOB, routes.JOB_RESULT):
        return
    path = routes.path_of(url).decode()
    assert path.startswith(f"/v2/models/{found.model}/")
    assert found.model in SERVED
    if found.name != routes.JOBS:
        identifier = ROUTER.job_of(url)
        assert "/" not in identifier
        rest = path.removeprefix(f"/v2/models/{found.model}/").strip("/").removesuffix("/result")
        assert rest.endswith(f"jobs/{identifier}") or identifier == "result"


# -- a server ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A first model, three of another stack's that can be asked, and one that can't."""
    root = tmp_path_factory.mktemp("further jobs")
    site, other = Site(root / "site"), Other(root / "other")
    for name in ("price", "jobs", "changed"):
        other.publish(name)
    other.publish("count", model=models.counting())
    other.tamper("changed", 1)
    site.write(
        jobs=ON, limits=QUICK,
        models={
            "price": other.further(max_rows=2, max_body_bytes=4096),
            "jobs": other.further(),
            "count": other.further(),
            "changed": other.further(),
        },
        auth=site.document["auth"] | {"clients": {"caller": ["predict:price"]}},
    )  # fmt: skip
    with started(site, site.publish(models.mlp())) as server:
        yield server
    assert logs.verify(site.logs)["records"]
    assert "Traceback" not in server.errors.read_text()


class Of(Caller):
    """A caller of one model."""

    def __init__(self, server: Server, model: str, *scopes: str, subject: str = "tester") -> None:
        super().__init__(server, subject, *scopes or (f"predict:{model}",))
        self.base = f"/v2/models/{model}/jobs"

    def post(self, body: object = None, **headers: str) -> str:
        status, told, content = self.ask("POST", self.base, body or row(), **headers)
        assert status == 202, content
        identifier = json.loads(content)["id"]
        assert told["Location"] == f"{self.base}/{identifier}"
        return identifier

    def about(self, identifier: str, rest: str = "", method: str = "GET") -> tuple[int, Any]:
        status, _, content = self.ask(method, f"{self.base}/{identifier}{rest}")
        return status, json.loads(content)

    def ended(self, identifier: str) -> str:
        until = time.monotonic() + PATIENCE
        while True:
            status, found = self.about(identifier)
            assert status == 200, found
            if found["state"] not in ("queued", "running"):
                return found["state"]
            assert time.monotonic() < until, found
            time.sleep(0.02)


def test_each_models_job_has_that_models_answer(served: Server) -> None:
    caller = Caller(served, "tester")
    for name in ("mlp", "price", "jobs"):
        of = Of(served, name)
        direct = caller.ask("POST", f"/v2/models/{name}/infer", row(id="17"))
        assert direct[0] == 200
        identifier = of.post(row(id="17"))
        assert of.ended(identifier) == "done"
        status, found = of.about(identifier, "/result")
        assert (status, found) == (200, json.loads(direct[2]))
        assert (found["model_name"], found["id"]) == (name, "17")


def test_a_token_of_another_model_sees_cancels_and_finds_nothing(served: Server) -> None:
    """Of one and the same caller, with tokens for one model each, and with one for all."""
    price, first, count = (Of(served, name) for name in ("price", "mlp", "count"))
    mine = price.post()
    assert price.ended(mine) == "done"
    for narrow in (first, count):
        for method, rest in (("GET", ""), ("GET", "/result"), ("DELETE", "")):
            # Below the job's own model it may not ask; below its own there is no such job.
            path = f"{price.base}/{mine}{rest}"
            status, _, content = narrow.ask(method, path)
            assert status == 403
            assert "predict:price" in json.loads(content)["error"]
            status, found = narrow.about(mine, rest, method)
            assert (status, found["error"].startswith(NO_JOB)) == (404, True)
    everything = Of(served, "count", "predict")
    assert everything.about(mine, "", "DELETE")[0] == 404
    assert price.about(mine)[1]["state"] == "done"
    unknown = price.about("0" * 32)
    assert everything.about(mine)[1] == unknown[1]
    assert price.ask("GET", price.base)[0] == 405
    assert first.ask("POST", price.base, row())[0] == 403
    assert price.about(mine, "", "DELETE") == (200, {"id": mine, "state": "removed"})


@pytest.mark.parametrize(
    "path",
    ["/v2/models/price/jobs/{}/../../../mlp/jobs/{}", "/v2/models/mlp%2Fjobs%2F{}",
     "/v2/models/mlp/jobs/%2e%2e/price/jobs/{}", "/v2/models/\u0633\u0639\u0631/jobs/{}",
     "/v2/models/price/jobs/jobs/{}", "/v2/models/jobs/{}", "/v2/models/jobs/jobs/{}",
     "/v2/models//jobs/{}", "/v2/models/PRICE/jobs/{}", "/v2/models/price /jobs/{}"],
)  # fmt: skip
def test_no_other_way_to_write_a_path_leads_to_anothers_job(served: Server, path: str) -> None:
    mine = Of(served, "mlp")
    identifier = mine.post()
    mine.ended(identifier)
    other = Of(served, "price", "predict:price", "predict:jobs")
    asked = quote(path.replace("{}", identifier), safe="/%.")
    for method in ("GET", "DELETE"):
        assert other.ask(method, asked)[0] in (403, 404)
    assert mine.about(identifier)[1]["state"] == "done"


def test_a_key_is_of_one_model_and_limits_are_its_own(served: Server) -> None:
    key = {"Idempotency_Key": "order 17".replace(" ", "-")}
    price, first = Of(served, "price"), Of(served, "mlp")
    mine = price.post(**key)
    assert price.ended(mine) == "done"
    assert price.post(**key) == mine
    others = first.post(row([1.0] * 64), **key)
    assert others != mine
    assert first.ended(others) == "done"
    tensor = {"name": "input", "datatype": "FP32", "shape": [3, 64], "data": [0.5] * 192}
    status, _, content = price.ask("POST", price.base, {"inputs": [tensor]})
    assert status == 400, content
    large = row(id="x" * 900, parameters={"a": "b" * 5000})
    assert price.ask("POST", price.base, large)[0] == 413
    assert first.ended(first.post({"inputs": [tensor]})) == "done"


def test_a_certificate_that_is_for_one_model(served: Server) -> None:
    connection = served.connect("caller")
    status, made = call(connection, "POST", "/v2/models/price/jobs", body=row())
    assert status == 202
    assert call(connection, "GET", f"/v2/models/mlp/jobs/{made['id']}")[0] == 403
    assert call(connection, "POST", "/v2/models/mlp/jobs", body=row())[0] == 403
    assert call(connection, "DELETE", f"/v2/models/price/jobs/{made['id']}")[0] == 200


def test_a_model_that_cannot_be_asked_takes_none(served: Server) -> None:
    gone = Of(served, "changed")
    status, told, content = gone.ask("POST", gone.base, row())
    assert (status, "Retry-After" in told) == (503, True), content
    # What it may have answered before can be asked about.
    assert gone.about("0" * 32)[0] == 404


def test_jobs_of_a_slow_model_are_stopped_and_others_take_turns(served: Server) -> None:
    slow, price = Of(served, "count"), Of(served, "price")
    endless, second = slow.post(steps(2**60)), slow.post(steps(2**60))
    quick = price.post()
    until = time.monotonic() + PATIENCE
    while slow.about(endless)[1]["state"] != "running":
        assert time.monotonic() < until
        time.sleep(0.02)
    assert slow.about(endless, "", "DELETE")[0] == 200
    # It was its turn, though the slow model's second came before.
    assert price.ended(quick) == "done"
    assert slow.about(second, "", "DELETE")[0] == 200
    assert slow.ended(slow.post(steps(3))) == "done"


def test_grpc_has_jobs_of_each_model_by_its_name(served: Server) -> None:
    with Asker(served, token=token_of_subject(served.site, "tester", "predict:price")) as asker:
        made = asker.submit(grpc_row("price"))
        price = Of(served, "price")
        assert price.ended(made.id) == "done"
        given_ = CLASSES["JobRequest"](model_name="price", id=made.id).SerializeToString()
        answer = CLASSES["ModelInferResponse"].FromString(
            asker.raw("GetJobResult", given_, service="falaj.inference.Jobs")
        )
        assert answer.model_name == "price"
        for name in ("mlp", "ghost", "changed"):
            with pytest.raises(grpc.RpcError) as caught:
                asker.about("GetJob", made.id, name)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            with pytest.raises(grpc.RpcError) as caught:
                asker.submit(grpc_row(name))
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with Asker(served, token=token_of_subject(served.site, "tester", "predict")) as wide:
        with pytest.raises(grpc.RpcError) as caught:
            wide.about("RemoveJob", made.id, "mlp")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_what_is_told_of_jobs_is_by_model(served: Server) -> None:
    of = Of(served, "price", subject="somebody")
    identifier = of.post()
    assert of.ended(identifier) == "done"
    watching = Caller(served, "watcher", "observe")
    until = time.monotonic() + PATIENCE
    while True:
        text = watching.ask("GET", "/metrics")[2].decode()
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        if float(lines['falaj_jobs{model="price",state="done"}']) > 0:
            break
        assert time.monotonic() < until
        time.sleep(0.1)
    assert float(lines['falaj_jobs_finished_total{model="price",state="done"}']) > 0
    assert float(lines['falaj_jobs_bytes{model="price"}']) > 0
    assert float(lines['falaj_jobs{model="changed",state="done"}']) == 0
    records = [json.loads(line) for line in (served.site.logs / "audit.jsonl").open()]
    told = [each for each in records if each.get("id") == identifier]
    assert [each["event"] for each in told] == ["job.accepted", "job.done"]
    assert {each["model"] for each in told} == {"price"}
    for name in ("mlp", "price"):
        paths = call(
            served.connect(), "GET", f"/v2/models/{name}/openapi.json" if name != "mlp" else
            "/v2/openapi.json", token=served.site.token(f"predict:{name}"),
        )[1]["paths"]  # fmt: skip
        jobs = {path for path in paths if "jobs" in path}
        base = f"/v2/models/{name}"
        assert jobs == {
            f"{each}/jobs{rest}"
            for each in (base, f"{base}/versions/1")
            for rest in ("", "/{id}", "/{id}/result")
        }


# -- servers of their own ----------------------------------------------------------------------


def test_jobs_outlive_kills_and_a_version_and_go_with_their_model(
    tmp_path: Path, start: Start
) -> None:
    site, other = Site(tmp_path / "site"), Other(tmp_path / "other")
    other.publish("count", model=models.counting())
    other.publish("price")
    both = {"count": other.further(), "price": other.further()}
    site.write(jobs=ON, limits=QUICK, models=both)
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    slow, price, first = Of(server, "count"), Of(server, "price"), Of(server, "mlp")
    answered = price.post()
    assert price.ended(answered) == "done"
    kept = first.post()
    assert first.ended(kept) == "done"
    endless = slow.post(steps(2**60))
    waiting = [price.post() for _ in range(2)]
    pinned = json.loads(price.ask("POST", "/v2/models/price/versions/1/jobs", row())[2])["id"]
    # They wait: one worker has the endless one, which is of another model.
    server.kill()
    both["count"] = other.further(alias="nobody")
    site.write(models=both)
    server = start(site).serving(version)
    price = Of(server, "price")
    assert {price.ended(each) for each in (*waiting, pinned)} == {"done"}
    assert price.about(answered, "/result")[1]["model_version"] == "1"
    # The endless one's model has no version now: it waits, and keeps nobody from their turn; its
    # caller can ask about it and end it, and send no other.
    slow = Of(server, "count")
    assert slow.about(endless)[1]["state"] == "queued"
    assert slow.about(endless, "/result")[0] == 409
    assert slow.ask("POST", slow.base, steps(1))[0] == 503
    assert slow.about(endless, "", "DELETE")[0] == 200
    assert slow.about(endless)[0] == 404
    assert other.publish("price", 2) == 2

    def at(model: str, version: int) -> Callable[[dict[str, Any]], bool]:
        """Workers of the version before answer until they have gone."""
        return lambda state: (
            len(state["workers"]) == 1 and state["models"][model]["version"] == version
        )

    server.wait(at("price", 2), "version 2 of price")
    price = Of(server, "price")
    later = price.post()
    assert price.ended(later) == "done"
    assert price.about(later, "/result")[1]["model_version"] == "2"
    assert price.about(answered, "/result")[1]["model_version"] == "1"
    assert price.ask("POST", "/v2/models/price/versions/1/jobs", row())[0] == 404
    # With its model a job goes, also one that runs meanwhile; the others' stay.
    both["count"] = other.further()
    site.write(models=both)
    server.wait(at("count", 1), "count is there")
    slow = Of(server, "count")
    running = slow.post(steps(2**60))
    until = time.monotonic() + PATIENCE
    while slow.about(running)[1]["state"] != "running":
        assert time.monotonic() < until
        time.sleep(0.02)
    site.write(models={"price": both["price"]})
    server.wait(lambda state: list(state["models"]) == ["price"], "one further model")
    until = time.monotonic() + PATIENCE
    while list(folder_of(site).glob(f"{running}.*")):
        assert time.monotonic() < until
        time.sleep(0.05)
    server.wait(lambda state: len(state["workers"]) == 1, "the worker that ran it has gone")
    left = {path.name.partition(".")[0] for path in folder_of(site).iterdir()}
    assert left == {answered, kept, later, *waiting, pinned}
    records = [json.loads(line) for line in (site.logs / "audit.jsonl").open()]
    removed = [each for each in records if each["event"] == "job.removed"]
    assert {each["model"] for each in removed} == {"count"}
    assert running in {each["id"] for each in removed}
    status, _, content = Caller(server, "tester").ask("POST", slow.base, steps(1))
    assert status == 404, content
    assert server.stop() == 0
    assert "Traceback" not in server.errors.read_text()
