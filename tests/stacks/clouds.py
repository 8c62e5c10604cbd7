"""Stacks of clouds with a real engine in the sandbox: their files, and what the cloud holds."""

from __future__ import annotations

import re
from typing import Any

import yaml

from falaj.components.catalogue.tag_names import tag_name
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.store import Store
from tests.stacks.conftest import Project


def use(project: Project, stack: str) -> None:
    project.stack = stack


def config(project: Project) -> dict[str, Any]:
    return yaml.safe_load(project.file.read_text())["config"]


def change(project: Project, **values: Any) -> None:
    document = yaml.safe_load(project.file.read_text())
    document["config"] |= {f"falaj:{key}": value for key, value in values.items()}
    project.file.write_text(yaml.safe_dump(document))


def run(project: Project, *arguments: str) -> str:
    done = project.falaj(*arguments, "--sandbox")
    assert done.returncode == 0, done.stdout
    assert "SANDBOX" in done.stdout
    return done.stdout


def sandbox(project: Project, *arguments: str) -> str:
    done = project.sandbox(*arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


def made(project: Project) -> list[Made]:
    store = Store(project.home / "sandbox" / "cloud.sqlite")
    try:
        prefix = f"urn:pulumi:{project.stack}::"
        return [made for made in store.all() if made.urn.startswith(prefix)]
    finally:
        store.close()


def counts(printed: str) -> dict[str, int]:
    """What an operation came to, as the command said it last: ``{"updated": 1, …}``."""
    found = re.findall(r"(?m)^(?: *resources:| *drift:|Changes  ) +(.*)$", printed)
    assert found, printed
    parts = (part.partition(" ") for part in found[-1].split(", "))
    return {} if found[-1] == "nothing" else {word: int(number) for number, _, word in parts}


def nothing_changed(printed: str) -> bool:
    return set(counts(printed)) == {"unchanged"}


#: What an update changes, by blueprint: a pool's size where there is one.
def grown(values: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {"costCenter": "another"}
    if values["falaj:blueprint"] == "cluster":
        pools = values["falaj:gpuPools"]
        pools["h200"]["maxNodes"] += 1
        changes["gpuPools"] = pools
    elif values["falaj:blueprint"] == "smb":
        changes["inference"] = {**values["falaj:inference"], "maxInstances": 4}
    return changes


def live_from_preview_to_destroy(project: Project, stack: str) -> None:
    """Preview, up, nothing to do, an update, drift that is seen and mended, and destroy."""
    use(project, stack)
    before = project.file.read_text()
    printed = run(project, "preview")
    assert "to create" in printed
    assert not made(project)

    count = come_up(project)
    # An `up` that finds nothing is that of the foundations and tiers.
    assert nothing_changed(run(project, "preview"))
    grow(project, count)

    tag = tag_name("aws" if project.stack.startswith("aws") else "azure", "cost-center")
    tagged = next(m for m in made(project) if tag in (m.inputs.get("tags") or {}))
    sandbox(project, "set", tagged.urn, f'tags["{tag}"]', "somebody else")
    assert counts(run(project, "refresh"))["updated"] == 1
    assert counts(run(project, "up"))["updated"] == 1
    mended = next(m for m in made(project) if m.urn == tagged.urn)
    assert mended.inputs["tags"][tag] == "another"
    go(project, before)


def come_up(project: Project) -> int:
    """How many resources the stack has."""
    printed = run(project, "up")
    count = len(made(project))
    assert count > 30
    cloud = "aws" if project.stack.startswith("aws") else "azure"
    assert f"the sandbox's stand-in for {cloud}/" in printed
    return count


def grow(project: Project, count: int) -> None:
    """Change what a person would; nothing is made or goes for it."""
    change(project, **grown(config(project)))
    printed = run(project, "up")
    assert set(counts(printed)) == {"updated", "unchanged"}, printed
    assert len(made(project)) == count


def go(project: Project, before: str) -> None:
    """Destroy the stack; its file is as it was before."""
    printed = run(project, "down")
    assert f"stack {project.stack} is down" in printed
    assert not made(project)
    assert "encryptionsalt" not in project.file.read_text()
    project.file.write_text(before)
