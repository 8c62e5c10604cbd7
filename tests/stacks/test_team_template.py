"""The template of a team: a training job and an inference service on a cluster that exists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.policies.configuration import settings_of
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from falaj.stacks.errors import SettingsError
from falaj.stacks.image_digests import digests
from falaj.stacks.settings import WorkloadsSettings, validate
from falaj.stacks.validation import validate_in_cluster
from tests.policies.shipped import stack_with
from tests.stacks.conftest import Project

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "stacks" / "templates" / "team-workloads"
TRAIN = "trainingJobs.train"
SERVE = "inferenceServices.serve"


def answered(answers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The configuration that `pulumi new` leaves, with the defaults where nothing is answered."""
    project = yaml.safe_load((TEMPLATE / "Pulumi.yaml").read_text(encoding="utf-8"))
    questions = project["template"]["config"]
    unknown = {f"falaj:{key}" for key in answers or {}} - set(questions)
    assert not unknown, f"the template doesn't ask for {unknown}"
    return {
        **{key: entry["value"] for key, entry in project["config"].items()},
        **{key: question["default"] for key, question in questions.items()},
        **{f"falaj:{key}": answer for key, answer in (answers or {}).items()},
    }


def checked(config: Mapping[str, Any]) -> WorkloadsSettings:
    """The settings, once the components have refused none of them."""
    settings = validate(config, ROOT, stack="dev")
    assert isinstance(settings, WorkloadsSettings)
    validate_in_cluster(settings, digests(settings, ROOT, sandboxed=True).by_name)
    return settings


def found(config: Mapping[str, Any]) -> dict[str, str]:
    """What the packs say of the stack: a reason by the rule's id."""
    judged = Judge(all_rules(), settings_of(config["falaj:policies"])).evaluate_stack(
        stack_with(config)
    )
    return {each.rule.id: one.reason for each in judged for one in each.findings}


def test_the_defaults_meet_every_rule_without_a_waiver() -> None:
    config = answered()
    settings = checked(config)
    assert settings.sandbox
    assert "waivers" not in config["falaj:policies"]
    assert found(config) == {}


@pytest.mark.parametrize("flavor", ["h200", "h200-mig-1g.18gb", "l4-time-slicing-4", "cpu-x86-64"])
@pytest.mark.parametrize("data_class", ["public", "internal", "confidential"])
def test_other_answers_that_are_allowed_meet_every_rule(flavor: str, data_class: str) -> None:
    config = answered(
        {
            f"{TRAIN}.flavor": flavor,
            "dataClass": data_class,
            "tenant": "lab",
            f"{SERVE}.keySecret": "lab/keys",
        }
    )
    checked(config)
    assert found(config) == {}


@pytest.mark.parametrize(
    ("key", "answer", "said"),
    [
        ("tenant", "Acme Bank", "falaj:tenant: given 'Acme Bank'; allowed: 2 to 20 lower-case"),
        ("owner", "me; you", "falaj:owner: given 'me; you'; allowed: 1 to 256 letters"),
        ("costCenter", "", "falaj:costCenter: given ''; allowed: 1 to 256 letters"),
        ("dataClass", "secret", "falaj:dataClass: given 'secret'; allowed: public, internal"),
        ("registry", "Docker Hub", "falaj:registry: given 'Docker Hub'; allowed: a host"),
        ("region", "eu-central-1", "region: given 'eu-central-1'; allowed: sites in the country"),
        ("region", "westeurope", "region: given 'westeurope'; allowed: sites in the country"),
        ("region", "DC 1", "region: given 'DC 1'; allowed: the site's name"),
        ("context", "", "falaj:context: given ''; allowed: text"),
        ("sandbox", "perhaps", "falaj:sandbox: given 'perhaps'; allowed: true or false"),
        (f"{TRAIN}.dataset", "../other", "dataset: given '../other'; allowed: a path below"),
        (f"{TRAIN}.flavor", "H200!", "flavor: given 'H200!'; allowed: the value of the nodes'"),
        (f"{SERVE}.model", "a model", "model: given 'a model'; allowed: 1 to 64 letters, digits"),
        (
            f"{SERVE}.keySecret",
            "/keys",
            "inferenceServices.serve.keySecret: given '/keys'; allowed: entries of the tenant",
        ),
        (f"{SERVE}.keySecret", "globex/keys", "allowed: entries of the tenant: acme/…"),
        ("tenant", "lab", "keySecret: given 'acme/model-keys'; allowed: entries of the tenant"),
        (f"{SERVE}.tokenIssuer", "my issuer", "tokenIssuer: given 'my issuer'; allowed: a text"),
    ],
)
def test_wrong_answers_are_refused_before_anything_is_declared(
    key: str, answer: str, said: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        checked(answered({key: answer}))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("key", "answer", "rule", "said"),
    [
        ("region", "dubai-dc2", "kubernetes-placement-abroad", "allowed are aws/me-central-1"),
        ("registry", "docker.io/acme", "kubernetes-image-registry", "comes from docker.io"),
        (
            f"{SERVE}.tokenIssuer",
            "https://login.example.com",
            "kubernetes-egress-host",
            "one of allowedHosts",
        ),
    ],
)
def test_what_the_projects_policies_dont_allow_is_found_by_the_packs(
    key: str, answer: str, rule: str, said: str
) -> None:
    config = answered({key: answer})
    checked(config)
    assert said in found(config)[rule]


def new_project(project: Project, name: str, *answers: str) -> Path:
    """A folder that `pulumi new` has filled from the template."""
    folder = project.root.parent / name
    folder.mkdir()
    source = project.root / "stacks" / "templates" / TEMPLATE.name
    new = ["pulumi", "new", str(source), "--yes", "--name", f"own-{name}", "--stack", "dev"]
    for answer in answers:
        new += ["--config", answer]
    done = project.run_in(folder, new)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_project_from_the_template_deploys_in_the_sandbox(project: Project) -> None:
    folder = new_project(project, "team")
    up = project.falaj_in(folder, "up", "--details", "--stack", "dev")
    assert up.returncode == 0, up.stdout
    assert "SANDBOX" in up.stdout
    for kind in ("JobSet", "Deployment", "HTTPRoute", "NetworkPolicy"):
        assert f":{kind} " in up.stdout, up.stdout
    down = project.falaj_in(folder, "down", "--stack", "dev")
    assert down.returncode == 0, down.stdout


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_wrong_answer_is_refused_by_the_program(project: Project) -> None:
    folder = new_project(project, "wrong-site", "falaj:region=eu-central-1")
    done = project.falaj_in(folder, "preview", "--stack", "dev")
    assert done.returncode != 0
    assert "region: given 'eu-central-1'; allowed: sites in the country" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_registry_that_nobody_allowed_stops_the_deployment(project: Project) -> None:
    folder = new_project(project, "wrong-registry", "falaj:registry=docker.io/acme")
    done = project.falaj_in(folder, "up", "--stack", "dev")
    assert done.returncode != 0
    assert "comes from docker.io" in done.stdout
    assert "allowedRegistries" in done.stdout
