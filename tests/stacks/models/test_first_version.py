"""A service whose model is yet to be trained comes up with its first version, in one command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
import yaml

from falaj.stacks.blueprints import in_cluster as blueprint
from falaj.stacks.command import first_version, in_cluster, lifecycle, pods
from falaj.stacks.command.call import Call
from falaj.stacks.command.first_version import Waiting
from falaj.stacks.command.pinned import follow_in
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import WorkloadsSettings
from falaj.stacks.settings.problems import RefusedSettingsError
from falaj.stacks.validation import ask_components
from falaj.workloads.errors import WorkloadError
from tests.stacks.images.registries import Registry
from tests.stacks.models.published import MODEL, Publisher
from tests.stacks.models.test_models_follow import Site
from tests.stacks.models.test_models_pin import STACK, versions
from tests.stacks.models.test_models_pin import project as project  # noqa: PLC0414 - a fixture

_PUBLISH: dict[str, Any] = {
    "model": MODEL, "keySecret": "acme/publishing-keys", "registryCidrs": ["10.20.0.5/32"],
}  # fmt: skip


@pytest.fixture
def site(
    publisher: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> Site:
    """A stack that trains the model, and has no version of it yet."""
    found = Site(publisher, home, project, capsys)
    found.say(versions=None)
    job(found, publish=_PUBLISH)
    return found


def job(site: Site, **changes: Any) -> None:
    document = yaml.safe_load(site.file.read_text())
    document["config"]["falaj:trainingJobs"] = {
        "notes": {
            "dataset": "credit-2026-10", "flavor": "cpu-x86-64", "checkpoints": "falaj-files",
            "keySecret": "acme/training-keys", **changes,
        }
    }  # fmt: skip
    site.file.write_text(yaml.safe_dump(document))


def settings() -> WorkloadsSettings:
    found = StackFile(STACK, Project.find()).settings()
    assert isinstance(found, WorkloadsSettings)
    return found


def test_a_service_waits_for_the_training_that_publishes_what_it_follows(site: Site) -> None:
    assert {name: str(each) for name, each in settings().awaited.items()} == {
        MODEL: "training job notes"
    }
    before = site.file.read_text()
    said = site.follow()
    assert "comes once training job notes has published credit@candidate" in said
    assert site.file.read_text() == before


@pytest.mark.parametrize(
    "publish",
    [None, {**_PUBLISH, "model": "churn"}, {**_PUBLISH, "alias": "tried"}],
    ids=["nothing", "another model", "another alias"],
)
def test_a_service_that_nobody_publishes_for_is_refused(
    site: Site, publish: Mapping[str, Any] | None
) -> None:
    job(site, **({"publish": dict(publish)} if publish else {}))
    with pytest.raises(RefusedSettingsError, match="falaj models follow"):
        ask_components(settings(), site.file.parents[1])


def test_the_rest_of_a_service_is_checked_before_its_training_begins(site: Site) -> None:
    ask_components(settings(), site.file.parents[1])
    site.say(minReplicas=1)
    with pytest.raises(RefusedSettingsError, match="minReplicas: given 1;") as refused:
        ask_components(settings(), site.file.parents[1])
    assert "versions" not in str(refused.value)


def test_a_service_without_a_version_is_left_out_and_nothing_else(site: Site) -> None:
    made: list[tuple[str, str]] = []

    def kind(name: str) -> Callable[..., Any]:
        return lambda key, *_: made.append((name, key)) or SimpleNamespace(url="")

    kinds = ("TrainingJob", "InferenceService")
    parts = blueprint.InClusterParts(
        SimpleNamespace(**{name: kind(name) for name in kinds}),
        blueprint.common_arguments(settings()), {}, pulumi.ResourceOptions(),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pulumi, "export", lambda *_: None)
        blueprint.declare_workloads(settings(), parts)
        assert made == [("TrainingJob", "notes")]
        site.push(1)
        site.promote(1, "candidate")
        site.follow()
        made.clear()
        blueprint.declare_workloads(settings(), parts)
    assert made == [("TrainingJob", "notes"), ("InferenceService", MODEL)]


def test_the_first_version_is_stable_until_another_is_promoted(site: Site) -> None:
    site.push(3)
    site.promote(1, "candidate")
    assert "has all requests: there is no alias production yet" in site.follow()
    assert site.shares == [(1, 100)]
    site.promote(2, "candidate")
    site.follow()
    assert site.shares == [(1, 90), (2, 10)]
    # Withdrawn, as the judge does it; another is tried, and promoted.
    site.promote(1, "candidate", "--why", "missed errors")
    site.follow()
    assert site.shares == [(1, 100)]
    site.promote(3, "candidate")
    site.follow()
    assert site.shares == [(1, 90), (3, 10)]
    site.promote(3)
    site.follow()
    assert site.shares == [(3, 100)]


def test_a_version_that_no_record_speaks_of_is_no_first_one(site: Site) -> None:
    site.push(1)
    site.promote(1, "candidate")
    digest = f"sha256:{'7' * 64}"
    site.say(versions=[
        {"version": 9, "weight": 100, "packageDigest": digest, "keysDigest": digest}
    ])  # fmt: skip
    assert "has no alias 'production'" in site.refused()


class Clock:
    """A time that passes while somebody sleeps; what happens then."""

    def __init__(self, happens: Mapping[int, Callable[[], object]] | None = None) -> None:
        self.now = 0.0
        self.sleeps = 0
        self._happens = happens or {}

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        self._happens.get(self.sleeps, lambda: None)()


def waiting(clock: Clock) -> Waiting:
    call = Call(StackFile(STACK, Project.find()), sandbox=False)
    return Waiting(call, settings(), lifecycle.follows_aliases, clock, clock.sleep)


def test_a_first_version_is_waited_for_and_written_into_the_file(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def publish() -> None:
        site.push(1)
        site.promote(1, "candidate")

    clock = Clock({3: publish})
    assert waiting(clock).wait(60) == {}
    assert clock.sleeps == 3
    assert [each["version"] for each in versions(site.file)] == [1]
    said = capsys.readouterr().out
    assert "waiting for the first version, up to 60 min more: training job notes" in said
    assert "what its pods do can't be seen" in said


def test_nobody_waits_longer_than_was_asked_for(site: Site) -> None:
    clock = Clock()
    assert list(waiting(clock).wait(2)) == [MODEL]
    assert clock.now == 120
    clock = Clock()
    assert list(waiting(clock).wait(0)) == [MODEL]
    assert clock.sleeps == 0


def test_a_registry_that_is_away_meanwhile_is_asked_again(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    address = site.home.address
    site.say(registry="127.0.0.1:1")
    clock = Clock({1: lambda: site.say(registry=address)})
    assert list(waiting(clock).wait(1)) == [MODEL]
    assert "127.0.0.1:1" in capsys.readouterr().out


def test_a_training_that_failed_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition = {"type": "Failed", "status": "True", "message": "the gate refused it"}

    class Failed(pods.Cluster):
        def __init__(self) -> None:
            """There is no API server."""

        def job_sets(self, namespace: str, labels: str) -> list[dict[str, Any]]:
            assert (namespace, "falaj.io/component in (notes" in labels) == ("acme-training", True)
            return [{"status": {"conditions": [condition]}}]

        def pods(self, workload: Any) -> list[dict[str, Any]]:
            return []

        def why_it_waits(self, workload: Any) -> str:
            return ""

    monkeypatch.setattr(in_cluster, "connect", lambda *_: Failed())
    with pytest.raises(StackError, match=r"(?s)notes failed.*the gate refused it.*logs.* notes"):
        waiting(Clock()).wait(60)


def test_a_service_that_is_there_does_not_go_because_its_versions_are_missing(
    site: Site,
) -> None:
    urn = "urn:pulumi:onprem-workloads::falaj::falaj:kubernetes:{}::{}"
    others = (("TrainingJob", "notes"), ("InferenceService", "churn"))
    resources = [
        {"urn": urn.format(kind, name), "type": f"falaj:kubernetes:{kind}"}
        for kind, name in others
    ]
    first_version.require_none_served(settings(), resources)
    kind = "InferenceService"
    resources.append({"urn": urn.format(kind, MODEL), "type": f"falaj:kubernetes:{kind}"})
    with pytest.raises(StackError, match=r"versions: missing, and the service is there"):
        first_version.require_none_served(settings(), resources)


def test_a_pipeline_is_started_by_the_clock_and_not_waited_for(site: Site) -> None:
    document = yaml.safe_load(site.file.read_text())
    config = document["config"]
    [given] = config.pop("falaj:trainingJobs").values()
    config["falaj:pipelines"] = {
        "notes": {**given, "schedule": "0 22 * * *", "controlPlaneCidrs": []}
    }
    site.file.write_text(yaml.safe_dump(document))
    clock = Clock()
    assert [str(each) for each in waiting(clock).wait(60).values()] == ["pipeline notes"]
    assert clock.sleeps == 0


def test_aliases_of_a_service_that_nobody_trains_for_must_stand_for_something(site: Site) -> None:
    digest = f"sha256:{'7' * 64}"
    site.say(versions=[
        {"version": 1, "weight": 100, "packageDigest": digest, "keysDigest": digest}
    ])  # fmt: skip
    with pytest.raises(WorkloadError, match="has no alias"):
        follow_in(StackFile(STACK, Project.find()), dry_run=True)
