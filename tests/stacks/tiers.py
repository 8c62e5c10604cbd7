"""Tiers that serve a model of this machine: what is published, and what machines get."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

from falaj.engine.files import stack_home
from tests.stacks.clouds import made, nothing_changed, run
from tests.stacks.conftest import Project
from tests.stacks.models.published import Publisher

MODEL = "digits"


def serve(publisher: Publisher, model: str = MODEL, home: Path | None = None) -> None:
    """Let the stack `local` serve a model, as its server was told."""
    publisher.publish(f"run of {model}", model=model)
    site = home / "stacks" / "local" if home else stack_home("falaj", "local")
    folder = site / "service" / model
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "model": model, "alias": "production", "registry": str(publisher.store.root),
        "keyring": str(publisher.keyring.path),
    }  # fmt: skip
    (folder / "service.json").write_text(json.dumps(told))


def come_up_in_phases(project: Project, publisher: Publisher) -> None:
    """From nothing to a served model: stores, the model's package, machines."""
    serve(publisher, home=project.home)
    printed = run(project, "up")
    stores, package, machines = (
        printed.index(each)
        for each in ("phase 1 of 3", "was sent there, and taken from there", "pulumi up of stack")
    )
    assert stores < package < machines
    cloud = project.stack.partition("-")[0]
    assert f"the sandbox's stand-in for {cloud}/" in printed
    assert len(made(project)) > 30
    served = served_in(project)
    assert served["version"] == 1
    assert served["package_digest"] in printed

    printed = run(project, "up")
    assert "phase 1 of 3" not in printed
    assert nothing_changed(printed)


def served_in(project: Project) -> dict[str, Any]:
    """What the made-up machines or containers are told to serve."""
    for each in made(project):
        if each.token.endswith("LaunchTemplate"):
            text = gzip.decompress(base64.b64decode(each.inputs["userData"])).decode()
            files = json.loads(text.partition("\n")[2])["write_files"]
            found = {one["path"]: one["content"] for one in files}
            return json.loads(found["/opt/falaj/serving.json"])
        if each.token.endswith("ContainerApp"):
            (container,) = each.inputs["template"]["containers"]
            (setting,) = container["env"]
            return json.loads(setting["value"])
    raise AssertionError("there are no machines")
