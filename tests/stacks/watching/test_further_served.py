"""The watch before a real server of several models: drift of one, and a worse version of another's
registry that goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.watching.machine import Machine
from falaj.stacks.watching.several import Watches
from falaj.workloads.watching.memory import Memory
from tests.stacks.watching.world import Kept
from tests.workloads.inference import models, watched
from tests.workloads.inference.serving import Server, Site
from tests.workloads.inference.test_further_models import Other
from tests.workloads.inference.watched import Caller

pytestmark = [pytest.mark.timeout(300), pytest.mark.thorough]
ROWS = 250
LABELLED = 400
"""Answers whose label comes back, of each version."""


@pytest.fixture
def other(tmp_path: Path) -> Other:
    """Another stack's registry, with two models of digits."""
    other = Other(tmp_path / "other")
    content, fields = watched.digits_model()
    for name in ("digits", "more.digits"):
        made = other.store.publish(name, {"model.onnx": content}, fields, other.keyring)
        other.store.promote(name, made.version)
    return other


@pytest.fixture
def server(tmp_path: Path, other: Other) -> Iterator[Server]:
    site = Site(tmp_path / "site")
    site.write(
        alias="production", drift={"window_rows": ROWS}, limits={"drain_seconds": 1},
        models={"digits": other.further(), "more.digits": other.further()},
    )  # fmt: skip
    site.publish(models.mlp())
    server = Server(site)
    try:
        yield server.serving(1)
        assert server.stop() == 0
    finally:
        server.kill()


def told(caller: Caller, turned: bool, begin: int) -> None:
    """Ask with ids, and give the labels back; ``turned``: a tenth of the answers was right."""
    _, _, images, truth = watched.digits()
    for number in range(begin, begin + LABELLED):
        row = number % len(images)
        caller.predict(images[row : row + 1], f"row {number}")
    labels = [
        (f"row {number}", str((truth[number % len(images)] + turned) % 10))
        for number in range(begin, begin + LABELLED)
    ]
    status, found = caller.label(*labels)
    assert (status, found["matched"]) == (200, LABELLED), found


def test_each_model_is_told_of_and_put_back_by_itself(
    tmp_path: Path, other: Other, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    site = home / "projects" / "shop" / "main"
    (site / "service" / "mlp").mkdir(parents=True)
    (site / "watch").mkdir()
    root.mkdir()
    monkeypatch.setenv("FALAJ_HOME", str(home))
    (root / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    further = {
        name: {"registry": str(other.store.root), "keyring": str(other.keyring.path)}
        for name in ("digits", "more.digits")
    }
    config: dict[str, Any] = {
        "falaj:platform": "local", "falaj:model": "mlp",
        "falaj:watch": {"steps": ["tell", "rollBack"]},
        "falaj:service.models": further,
    }  # fmt: skip
    (root / "Pulumi.main.yaml").write_text(yaml.safe_dump({"config": config}))
    document = server.site.document | {"port": server.port}
    (site / "service" / "mlp" / "service.json").write_text(json.dumps(document))
    said: list[str] = []
    world = Machine(StackFile("main", Project.find(root)), site / "watch")
    watches = Watches(world, Kept(), lambda event, text, _: said.append(f"{event}: {text}"), "me")
    watches.begin(1)

    digits, more = Caller(server, "digits"), Caller(server, "more.digits")
    told(digits, turned=False, begin=0)
    # The first model's package says nothing to judge drift by.
    assert watches.look() == "unknown"
    assert not [each for each in said if "rollBack" in each]
    content, fields = watched.digits_model()
    again = {**fields, "lineage": {"run": "another"}}
    made = other.store.publish("digits", {"model.onnx": content}, again, other.keyring)
    assert made.version == 2
    other.store.promote("digits", 2)
    server.wait(
        lambda state: (
            len(state["workers"]) == 1 and state["models"]["digits"]["version"] == 2
        ),
        "version 2 of digits",
    )  # fmt: skip
    digits, more = Caller(server, "digits"), Caller(server, "more.digits")
    # Version 2 is the same network, asked by those to whom other answers are right.
    told(digits, turned=True, begin=LABELLED)
    _, _, images, _ = watched.digits()
    more.until(lambda each: each["state"] == "drifted", np.rot90(images, axes=(2, 3))[:ROWS])
    assert watches.look() == "drifted"
    (back,) = [each for each in said if each.startswith("rolledBack")]
    assert back.startswith("rolledBack: digits: version 1 serves again; version 2 is worse")
    (drift,) = [each for each in said if each.startswith("drift: ") and "more.digits" in each]
    assert "who publishes it makes it" in drift
    assert other.store.resolve("digits") == 1
    assert other.store.resolve("more.digits") == 1
    assert server.state()["models"]["digits"]["version"] == 1
    folder = site / "watch" / "models"
    assert Memory.read(folder / "digits" / "memory.json").withdrawn == [2]
    assert Memory.read(folder / "more.digits" / "memory.json").acted is None
    assert watches.look() == "drifted"
    assert other.store.resolve("digits") == 1
