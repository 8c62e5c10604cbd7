"""`falaj check` of programs that know nothing of Falaj: no stack's file, their own environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from falaj.policies.reports.result import CheckResult, read_result
from falaj.stacks.checking.assumed import assumed, missing_values
from falaj.stacks.command.project import Project as Folder
from falaj.stacks.command.workspace import program_environment
from falaj.stacks.errors import StackError
from tests.brought_sdk import environment
from tests.stacks.conftest import Project

PROGRAM = """
import pulumi
import pulumi_acme as acme
import pulumi_aws as aws

config = pulumi.Config()
thing = acme.Thing("thing", config.require_int("size"), label=acme.get_zone("a").name)
group = acme.Group("group", 2)
aws.ec2.Subnet("refused", vpc_id="vpc-0123456789abcdef0", cidr_block="10.0.0.0/99")
aws.sns.Topic("alerts")
net = aws.ec2.Vpc.get("net", "vpc-0a1b2c3d4e5f60718")
aws.ssm.Parameter("address", type="String", value=group.address)
pulumi.export("endpoint", thing.endpoint)
pulumi.export("range", net.cidr_block)
"""
PROJECT = """
name: shop
runtime: {name: python, options: {virtualenv: venv}}
config: {own: mine, count: {type: integer}, "aws:region": {type: string}}
template:
  config:
    own: {default: theirs}
    aws:region: {default: us-west-2}
    colour: {default: blue}
    count: {default: 2}
    password: {secret: true}
"""


def program(folder: Path, text: str = PROGRAM, project: str = PROJECT) -> Folder:
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(project)
    (folder / "__main__.py").write_text(text)
    return Folder.find(folder)


def config_of(project: Folder, folder: Path, *given: str) -> dict[str, str]:
    (stack,) = assumed(project, [], given, folder)
    return yaml.safe_load(stack.path.read_text())["config"]


def test_without_a_stack_file_the_countrys_regions_are_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = program(tmp_path / "shop")
    assert config_of(project, tmp_path) == {
        "aws:region": "me-central-1", "azure-native:location": "uaenorth",
        "shop:colour": "blue", "shop:count": 2,
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "no stack file: judged as stack dev" in said
    assert "aws:region=me-central-1" in said
    given = config_of(project, tmp_path, "aws:region=eu-west-1", "colour=red", "n=a=b")
    assert given["aws:region"] == "eu-west-1"
    assert (given["shop:colour"], given["shop:n"]) == ("red", "a=b")


def test_a_stacks_own_file_is_changed_by_what_is_given_alone(tmp_path: Path) -> None:
    project = program(tmp_path / "shop")
    file = tmp_path / "shop" / "Pulumi.prod.yaml"
    file.write_text("config:\n  aws:region: eu-west-1\n  shop:size: 3\n")
    assert assumed(project, [], [], tmp_path) == []
    assert config_of(project, tmp_path, "size=4") == {
        "aws:region": "eu-west-1", "shop:size": "4", "shop:own": "mine",
    }  # fmt: skip
    assert "size: 3" in file.read_text()
    with pytest.raises(StackError, match="there is no stack 'dev'"):
        assumed(project, ["dev"], ["size=4"], tmp_path)


def test_what_cannot_be_given_says_why(tmp_path: Path) -> None:
    project = program(tmp_path / "shop")
    with pytest.raises(StackError, match=r"given 'size'; allowed: KEY=VALUE"):
        assumed(project, [], ["size"], tmp_path)
    (tmp_path / "shop" / "Pulumi.dev.yaml").write_text("config:\n  falaj:platform: local\n")
    with pytest.raises(StackError, match="given for a project of Falaj's"):
        assumed(project, [], ["falaj:platform=aws"], tmp_path)


ASKS = """
import pulumi
from pulumi import Config

config = Config()
aws = Config("aws")
config.require("a")
config.require_secret("b")
config.get("optional")
aws.require("region")
pulumi.Config("net").require_int("range")
pulumi.Config().require_object("whole")
other_config = pulumi.Config("other")
other_config.require_bool(key)
requests.require("not ours")
"""


def test_all_values_that_a_program_asks_for_are_named_at_once(tmp_path: Path) -> None:
    project = program(tmp_path / "shop", ASKS)
    (stack,) = assumed(project, [], ["b=1"], tmp_path)
    assert missing_values(stack) == ["net:range", "shop:a", "shop:whole"]
    (tmp_path / "shop" / "broken.py").write_text("def (")
    assert missing_values(stack) == ["net:range", "shop:a", "shop:whole"]


@pytest.mark.parametrize(
    ("options", "made", "expected"),
    [
        (
            "{name: python, options: {toolchain: pip}}",
            ".venv/lib/python3.12/site-packages/pulumi",
            ".venv",
        ),
        ("python", "venv/lib/python3.11/site-packages/pulumi", "venv"),
        ("{name: python, options: {virtualenv: venv}}", "venv", "venv"),
        ("{name: python, options: {virtualenv: venv}}", "other", ""),
        ("{name: python, options: {toolchain: uv}}", ".venv", ".venv"),
        ("python", "venv", ""),
        ("nodejs", "venv", ""),
    ],
)
def test_a_program_runs_where_its_project_says(
    tmp_path: Path, options: str, made: str, expected: str
) -> None:
    project = program(tmp_path / "shop", project=f"name: shop\nruntime: {options}\n")
    (tmp_path / "shop" / made).mkdir(parents=True)
    (tmp_path / "shop" / made.partition("/")[0] / "bin").mkdir()
    (tmp_path / "shop" / "pyproject.toml").touch()
    found = program_environment(project)
    assert (found == tmp_path / "shop" / expected) == bool(expected)


def check(
    project: Project, folder: Path, *arguments: str, out: Path
) -> tuple[int, str, CheckResult]:
    project.stack = ""
    done = project.falaj("check", "--project", str(folder), "--json", str(out), *arguments)
    return done.returncode, " ".join(done.stdout.split()), read_result(out.read_text())


@pytest.mark.slow
@pytest.mark.engine
def test_all_is_said_at_once_of_a_program_that_never_heard_of_us(
    project: Project, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    program(folder)
    environment(folder / "venv")
    status, printed, result = check(project, folder, out=tmp_path / "a.json")
    assert status == 2, printed
    assert "the program asks for: --config shop:size=VALUE" in printed
    status, printed, result = check(project, folder, "--config", "size=3", out=tmp_path / "b.json")
    assert status == 1, printed
    (stack,) = result.stacks
    assert {each.name for each in stack.resources} >= {
        "thing", "group", "refused", "alerts", "address",
    }  # fmt: skip
    assert (stack.not_modelled, stack.other_providers) == (("acme",), ())
    assert "not modelled, judged by their inputs only: acme" in printed
    # One resource is refused, and all else is judged.
    assert stack.errors
    refused = {each.split(": ")[0] for each in stack.errors}
    assert refused == {
        "the sandbox refuses aws:ec2/subnet:Subnet refused",
        "the sandbox refuses aws:ec2/vpc:Vpc net",
    }
    assert "'vpc-0a1b2c3d4e5f60718' doesn't exist in the sandbox" in printed
    assert "not wholly checked: the sandbox refuses aws:ec2/subnet:Subnet refused" in printed
    fails = {each.urn.rpartition("::")[2] for each in stack.outcomes if each.fails}
    assert "alerts" in fails
    # Falaj's tags are advice to it.
    tags = [each for each in stack.outcomes if each.rule == "governance-required-tags"]
    assert tags
    assert {each.status for each in tags} == {"advisory"}
