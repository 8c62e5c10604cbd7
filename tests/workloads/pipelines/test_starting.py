"""Starts of runs against an API server of the test's own; tests/cluster has a real one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, cast

import pytest

from falaj.workloads.api_requests import ApiServer
from falaj.workloads.api_server import ApiError
from falaj.workloads.errors import LOST, REFUSED, WorkloadError
from falaj.workloads.pipelines import __main__ as command
from falaj.workloads.pipelines.starting import LABEL, Outcome, Starter

TEMPLATE: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {
        "name": "credit", "namespace": "acme-training",
        "labels": {LABEL: "credit", "falaj.io/pipeline-template": "true"},
        "annotations": {"falaj.io/queue": "default", "falaj.io/owner": "ml@acme.example"},
    },
    "spec": {
        "managedBy": "falaj.io/pipeline-template", "suspend": True,
        "replicatedJobs": [{"name": "node", "template": {"spec": {"template": {
            "metadata": {"annotations": {"falaj.io/dataset": "credit-*"}}, "spec": {},
        }}}}],
    },
}  # fmt: skip
RUN = {"metadata": {"name": "credit-4", "annotations": {"falaj.io/data-digest": "4" * 64}}}


class Api:
    """What the API server has, and what it is told."""

    def __init__(self, *runs: dict[str, Any], state: dict[str, Any] | None = None) -> None:
        self.runs = list(runs)
        self.state = state
        self.made: list[dict[str, Any]] = []
        self.refusals: list[ApiError] = []
        self.others: list[dict[str, Any]] = []
        self.request: str | None = None

    def get(self, path: str) -> dict[str, Any]:
        if path.endswith("/jobsets/credit"):
            return copy.deepcopy(TEMPLATE)
        if path.endswith("/configmaps/credit-drift"):
            return {"data": None if self.request is None else {"drift.json": self.request}}
        assert path == "/api/v1/namespaces/acme-training/configmaps/credit-pipeline"
        data = {"data": {"last.json": json.dumps(self.state)}} if self.state is not None else {}
        return {"metadata": {}, **data}

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        if not query:
            return [*self.runs, *self.others]
        assert query == {"labelSelector": f"{LABEL}=credit,!falaj.io/pipeline-template"}
        return self.runs

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["kind"] == "SelfSubjectReview":
            assert path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            return {"status": {"userInfo": {"username": "x", "uid": "7e"}}}
        if self.refusals:
            raise self.refusals.pop(0)
        self.made.append(body)
        return body

    def merge(self, path: str, body: dict[str, Any]) -> None:
        self.state = json.loads(body["data"]["last.json"])


def starter(api: Api, data: Path | None) -> Starter:
    return Starter(cast("ApiServer", api), "credit", "acme-training", data, refuse, lambda _: None)


def refuse(text: str) -> None:
    raise AssertionError(f"said: {text}")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "credit-1"
    folder.mkdir()
    said = {"digest": "5" * 64, "created": "2024-10-01T00:00:00+00:00"}
    (folder / "dataset.json").write_text(json.dumps(said), "utf-8")
    return tmp_path


def run(state: str | None = "Completed", **about: Any) -> dict[str, Any]:
    found = copy.deepcopy(RUN)
    found["metadata"] |= about
    return {**found, "status": {"terminalState": state} if state else {}}


def test_the_number_goes_on_from_what_was_written_or_from_what_is_there(data: Path) -> None:
    for api, name in (
        (Api(), "credit-1"),
        (Api(state={"number": 7, "digest": ""}), "credit-8"),
        (Api(run(), state={"number": 7, "digest": ""}), "credit-8"),
        # Who started it was ended before it wrote that down.
        (Api(run(), state={"number": 3, "digest": "5" * 64}), "credit-5"),
    ):
        assert starter(api, data).start("new-data").started == name
        assert api.state
        assert (api.state["name"], api.state["digest"]) == (name, "5" * 64)


@pytest.mark.parametrize("run", [run(None), run(deletionTimestamp="2026-10-01T00:00:00Z")])
def test_none_is_started_while_one_is_on_or_on_its_way_out(
    data: Path, run: dict[str, Any]
) -> None:
    api = Api(run)
    outcome = starter(api, data).start("by-hand")
    assert (outcome.started, outcome.why) == (None, "credit-4 is still on")
    assert api.made == []


def test_old_data_start_none_but_when_asked(data: Path) -> None:
    seen = {"number": 3, "digest": "5" * 64}
    api = Api(state=dict(seen))
    assert "nothing is newer" in starter(api, data).start("new-data").why
    assert (api.made, api.state) == ([], seen)
    for reason in ("schedule", "up", "by-hand", "drift"):
        assert starter(Api(state=dict(seen)), data).start(reason).started == "credit-4"


def test_data_older_than_the_last_runs_start_none_but_when_asked(data: Path) -> None:
    """The last run's were left out, as they can't be read for a while, or were removed."""
    seen = {"number": 3, "digest": "6" * 64, "made": "2024-10-01T00:00:01+00:00"}
    api = Api(state=dict(seen))
    assert "nothing is newer" in starter(api, data).start("new-data").why
    assert (api.made, api.state) == ([], seen)
    assert starter(api, data).start("schedule").started == "credit-4"
    assert api.state
    assert api.state["made"] == "2024-10-01T00:00:00+00:00"
    for made in (None, "2024-10-01T00:30:00+01:00"):
        api = Api(state={**seen, "made": made})
        assert starter(api, data).start("new-data").started == "credit-4"
    for wrong in (7, "yesterday", "2024-10-01T00:00:01"):
        with pytest.raises(WorkloadError, match="remove the key"):
            starter(Api(state={**seen, "made": wrong}), data).start("new-data")


def test_without_data_a_look_is_quiet_and_a_start_is_refused(tmp_path: Path) -> None:
    for reason in ("new-data", "up"):
        assert "there is no snapshot" in starter(Api(), tmp_path).start(reason).why
    with pytest.raises(WorkloadError, match="there is no snapshot credit-"):
        starter(Api(), tmp_path).start("schedule")


def test_who_comes_second_starts_none(data: Path) -> None:
    api = Api()
    api.refusals = [ApiError(409, "exists")]
    assert "by another one just now" in starter(api, data).start("schedule").why
    assert api.state is None


@pytest.mark.parametrize("labels", [None, {}, {LABEL: "credit-1"}])
def test_what_has_the_name_of_the_next_run_and_is_none_is_said(
    data: Path, labels: dict[str, str] | None
) -> None:
    """Else nothing would ever be started, without a word."""
    api = Api()
    api.refusals = [ApiError(409, "exists")]
    api.others = [{"metadata": {"name": "credit-1", "labels": labels}}]
    with pytest.raises(WorkloadError, match="credit-1 is there that is no run of credit"):
        starter(api, data).start("schedule")


def test_a_template_that_just_changed_is_read_again(data: Path) -> None:
    api = Api()
    api.refusals = [ApiError(403, "of a template of before")] * 3
    assert starter(api, data).start("up").started == "credit-1"
    api = Api()
    api.refusals = [ApiError(403, "for ever")] * 4
    with pytest.raises(ApiError, match="for ever"):
        starter(api, data).start("up")


def test_a_program_with_data_of_its_own_needs_none() -> None:
    api = Api()
    assert starter(api, None).start("schedule").started == "credit-1"
    assert api.made[0]["metadata"]["annotations"]["falaj.io/data-digest"] == ""


def test_a_run_is_owned_by_the_account_that_starts_it() -> None:
    api = Api()
    starter(api, None).start("schedule")
    [run] = api.made
    # No controller: Kueue would take it for another's, which waits for no quota.
    assert run["metadata"]["ownerReferences"] == [{
        "apiVersion": "v1", "kind": "ServiceAccount", "name": "credit-pipeline", "uid": "7e",
        "blockOwnerDeletion": True,
    }]  # fmt: skip


def test_a_record_that_cannot_be_read_is_said(data: Path) -> None:
    with pytest.raises(WorkloadError, match="remove the key"):
        starter(Api(state={"number": "x"}), data).start("schedule")


def test_the_command_says_what_is_wrong_and_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["start", "--pipeline", "credit", "--namespace", "acme-training", "--reason", "up",
             "--token", str(tmp_path / "token"), "--authority", str(tmp_path / "ca")]  # fmt: skip
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert command.main(words) == REFUSED
    assert "this isn't a pod of the cluster" in capsys.readouterr().err
    for error, status in (
        (ApiError(404, "no template"), LOST),
        (ApiError(503, "later"), LOST),
        (ApiError(403, "refused"), REFUSED),
    ):

        class Failing:
            def __init__(self, *_: object, requests: None, failure: ApiError = error) -> None:
                assert requests is None
                self._failure = failure

            def start(self, _: str, *, if_asked: bool) -> None:
                assert not if_asked
                raise self._failure

        monkeypatch.setattr(ApiServer, "of", lambda *_: None)
        monkeypatch.setattr(command, "Starter", Failing)
        assert command.main([*words, "--server", "https://127.0.0.1:1"]) == status
        assert error.message in capsys.readouterr().err


def asked(api: Api, data: Path | None, reason: str = "drift", *, if_asked: bool = True) -> Outcome:
    made = Starter(
        cast("ApiServer", api), "credit", "acme-training", data, refuse, lambda _: None,
        "credit-drift",
    )  # fmt: skip
    return made.start(reason, if_asked=if_asked)


def test_what_is_asked_for_is_started_once_and_for_newer_data_alone(
    data: Path, tmp_path: Path
) -> None:
    api = Api()
    assert asked(api, data).why == "nobody asks for a run"
    api.request = json.dumps({"signal": "a" * 64})
    assert asked(api, data).started == "credit-1"
    assert api.state
    assert api.state["asked"] == "a" * 64
    assert asked(api, data).why == "a run was started for it"
    api.request = json.dumps({"signal": "b" * 64})
    assert "nothing is newer" in asked(api, data).why
    # Newer data were trained on by the clock: that is what was asked for.
    newer = tmp_path / "credit-2"
    newer.mkdir()
    said = {"digest": "6" * 64, "created": "2024-11-01T00:00:00+00:00"}
    (newer / "dataset.json").write_text(json.dumps(said), "utf-8")
    assert asked(api, data, "schedule", if_asked=False).started == "credit-2"
    assert api.state["asked"] == "b" * 64
    assert asked(api, data).why == "a run was started for it"
    api.request = None
    assert asked(api, data, "by-hand", if_asked=False).started == "credit-3"
    assert api.state["asked"] == "b" * 64


def test_who_is_asked_waits_for_the_first_data_and_needs_none_with_its_own(tmp_path: Path) -> None:
    api = Api()
    api.request = json.dumps({"signal": "a" * 64})
    assert "there is no snapshot" in asked(api, tmp_path).why
    assert asked(api, None).started == "credit-1"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"signal": 1}', '{"signal": "' + "A" * 64 + '"}']
)
def test_what_is_no_request_is_said(data: Path, text: str) -> None:
    api = Api()
    api.request = text
    with pytest.raises(WorkloadError, match="is no request, whose signal"):
        asked(api, data)
