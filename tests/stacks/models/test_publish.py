"""``falaj publish``: what a stack of one machine serves stands in a registry, and in a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.engine.files import stack_home
from falaj.stacks.command.__main__ import main
from falaj.stacks.images.crane import Crane
from falaj.workloads.registry.__main__ import main as workload
from falaj.workloads.registry.store import Store
from tests.stacks.images.registries import Registry
from tests.stacks.models.published import MODEL, Publisher, run

STACKS = Path(__file__).resolve().parents[3] / "stacks"
SERVES = "onprem-workloads"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a stack of this machine and one of a cluster; the latter's file."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    own = {"config": {"falaj:platform": "local"}}
    (tmp_path / "stacks/Pulumi.local.yaml").write_text(yaml.safe_dump(own))
    file = tmp_path / "stacks" / f"Pulumi.{SERVES}.yaml"
    shutil.copy(STACKS / file.name, file)
    monkeypatch.chdir(tmp_path)
    return file


@pytest.fixture
def serving(publisher: Publisher, project: Path) -> Publisher:
    """The stack serves a version that was published, as its server was told."""
    publisher.publish("run 1")
    folder = stack_home("falaj", "local") / "service" / MODEL
    folder.mkdir(parents=True)
    told = {
        "model": MODEL, "alias": "production", "registry": str(publisher.store.root),
        "keyring": str(publisher.keyring.path),
    }  # fmt: skip
    (folder / "service.json").write_text(json.dumps(told))
    return publisher


def publish(registry: str, *more: str) -> int:
    return main(["publish", registry, "--stack", "local", *more])


def tags(home: Registry) -> list[str]:
    return sorted(Crane().tags(f"{home.address}/models/{MODEL}"))


def versions(file: Path) -> list[dict[str, Any]]:
    services = yaml.safe_load(file.read_text())["config"]["falaj:inferenceServices"]
    return services["credit"]["versions"]


def test_one_command_sends_promotes_and_pins(
    serving: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(home.address, "--for", SERVES, "--pin") == 0
    said = capsys.readouterr().out
    digest = home.digest(f"{home.address}/models/{MODEL}:v1")
    keys = home.digest(f"{home.address}/models/{MODEL}:v1.keys.1")
    assert versions(project) == [
        {"version": 1, "weight": 100, "packageDigest": digest, "keysDigest": keys}
    ]
    assert f"packageDigest: {digest}" in said
    assert f"preview --stack {SERVES}" in said
    # What was sent opens with the keys beside it, and the alias stands for it.
    capsys.readouterr()
    key = ("--verify-key", serving.verify_key)
    assert run("show", home.address, MODEL, "--alias", "production", *key) == 0
    assert run("verify", home.address, MODEL, *key, "--keyring", str(serving.keyring.path)) == 0


def test_again_it_changes_nothing(
    serving: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(home.address, "--for", SERVES, "--pin") == 0
    before = (project.read_text(), tags(home))
    capsys.readouterr()
    assert publish(home.address, "--for", SERVES, "--pin", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (project.read_text(), tags(home)) == before
    assert (found["version"], found["sent"], found["alias"]["number"]) == (1, [], 1)
    assert found["service"] == "credit"


def test_the_next_version_follows_it(serving: Publisher, home: Registry, project: Path) -> None:
    assert publish(home.address, "--for", SERVES, "--pin") == 0
    serving.publish("run 2")
    assert publish(home.address, "--for", SERVES, "--pin") == 0
    assert [each["version"] for each in versions(project)] == [2]
    # A rollback of the machine is one of the registry, by a record of its own.
    serving.store.promote(MODEL, 1)
    assert publish(home.address, "--for", SERVES, "--pin") == 0
    assert [each["version"] for each in versions(project)] == [1]
    assert "alias.production.0000000003" in tags(home)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["registry.eu-west-1.example.com", "--for", SERVES], "don't allow"),
        (["registry.abudhabi-dc1.example.ae"], "don't allow"),
        (["HOME", "--pin"], "--for STACK is needed"),
        (["HOME", "--service", "credit", "--for", SERVES], "--service: given without --pin"),
        (["HOME", "--service", "fraud", "--pin", "--for", SERVES], "--service: given 'fraud'"),
        (["HOME", "--pin", "--for", "onprem-none"], "onprem-none"),
    ],
)
@pytest.mark.usefixtures("serving")
def test_is_refused(
    home: Registry,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    before = project.read_text()
    assert publish(*[home.address if each == "HOME" else each for each in arguments]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "Traceback" not in said
    assert project.read_text() == before


@pytest.fixture
def tier(project: Path) -> Path:
    """The file of a stack that serves the model on machines of a cloud."""
    file = project.with_name("Pulumi.azure-smb.yaml")
    file.write_text((STACKS / file.name).read_text().replace("model: digits", f"model: {MODEL}"))
    return file


def served(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text())["config"]["falaj:inference"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--service", "credit"], "falaj:inference is the one service of this stack"),
        ([], "falaj:inference.model: given 'digits', and the package is of 'credit'"),
    ],
)
@pytest.mark.usefixtures("serving")
def test_a_tier_that_serves_something_else_gets_nothing(
    home: Registry,
    tier: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    if not arguments:
        tier.write_text(tier.read_text().replace(f"model: {MODEL}", "model: digits"))
    assert publish(home.address, "--for", "azure-smb", "--pin", *arguments) == 2
    assert reason in capsys.readouterr().err
    assert tags(home) == []


def test_a_tier_serves_all_of_one_version(
    serving: Publisher, home: Registry, tier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(home.address) == 0
    before = tier.read_text()
    key = ("--verify-key", serving.verify_key, "--stack", "azure-smb")
    assert run("pin", home.address, MODEL, *key, "--weight", "10") == 2
    assert "serves one version, which takes 100" in capsys.readouterr().err
    assert tier.read_text() == before
    assert run("pin", home.address, MODEL, *key, "--dry-run") == 0
    assert "inference.version would be 1" in capsys.readouterr().out
    assert tier.read_text() == before


@pytest.mark.usefixtures("serving")
def test_a_tier_is_pinned_and_again_nothing_changes(home: Registry, tier: Path) -> None:
    for _run in range(2):
        assert publish(home.address, "--for", "azure-smb", "--pin") == 0
        found = served(tier)
        assert found["version"] == 1
        assert found["packageDigest"] == home.digest(f"{home.address}/models/{MODEL}:v1")
        assert found["keysDigest"] == home.digest(f"{home.address}/models/{MODEL}:v1.keys.1")
        assert "# For a real deployment" in tier.read_text()


def test_a_machine_takes_what_was_published(
    serving: Publisher, home: Registry, tier: Path, tmp_path: Path
) -> None:
    assert publish(home.address, "--for", "azure-smb", "--pin") == 0
    found = served(tier)
    store = tmp_path / "machine"
    taken = workload([
        "import", "--registry", str(store), "--keyring", str(serving.keyring.path),
        "--model", MODEL, "--version", str(found["version"]),
        "--repository", f"{home.address}/models/{MODEL}",
        "--package-digest", found["packageDigest"], "--keys-digest", found["keysDigest"],
    ])  # fmt: skip
    assert taken == 0
    opened = Store(store).load(MODEL, "production", serving.keyring, serving.keyring.verify_key())
    assert opened.digest == serving.package(1).digest


def test_nothing_is_sent_where_the_file_has_no_place_for_it(
    serving: Publisher, home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text(project.read_text().replace("model: credit", "model: fraud"))
    assert publish(home.address, "--for", SERVES, "--pin") == 2
    assert "no service has model 'credit'" in capsys.readouterr().err
    assert tags(home) == []


def test_who_serves_nothing_publishes_nothing(
    home: Registry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(home.address) == 2
    assert "serves nothing" in capsys.readouterr().err
    assert main(["publish", home.address, "--stack", SERVES]) == 2
    assert f"stack {SERVES}" in capsys.readouterr().err


def test_a_key_ring_that_is_gone_is_named(
    serving: Publisher, home: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(serving.keyring.path)
    assert publish(home.address) != 0
    said = capsys.readouterr().err
    assert str(serving.keyring.path) in said
    assert "Traceback" not in said
    assert tags(home) == []
