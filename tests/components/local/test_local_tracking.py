"""A run of a stack is sent to its tracking server, and later where that was away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from falaj.components.local.machine import InvalidInputsError, LocalError
from falaj.components.local.provider.handler import Context
from falaj.components.local.provider.resources.training_run import TrainingRunHandler, run_digest
from falaj.stacks.settings import LocalSettings, validate
from falaj.stacks.settings.tracking import tracking_args
from falaj.workloads.training import record as records
from tests.components.local.conftest import ProviderClient
from tests.stacks.test_every_local_setting import declared
from tests.stacks.test_settings import LOCAL, refused
from tests.workloads.inference.serving import Pki
from tests.workloads.training.test_tracking import RECORD
from tests.workloads.training.tracking_server import Store, serving

_GIVEN: dict[str, Any] = {"site": "/s", "dataset": "/d", "datasetDigest": "abc"}


def _state(folder: Path, **more: Any) -> dict[str, Any]:
    records.begin(folder, "1d" * 32, {"epochs": 2}, "ab" * 32)
    (folder / records.MODEL).write_bytes(b"weights")
    (folder / records.RECORD).write_text(json.dumps(RECORD))
    return {**TrainingRunHandler().check({**_GIVEN, **more}, {}), "path": str(folder)}


@pytest.mark.parametrize(
    "server", ["http://mlflow.example.ae", "https://me:word@10.0.0.7", "https://10.0.0.7/?a=b", ""]
)
def test_an_address_that_cannot_be_a_server(server: str) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        TrainingRunHandler().check({**_GIVEN, "tracking": server}, {})
    assert [each.property for each in caught.value.errors] == ["tracking"]
    assert "me:word" not in str(caught.value.errors)


def test_where_a_run_is_sent_does_not_name_it() -> None:
    sent = {
        "tracking": "https://10.0.0.7", "trackingExperiment": "churn",
        "trackingAllow": ["mlflow.example.ae"],
    }  # fmt: skip
    assert run_digest({**_GIVEN, **sent}) == run_digest(_GIVEN)


def test_a_new_server_gets_the_run_and_nothing_is_trained(tmp_path: Path) -> None:
    handler, store = TrainingRunHandler(), Store()
    with serving(store) as url:
        before = _state(tmp_path)
        wanted = handler.check({**_GIVEN, "tracking": url, "trackingExperiment": "churn"}, {})
        changes = handler.diff(before, wanted)
        assert {key for key, change in changes.items() if change.replaces} == set()
        assert "tracking" in changes
        after = handler.update(Context("run"), "x", before, wanted)
        assert [run["status"] for run in store.runs.values()] == ["FINISHED"]
        assert list(store.experiments) == ["churn"]
        assert handler.diff({**after, "path": str(tmp_path)}, wanted) == {}


def test_a_file_gets_the_run_again_when_it_was_removed(tmp_path: Path) -> None:
    handler, file = TrainingRunHandler(), tmp_path / "mlflow.db"
    (tmp_path / "run").mkdir()
    before = _state(tmp_path / "run")
    wanted = handler.check({**_GIVEN, "trackingFile": str(file)}, {})
    assert run_digest(wanted) == run_digest(_GIVEN)
    assert not any(change.replaces for change in handler.diff(before, wanted).values())
    after = {**handler.update(Context("run"), "x", before, wanted), "path": before["path"]}
    assert file.is_file()
    assert handler.diff(after, wanted) == handler.drift(after) == {}
    file.unlink()
    assert set(handler.drift(after)) == {"trackingFile"}
    handler.update(Context("run"), "x", after, wanted)
    assert file.is_file()


def test_what_a_server_lacks_is_a_change_until_it_has_it(tmp_path: Path) -> None:
    handler = TrainingRunHandler()
    with serving(Store()) as gone:
        pass
    state = _state(tmp_path, tracking=gone)
    inputs = {key: value for key, value in state.items() if key != "path"}
    assert set(handler.diff(state, inputs)) == {"tracking"}
    with pytest.raises(LocalError, match="can't be reached"):
        handler.update(Context("run"), "x", state, inputs)
    assert set(handler.diff(state, inputs)) == {"tracking"}


@pytest.mark.slow
def test_a_training_is_sent_to_a_server_of_an_authority_of_ones_own(
    provider: ProviderClient, site: Path, tmp_path: Path
) -> None:
    pki, other, store = Pki(tmp_path / "a"), Pki(tmp_path / "b"), Store()
    table = tmp_path / "rows.csv"
    rows = "".join(f"{i % 7},{'yes' if i % 7 > 3 else 'no'}\n" for i in range(120))
    table.write_text(f"size,answer\n{rows}")
    keyring = provider.create("KeyRing", {"site": str(site)})[1]["path"]
    dataset = provider.create("Dataset", {
        "site": str(site), "source": str(table), "target": "answer", "keyring": keyring,
    })[1]  # fmt: skip
    with serving(store, pki) as url:
        given: dict[str, Any] = {
            "site": str(site), "dataset": dataset["path"], "datasetDigest": dataset["digest"],
            "keyring": keyring, "epochs": 2, "model": "network", "threads": 1, "tracking": url,
            "trackingAuthority": str(other.folder / "ca.crt"),
        }  # fmt: skip
        # Whom it doesn't trust gets nothing, and the training ends well.
        name, made = provider.create("TrainingRun", given)
        assert (store.calls, made["score"] > 0) == ([], True)
        assert any("certificate" in message for _, message, _ in provider.engine.messages)
        given["trackingAuthority"] = str(pki.folder / "ca.crt")
        assert "tracking" in provider.diff("TrainingRun", name, made, given).diffs
        made = provider.update("TrainingRun", name, made, given)
        assert not provider.diff("TrainingRun", name, made, given).diffs
    (run,) = store.runs.values()
    assert (run["status"], run["params"]["epochs"]) == ("FINISHED", "2")
    assert {step for key, step, *_ in run["metrics"] if key == "loss"} == {1, 2}


@pytest.mark.parametrize(
    ("tracking", "said"),
    [
        ({"server": "http://mlflow.example.ae"}, "an address that starts with https://"),
        (
            {"server": "https://me:word@10.0.0.7"},
            "given 'https://…@10.0.0.7'; allowed: an address",
        ),
        ({"server": "https://8.8.8.8"}, "given the host 8.8.8.8; allowed: hosts of one's own"),
        ({"server": "https://10.0.0.7", "secretFile": "none"}, "there is no file"),
        ({"server": "https://10.0.0.7", "experiment": "a'b"}, "1 to 200 letters"),
        ({"server": "https://10.0.0.7", "file": "a.db"}, "given beside server"),
        ({"secretFile": "a"}, "is of a server; name that as well"),
        ({"file": "none/a.db"}, "allowed: a file in a folder that is there"),
        ({"file": "."}, "allowed: a file in a folder that is there"),
    ],
)
def test_a_stack_that_names_a_server_it_may_not_have(
    tmp_path: Path, tracking: dict[str, Any], said: str
) -> None:
    values = {**LOCAL, "falaj:dataset": "digits", "falaj:training": {"tracking": tracking}}
    assert said in refused(values, tmp_path)


@pytest.mark.parametrize(("given", "name"), [({}, "mlflow.db"), ({"file": "a.db"}, "a.db")])
def test_without_a_server_a_file_of_the_project_is_meant(
    tmp_path: Path, given: dict[str, Any], name: str
) -> None:
    values = {**LOCAL, "falaj:dataset": "digits", "falaj:training": {"tracking": given}}
    settings = validate(values, tmp_path, stack="local")
    assert isinstance(settings, LocalSettings)
    assert tracking_args(settings.training.tracking, tmp_path) == {
        "tracking": None, "tracking_file": str(tmp_path / name), "tracking_experiment": None,
    }  # fmt: skip


def test_the_run_of_a_stack_gets_the_file_and_no_section() -> None:
    made = json.loads(declared({"platform": "local", "training": {"tracking": {}}}))
    found = [
        (key, value) for _, name, inputs in made if name == "run"
        for key, value in inputs.items() if key.startswith("tracking")
    ]  # fmt: skip
    assert set(found) == {("trackingFile", "/project/mlflow.db")}


def test_a_server_elsewhere_in_the_country_is_named_as_allowed(tmp_path: Path) -> None:
    tracking = {"server": "https://8.8.8.8", "allowedHosts": ["8.8.8.8"]}
    values = {**LOCAL, "falaj:dataset": "digits", "falaj:training": {"tracking": tracking}}
    settings = validate(values, tmp_path, stack="local")
    assert isinstance(settings, LocalSettings)
    assert settings.training.tracking is not None
    tracking["allowedHosts"] = ["8.8.4.4"]
    assert "given the host 8.8.8.8" in refused(values, tmp_path)
