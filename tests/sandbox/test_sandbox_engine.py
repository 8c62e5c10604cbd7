"""Whole stacks in the sandbox, with a real engine and the vendors' own SDKs."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from falaj.components.catalogue.propagation import VARIABLE as PROPAGATION_VARIABLE
from falaj.engine.install import Engine
from falaj.engine.launch import additions
from falaj.sandbox import activation, faults
from falaj.sandbox.cloud import MARK
from falaj.sandbox.drift import set_property
from falaj.sandbox.faults import Fault
from falaj.sandbox.prediction import made_in_sandbox
from falaj.sandbox.store import Store
from tests.engine.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]

THREE_CLOUDS = """
import pulumi
import pulumi_aws as aws
import pulumi_azure_native as azure
import pulumi_kubernetes as kubernetes

config = pulumi.Config()
owner, name = config.get("owner") or "me", config.get("name")
in_aws = pulumi.ResourceOptions(
    provider=aws.Provider("aws", region="me-central-1", default_tags={"tags": {"team": "a"}})
)
topic = aws.sns.Topic("topic", tags={"owner": owner}, name=name, opts=in_aws)
queue = aws.sqs.Queue("queue", tags={"of": topic.arn}, opts=in_aws)
in_azure = pulumi.ResourceOptions(
    provider=azure.Provider("azure", subscription_id="00000000-0000-0000-0000-000000000000")
)
group = azure.resources.ResourceGroup(
    "group", location="uaenorth", tags={"owner": owner}, opts=in_azure
)
in_cluster = pulumi.ResourceOptions(
    provider=kubernetes.Provider("cluster", kubeconfig=pulumi.Output.secret("{}"))
)
space = kubernetes.core.v1.Namespace("space", opts=in_cluster)
kubernetes.core.v1.Secret(
    "secret",
    metadata={"namespace": space.metadata["name"]},
    string_data={"password": pulumi.Output.secret("hunter2")},
    opts=in_cluster,
)
pulumi.export("arn", topic.arn)
pulumi.export("group", group.id)
"""

ONE_TOPIC = """
import pulumi
import pulumi_aws as aws

config = pulumi.Config()
one = aws.sns.Topic("one", display_name=config.get("shown"))
aws.sns.Topic("two", display_name=one.name)
"""

MISTAKES = """
import pulumi

class Account(pulumi.CustomResource):
    def __init__(self, name, inputs):
        super().__init__("azure-native:storage:StorageAccount", name, inputs)

Account("account", {
    "kind": "StorageV3",
    "sku": {"name": "Standard_LRS", "teir": "x"},
    "encryption": {"services": {"blob": {"enabled": "yes"}}},
})
"""

EXISTING = """
import pulumi
import pulumi_aws as aws

name = "arn:aws:sns:me-central-1:000000000000:old"
options = pulumi.ResourceOptions(import_=name, ignore_changes=["tags"])
aws.sns.Topic("old", name="old", opts=options)
aws.sns.Topic.get("same", name)
"""


SETTLES = """
import pulumi
import pulumi_aws as aws
from falaj.components.specification.propagation import after_grant

config = pulumi.Config()
options = pulumi.ResourceOptions(hooks=after_grant("one", 30, changes=True))
one = aws.sns.Topic("one", display_name=config.get("shown"), opts=options)
aws.sns.Topic("two", display_name=one.name)
"""


@pytest.fixture
def project(tmp_path: Path, engine: Engine) -> Project:
    """A project in the sandbox with an empty stack `dev`."""
    real = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PULUMI_", "FALAJ_SANDBOX"))
    }
    base = activation.activated({**real, "FALAJ_HOME": str(tmp_path / "data")})
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "environment").symlink_to(sys.prefix)
    (folder / "Pulumi.yaml").write_text(
        "name: boxed\nruntime: {name: python, options: {virtualenv: environment}}\n"
        "config: {aws:region: {value: me-central-1}}\n",
        encoding="utf-8",
    )
    made = Project(folder, {**base, **additions(engine, base)}, engine.path)
    made.run("stack", "init", "dev")
    return made


def store(project: Project) -> Store:
    return Store(project.env["FALAJ_SANDBOX_CLOUD"])


def up(project: Project, *more: str, code: int | None = 0) -> str:
    return project.run("up", "--yes", "--skip-preview", "-s", "dev", *more, code=code)


def state(project: Project) -> dict[str, dict[str, Any]]:
    """The resources of the stack's state by name."""
    resources = (json.loads(_file(project).read_text())["checkpoint"]["latest"] or {}).get(
        "resources", []
    )
    return {each["urn"].split("::")[-1]: each for each in resources}


def _file(project: Project) -> Path:
    backend = Path(project.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    return backend / ".pulumi" / "stacks" / "boxed" / "dev.json"


@pytest.mark.thorough
def test_stack_of_three_clouds_lives_and_dies(project: Project) -> None:
    project.program(THREE_CLOUDS)
    preview = project.run("preview", "-s", "dev")
    assert "SANDBOX: nothing real is made" in preview
    assert preview.count("warning:") == preview.count("SANDBOX:")  # of nothing but the sandbox
    assert "+ 9 to create" in preview
    assert store(project).all() == []

    assert "+ 9 created" in up(project)
    made = state(project)
    assert made["topic"]["id"].startswith("arn:aws:sns:me-central-1:000000000000:topic")
    assert made["group"]["id"].startswith("/subscriptions/00000000-0000-0000-0000-000000000000/")
    assert made["topic"]["outputs"]["tagsAll"] == {"owner": "me", "team": "a"}
    assert MARK in made["topic"]["outputs"]
    assert "hunter2" not in json.dumps(made)  # neither in inputs nor in outputs
    up(project, "--expect-no-changes")

    project.config(owner="you", name="other")
    changed = up(project)
    assert "~ 2 updated" in changed  # the group, and the queue that names the topic
    assert "+-1 replaced" in changed
    assert state(project)["topic"]["id"].endswith(":other")
    topics = store(project).all("aws:sns/topic:Topic")
    assert [topic.id for topic in topics] == [state(project)["topic"]["id"]]

    set_property(store(project), "group", "tags.owner", "a stranger")
    assert "~ 1 updated" in project.run("refresh", "--yes", "--skip-preview", "-s", "dev")
    assert state(project)["group"]["outputs"]["tags"]["owner"] == "a stranger"
    assert "~ 1 updated" in up(project)
    assert store(project).named("group").outputs["tags"]["owner"] == "you"

    project.run("destroy", "--yes", "--skip-preview", "-s", "dev")
    assert store(project).all() == []
    assert state(project) == {}


@pytest.mark.thorough
def test_partial_failure_is_recovered_from(project: Project) -> None:
    project.program(ONE_TOPIC)
    faults.add(store(project), Fault("create", "aws:sns/topic:Topic", nth=2))
    failed = up(project, code=None)
    assert (
        "the create of two (aws:sns/topic:Topic) failed because the sandbox was told so" in failed
    )
    assert "Traceback" not in failed
    assert [made.urn.split("::")[-1] for made in store(project).all()] == ["one"]
    assert "+ 1 created" in up(project)

    project.config(shown="A")
    faults.add(store(project), Fault("update", name="one", timeout=True))
    assert "timed out because the sandbox was told so" in up(project, code=None)
    # The engine knows what was done, and settles it with the next run.
    assert state(project)["one"]["initErrors"]
    assert state(project)["one"]["outputs"]["displayName"] == "A"
    up(project)
    assert "initErrors" not in state(project)["one"]
    project.run("destroy", "--yes", "--skip-preview", "-s", "dev")
    assert store(project).all() == []


def test_mistakes_fail_the_preview_with_their_paths(project: Project) -> None:
    project.program(MISTAKES)
    failed = project.run("preview", "-s", "dev", code=None)
    for reason in (
        "'StorageV3' is not one of: Storage, StorageV2",
        "unknown property 'teir'; allowed: name",
        "expected true or false, given the string 'yes'",
        "missing required property 'resourceGroupName' (resource_group_name in Python)",
    ):
        assert reason in failed
    for path in ("sku.teir", "encryption.services.blob.enabled", "resourceGroupName"):
        assert f"resource 'account': property {path} value" in failed


@pytest.mark.thorough
def test_existing_resource_is_imported_and_state_of_another_cloud_refused(
    project: Project,
) -> None:
    project.program(
        "import pulumi_aws as aws\naws.sns.Topic('old', name='old', tags={'a': 'b'})\n"
    )
    up(project)
    before = json.loads(project.run("stack", "export", "-s", "dev"))
    assert made_in_sandbox(before) == [store(project).named("old").urn]
    # As if somebody else had made it: the stack forgets, the cloud does not.
    project.run("stack", "rm", "dev", "--yes", "--force", "--preserve-config")
    project.run("stack", "init", "dev")
    project.program(EXISTING)
    assert "= 1 imported" in up(project)
    assert state(project)["same"]["outputs"]["name"] == "old"
    up(project, "--expect-no-changes")

    # The same state as a real provider would have left it.
    for resource in before["deployment"]["resources"]:
        resource.get("outputs", {}).pop(MARK, None)
    file = project.folder / "real.json"
    file.write_text(json.dumps(before))
    project.run("stack", "import", "--file", str(file), "-s", "dev")
    for command in ("refresh", "destroy"):
        refused = project.run(command, "--yes", "--skip-preview", "-s", "dev", code=None)
        assert "was not made in the sandbox" in refused
    assert [made.urn.split("::")[-1] for made in store(project).all()] == ["old"]


@pytest.mark.thorough
def test_what_was_granted_settles_before_what_asks_for_it(project: Project) -> None:
    assert project.env[PROPAGATION_VARIABLE] == "0"
    project.program(SETTLES)
    project.run("preview", "-s", "dev")
    project.env[PROPAGATION_VARIABLE] = "2"
    said = "waiting 2 s until one holds"
    assert said not in project.run("preview", "-s", "dev")
    began = time.monotonic()
    assert said in up(project)
    assert time.monotonic() - began > 2
    made = state(project)
    assert _seconds(made["two"]) - _seconds(made["one"]) >= 1
    assert said not in up(project)
    project.config(shown="other")
    assert said in up(project)
    project.run("destroy", "--yes", "--skip-preview", "-s", "dev")


def _seconds(resource: dict[str, Any]) -> float:
    return datetime.fromisoformat(resource["created"].replace("Z", "+00:00")).timestamp()
