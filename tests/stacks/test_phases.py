"""A tier comes up in phases: what it stands on, the model's package, its machines.

That all of them end well is seen with an engine: test_aws_stacks.py, test_azure_stacks.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pulumi
import pytest
import yaml

from falaj.components import catalogue
from falaj.engine.errors import EngineError
from falaj.engine.files import stack_home
from falaj.sandbox.inprocess import SandboxMocks
from falaj.stacks.cloud_program import declare_in_cloud
from falaj.stacks.command import phases, workspace
from falaj.stacks.command.__main__ import main
from falaj.stacks.command.call import Call
from falaj.stacks.command.lifecycle import Updating, before_machines
from falaj.stacks.command.project import Project as ProjectFolder
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane
from falaj.stacks.models.copying import LEFT
from falaj.stacks.sandbox_guard import STORES, check_sandbox_guard
from falaj.stacks.settings import SmbSettings, validate
from falaj.stacks.settings.problems import SettingsError
from tests.loops import own_loop
from tests.stacks.images.registries import Registry, running
from tests.stacks.in_mocks import ROOT, declare, shipped
from tests.stacks.models.published import Publisher
from tests.stacks.tiers import MODEL, serve

DIGEST = "sha256:" + "1" * 64


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the two tiers and a home of its own."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "data"))
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    for name in ("aws-smb", "azure-smb", "azure-foundation"):
        shutil.copy(ROOT / "stacks" / f"Pulumi.{name}.yaml", tmp_path / "stacks")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def publisher(folder: Path) -> Publisher:
    return Publisher(folder / "site")


@pytest.fixture
def home(folder: Path) -> Generator[Registry]:
    with running(folder / "registry") as registry:
        yield registry


@dataclass
class Engine:
    """Stands in for a real cloud's engine: what it is asked to bring up, and what is there."""

    registry: str
    sandbox: bool = False
    there: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])
    state: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def outputs(self) -> Mapping[str, Any]:
        return self.there

    def resources(self) -> list[dict[str, Any]]:
        return self.state

    def update(self, settings: object, title: str, phase: str = "") -> int:
        del settings, title
        self.asked.append(phase)
        urls = {f"models/{MODEL}": f"{self.registry}/models/{MODEL}", "inference": "i"}
        self.there["repositoryUrls"] = urls
        return 0


@pytest.fixture
def begin(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Engine, int | None]]:
    """Runs the phases before the machines of a tier outside of the sandbox."""

    def start(
        registry: str = "registry.example.ae", source: str | None = None, *types: str
    ) -> tuple[Engine, int | None]:
        engine = Engine(registry, state=[{"type": each} for each in types])
        monkeypatch.setattr(Updating, "update", lambda _self, *given: engine.update(*given))
        stack = StackFile("azure-smb", ProjectFolder.find(folder))
        updating = Updating(Call(stack, False), cast(Pulumi, engine), False)
        settings = stack.settings()
        assert isinstance(settings, SmbSettings)
        return engine, before_machines(updating, settings, source)

    return start


def tell(folder: Path, **values: Any) -> Path:
    """Let the tier's file say something of its inference."""
    file = folder / "stacks" / "Pulumi.azure-smb.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"]["falaj:inference"] |= values
    file.write_text(yaml.safe_dump(document))
    return file


VAULT = "/subscriptions/1/resourceGroups/a/providers/Microsoft.KeyVault/vaults/a/secrets"
BESIDE = {
    "imageDigest": DIGEST, "certificateId": f"{VAULT}/tls", "keyringSecretId": f"{VAULT}/ring",
}  # fmt: skip


# What is refused


@pytest.mark.parametrize("stack", ["aws-smb", "azure-smb"])
def test_machines_without_a_package_are_refused_for_real(stack: str) -> None:
    settings = validate(shipped(stack), ROOT, stack=stack)
    assert isinstance(settings, SmbSettings)
    with pytest.raises(SettingsError) as caught:
        check_sandbox_guard(settings, sandboxed=False)
    assert "falaj:inference.version: missing" in str(caught.value)
    assert f"--for {stack} --pin" in str(caught.value)
    if stack == "azure-smb":
        check_sandbox_guard(settings, sandboxed=False, stores=True)


def test_a_source_for_another_kind_of_stack(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["up", "--sandbox", "--stack", "azure-foundation", "--model-from", "local"]
    assert main(arguments) == 2
    assert "--model-from: given 'local'" in capsys.readouterr().err


def test_a_source_that_serves_nothing_or_something_else(
    begin: Callable[..., tuple[Engine, int | None]], publisher: Publisher, folder: Path
) -> None:
    with pytest.raises(StackError, match="stack other serves nothing"):
        begin(source="other")
    serve(publisher, "letters")
    shutil.copytree(stack_home("falaj", "local"), stack_home("falaj", "other"))
    with pytest.raises(StackError, match="--model-from: stack other serves 'letters'"):
        begin(source="other")


def test_what_runs_is_never_taken_down_for_a_phase(
    begin: Callable[..., tuple[Engine, int | None]],
) -> None:
    with pytest.raises(SettingsError, match=r"falaj:inference\.imageDigest: missing"):
        begin("registry.example.ae", None, "falaj-azure:index:CpuInferenceTier")


def test_a_registry_in_a_foundation_of_another_stack_is_there_already(
    begin: Callable[..., tuple[Engine, int | None]], folder: Path
) -> None:
    file = folder / "stacks" / "Pulumi.azure-smb.yaml"
    named = "config:\n  falaj:foundation: azure-foundation\n"
    file.write_text(file.read_text().replace("config:\n", named))
    with pytest.raises(SettingsError, match=r"falaj:inference\.version: missing"):
        begin()


def test_a_registry_abroad_gets_nothing(
    begin: Callable[..., tuple[Engine, int | None]], publisher: Publisher, folder: Path
) -> None:
    serve(publisher)
    with pytest.raises(StackError, match="images are kept in the country"):
        begin("registry.eu-west-1.example.com")


# What is done


def test_without_a_model_it_is_said_what_is_left(
    begin: Callable[..., tuple[Engine, int | None]],
    publisher: Publisher,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve(publisher, "letters")  # another model than the tier's
    engine, status = begin()
    assert (engine.asked, status) == ([STORES], LEFT)
    said = capsys.readouterr().out
    assert "falaj publish registry.example.ae --for azure-smb --pin" in said
    for key in ("imageDigest", "keyringSecretId", "certificateId"):
        assert f"falaj:inference.{key}" in said


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({}, "import a certificate of inference.souq.internal"),
        ({"hostName": "ml.souq.example"}, "import a certificate of ml.souq.example"),
        ({"privateAuthority": True}, ""),
        ({"certificateId": "arn:aws:acm:me-central-1:111122223333:certificate/1"}, ""),
    ],
)
def test_on_aws_a_certificate_is_asked_for_unless_an_authority_is_wanted(
    folder: Path, more: dict[str, Any], left: str
) -> None:
    stack = StackFile("aws-smb", ProjectFolder.find(folder))
    given = yaml.safe_load(stack.path.read_text())["config"]
    given["falaj:inference"] |= {"imageDigest": DIGEST, **more}
    settings = validate(given, ROOT, stack="aws-smb")
    assert isinstance(settings, SmbSettings)
    tier = phases.Tier(stack, settings, catalogue.place("aws", "me-central-1"))
    said = tier.next_steps(
        {"repositoryUrls": {f"models/{MODEL}": f"r/models/{MODEL}", "inference": "i"}}
    )
    assert ("falaj:inference.certificateId" in said) is bool(left)
    assert left in said
    if left:
        assert "--region me-central-1" in said


def test_the_model_of_this_machine_is_published_and_pinned(
    begin: Callable[..., tuple[Engine, int | None]],
    publisher: Publisher,
    home: Registry,
    folder: Path,
) -> None:
    serve(publisher)
    file = tell(folder, **BESIDE)
    engine, status = begin(home.address)
    assert (engine.asked, status) == ([STORES], None)
    said = yaml.safe_load(file.read_text())["config"]["falaj:inference"]
    assert said["version"] == 1
    assert said["packageDigest"] == home.digest(f"{home.address}/models/{MODEL}:v1")
    assert said["keysDigest"] == home.digest(f"{home.address}/models/{MODEL}:v1.keys.1")
    assert "alias.production.0000000001" in Crane().tags(f"{home.address}/models/{MODEL}")
    # Once it is published, no phase comes before the machines.
    engine, status = begin(home.address)
    assert (engine.asked, status) == ([], None)


@pytest.mark.parametrize("stack", ["aws-smb", "azure-smb"])
def test_the_first_phase_makes_the_registry_and_no_machines(stack: str) -> None:
    given = shipped(stack)
    if "falaj:acknowledgeDegraded" in given:
        given["falaj:acknowledgeDegraded"] |= {"for": "deployment"}
    settings = validate(given, ROOT, stack=stack)
    assert isinstance(settings, SmbSettings)
    with own_loop():
        mocks = SandboxMocks()
        pulumi.runtime.set_mocks(mocks, project="falaj", stack=stack, preview=False)

        @pulumi.runtime.test
        def program() -> None:
            declare_in_cloud(settings, sandboxed=False, stores=True)

        program()
    kinds = {each.type.rpartition(":")[2] for each in mocks.resources}
    assert kinds & {"Registry", "Repository"}
    assert not kinds & {"CpuInferenceTier", "ContainerApp", "LaunchTemplate"}


@pytest.mark.parametrize("stack", ["aws-smb", "azure-smb"])
def test_the_secret_that_a_person_fills_is_an_output(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(pulumi, "export", told.__setitem__)
    declare(shipped(stack), stack)
    assert {"endpoint", "keyringSecretId"} <= set(told)


def test_without_a_program_for_a_registry_digests_are_made_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(_tool: str) -> Path:
        raise EngineError("crane is not on the PATH")

    monkeypatch.setattr(phases, "ensure", none)
    assert not phases.has_registry()
    assert "digests are made up: crane is not on the PATH" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["section", "keys"])
def test_the_sandboxs_copy_names_what_was_published(folder: Path, form: str) -> None:
    file = folder / "stacks" / "Pulumi.azure-smb.yaml"
    if form == "keys":
        document = yaml.safe_load(file.read_text())
        section = document["config"].pop("falaj:inference")
        document["config"] |= {f"falaj:inference.{key}": each for key, each in section.items()}
        file.write_text(yaml.safe_dump(document))
    stack = StackFile("azure-smb", ProjectFolder.find(folder))
    copy = workspace.make_workspace(stack) / "stacks" / file.name

    def copied() -> Any:
        return validate(yaml.safe_load(copy.read_text())["config"], ROOT, stack="s").inference  # type: ignore[union-attr]

    before = file.read_text()
    assert copied().version is None
    workspace.keep_published(stack, workspace.Published("letters", 7, DIGEST, DIGEST))
    assert copied().version is None  # another model
    workspace.keep_published(stack, workspace.Published(MODEL, 7, DIGEST, DIGEST))
    assert (copied().version, copied().package_digest) == (7, DIGEST)
    assert file.read_text() == before
    # What the file itself says comes first.
    if form == "section":
        tell(folder, version=3, packageDigest="sha256:" + "3" * 64, keysDigest=DIGEST)
        workspace.renew(stack)
        assert copied().version == 3
