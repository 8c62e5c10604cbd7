"""What a checked stack stands on: its sandbox gets that from a preview, else from an update."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falaj.sandbox.activation import PREDICTION_VARIABLE
from falaj.sandbox.clouds.model import Made
from falaj.sandbox.store import Store
from falaj.stacks.checking import ground
from falaj.stacks.command.operation import Outcome
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings
from falaj.wire import UNKNOWN_TEXTS

TOPIC = Made(
    "urn:pulumi:base::falaj::aws:sns/topic:Topic::one", "aws:sns/topic:Topic", "topic-1",
    {}, {}, "me-central-1", "base",
)  # fmt: skip


class Engine:
    """Stands in for an engine with a sandbox: what is imported into it."""

    def __init__(self, folder: Path) -> None:
        self.stack = SimpleNamespace(name="base", project=SimpleNamespace(name="falaj"))
        self.environment = {"FALAJ_SANDBOX_CLOUD": str(folder / "cloud.sqlite")}
        self.copy = folder / "copy.sqlite"
        self.imported: list[Any] = []

    @contextmanager
    def predicting(self) -> Generator[dict[str, str]]:
        yield {PREDICTION_VARIABLE: str(self.copy)}

    def capture(self, arguments: Sequence[str], given: str) -> str:
        assert arguments[:2] == ["stack", "import"]
        self.imported.append(json.loads(given))
        return ""

    def made(self) -> list[str]:
        store = Store(self.environment["FALAJ_SANDBOX_CLOUD"])
        try:
            return [each.id for each in store.all()]
        finally:
            store.close()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    found = Engine(tmp_path)
    store = Store(found.copy)
    try:
        store.add(TOPIC, 1)
    finally:
        store.close()
    return found


def previewed(
    monkeypatch: pytest.MonkeyPatch,
    outputs: dict[str, Any],
    *,
    status: int = 0,
    interrupted: bool = False,
) -> list[str]:
    """Let a preview end so; returns the stacks that an update makes instead."""
    outcome = Outcome(status, {}, {}, 0, interrupted, 1.0, "", outputs=outputs)
    updated: list[str] = []

    def run(*_given: object) -> Outcome:
        return outcome

    def update(pulumi: Pulumi, _settings: CloudSettings) -> None:
        updated.append(pulumi.stack.name)

    monkeypatch.setattr(ground.operation, "run", run)
    monkeypatch.setattr(ground, "update_in_sandbox", update)
    return updated


def make_predicted(engine: Engine) -> None:
    ground.make_predicted(cast(Pulumi, engine), cast(CloudSettings, None))


def test_the_cloud_has_what_was_predicted_and_the_state_the_outputs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {"keyIds": {"data": "k"}, "zones": ["a", "b"], "count": 2}
    updated = previewed(monkeypatch, outputs)
    make_predicted(engine)
    assert engine.made() == ["topic-1"]
    (state,) = engine.imported
    (stack,) = state["deployment"]["resources"]
    assert stack["urn"] == "urn:pulumi:base::falaj::pulumi:pulumi:Stack::falaj-base"
    assert stack["outputs"] == outputs
    assert not updated


@pytest.mark.parametrize(
    "outputs",
    [{}, {"keyIds": {"data": "[secret]"}}, {"zones": ["a", min(UNKNOWN_TEXTS)]}],
)
def test_what_a_preview_cannot_tell_an_update_makes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, outputs: dict[str, Any]
) -> None:
    updated = previewed(monkeypatch, outputs)
    make_predicted(engine)
    assert updated == ["base"]
    assert (engine.made(), engine.imported) == ([], [])


@pytest.mark.parametrize(
    ("status", "interrupted", "raised"),
    [(255, False, StackError), (130, True, KeyboardInterrupt)],
)
def test_nothing_stands_on_what_cannot_be_made(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    interrupted: bool,
    raised: type[BaseException],
) -> None:
    updated = previewed(monkeypatch, {"a": 1}, status=status, interrupted=interrupted)
    with pytest.raises(raised):
        make_predicted(engine)
    assert (engine.made(), engine.imported, updated) == ([], [], [])
