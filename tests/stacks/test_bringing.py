"""``falaj cluster bring --stack``: what was brought stands in the stack's file that uses it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from falaj.engine.controlplane.machine_network import MACHINES
from falaj.stacks.command.bringing import CLAIMS, Brought, verify_key_of
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import WorkloadsSettings
from falaj.stacks.validation import ask_components
from falaj.workloads.registry.keyring import KeyRing

ROOT = Path(__file__).resolve().parents[2]
STACK = "real-workloads"
BROUGHT = Brought("digits-0123456789abcdef", "acme/training-keys", "acme/publishing-keys")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackFile:
    """The stack that ships for real machines, made from its template."""
    template = tmp_path / "stacks" / "templates" / f"{STACK}.yaml"
    template.parent.mkdir(parents=True)
    shutil.copy(ROOT / "stacks" / "templates" / template.name, template)
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    monkeypatch.chdir(tmp_path)
    found = StackFile(STACK, Project.find())
    found.ensure()
    return found


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """An authority (any public PEM is as good), and the key that verifies."""
    ring = KeyRing.create(tmp_path_factory.mktemp("keys") / "ring")
    certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    return certificate, verify_key_of(ring.path)


def test_the_stack_of_real_machines_lacks_only_what_is_brought(
    file: StackFile, keys: tuple[str, str]
) -> None:
    before = file.path.read_text()
    told = BROUGHT.into(file, *keys)
    assert f"dataset: {BROUGHT.dataset}" in told
    settings = file.settings()
    assert isinstance(settings, WorkloadsSettings)
    # The lock file of its images is written by `falaj cluster load`.
    ask_components(settings.model_copy(update={"images": None}), file.project.root)
    assert {name: str(each) for name, each in settings.awaited.items()} == {
        "digits": "training job digits"
    }
    config = yaml.safe_load(file.path.read_text())["config"]
    job, service = (config[f"falaj:{each}"]["digits"] for each in (
        "trainingJobs", "inferenceServices"
    ))  # fmt: skip
    assert (job["data"], job["checkpoints"]) == CLAIMS
    assert job["publish"]["registryAuthority"] == keys[0]
    assert job["publish"]["registryCidrs"] == [f"{MACHINES[1]}/32"]
    assert service["canary"] == {
        "model": "digits@candidate", "share": 10, "verifyKey": keys[1]
    }  # fmt: skip
    # Comments and all else stay; and once more changes nothing.
    assert before.partition("trainingJobs")[0] in file.path.read_text()
    again = file.path.read_text()
    assert "says so already" in BROUGHT.into(file, *keys)
    assert file.path.read_text() == again


def test_a_share_that_the_stack_says_stays(file: StackFile, keys: tuple[str, str]) -> None:
    BROUGHT.into(file, *keys)
    document = yaml.safe_load(file.path.read_text())
    document["config"]["falaj:inferenceServices"]["digits"]["canary"]["share"] = 25
    file.path.write_text(yaml.safe_dump(document))
    BROUGHT.into(file, *keys)
    assert "share: 25" in file.path.read_text()


def test_another_tenants_stack_is_refused(file: StackFile, keys: tuple[str, str]) -> None:
    others = Brought("rows", "bank/training-keys", "bank/publishing-keys")
    before = file.path.read_text()
    with pytest.raises(StackError, match="whose falaj:tenant is bank"):
        others.into(file, *keys)
    assert file.path.read_text() == before


def test_no_other_stack_takes_what_is_brought(file: StackFile, keys: tuple[str, str]) -> None:
    shutil.copy(ROOT / "stacks/templates/local.yaml", file.path.with_name("Pulumi.local.yaml"))
    with pytest.raises(StackError, match="allowed: a stack of the blueprint workloads"):
        BROUGHT.into(StackFile("local", file.project), *keys)
