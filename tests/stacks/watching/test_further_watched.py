"""The watches over further models: who is told of what, what may be put back, and what never."""

from __future__ import annotations

import json
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.watching.machine import Machine
from falaj.stacks.watching.seen import seen
from falaj.stacks.watching.several import Watches
from falaj.workloads.inference.metrics import PREFIX
from falaj.workloads.inference.protocol.routes import INFER
from falaj.workloads.watching.ladder import NoDataError
from falaj.workloads.watching.memory import Memory
from falaj.workloads.watching.report import read_report
from tests.stacks.models.published import Publisher
from tests.stacks.watching.peers import peer, saying
from tests.stacks.watching.reports import labels, report
from tests.stacks.watching.test_watch_command import Place
from tests.stacks.watching.world import Kept, Scene

pytestmark = pytest.mark.timeout(120)


# -- one watch ---------------------------------------------------------------------------------


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A watch of the further model ``shop``, of versions 1 and 2, of which the second is worse."""
    found = Scene(tmp_path, further="shop", origin="stack price makes it")
    found.world.asked = {"steps": ["tell", "rollBack"], "webhook": "https://localhost/x"}
    found.world.says = report(labels=labels(600, 0.95))
    found.start()
    found.look()
    found.world.says = report(version=2, labels=labels(600, 0.7))
    found.world.serving, found.world.before = 2, 1
    return found


def test_what_cannot_be_put_back_from_here_is_told_once_and_left(scene: Scene) -> None:
    scene.world.bars = "stack price has to do it, as the keys sign nothing here"
    assert scene.look(1) == "drifted"
    scene.world.says = report(version=2, labels=labels(900, 0.7))
    assert scene.look(1) == "drifted"
    scene.start()
    scene.look(1)
    assert scene.world.done == []
    (told,) = [each for each in scene.world.sent if each["event"] == "worse"]
    assert "shop: version 2 is worse than version 1" in told["text"]
    assert told["text"].endswith(f"not rolled back: {scene.world.bars}")
    assert told["model"] == "shop"
    # Nothing was begun, so nothing cools down, and nothing was given up.
    assert (scene.watch.memory.acted, scene.watch.memory.withdrawn) == (None, [])
    scene.world.bars = ""
    scene.look(1)
    assert scene.world.done == ["rollBack"]


def test_without_the_step_a_worse_version_is_only_said(scene: Scene) -> None:
    scene.world.asked = {"steps": ["tell"]}
    scene.world.bars = "whatever"
    scene.look(1)
    assert scene.world.done == []
    assert any("rollBack isn't among the steps" in each for each in scene.said)


@pytest.mark.parametrize("bars", ["", "stack price has to do it"])
def test_drift_that_both_versions_see_never_puts_one_back(scene: Scene, bars: str) -> None:
    scene.world.bars = bars
    scene.world.says = report("drifted", version=2, labels=labels(600, 0.7))
    for _ in range(3):
        assert scene.look(24) == "drifted"
    assert scene.world.done == []
    assert {each["event"] for each in scene.world.sent} == {"drift"}


def test_each_line_record_and_message_names_the_model(scene: Scene) -> None:
    scene.look(1)
    scene.world.says = report("drifted", version=1)
    scene.look(1)
    scene.world.says = "the server doesn't answer"
    scene.look(1)
    assert all(" shop" in each or "shop:" in each for each in scene.said)
    assert {each["model"] for each in scene.audit.events} == {"shop"}
    assert {each["event"] for each in scene.world.sent} == {"rolledBack", "drift"}
    assert all(each["model"] == "shop" for each in scene.world.sent)
    (drift,) = [each for each in scene.world.sent if each["event"] == "drift"]
    assert drift["text"].startswith("shop version 1 drifted: ")
    assert drift["text"].endswith("; stack price makes it")


# -- all of a server ---------------------------------------------------------------------------


class Several(Place):
    """A stack whose server has further models."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.others: dict[str, Any] = {}
        self.drift: dict[str, Any] = {}

    def serve(self, port: int, keyring: Path | None = None) -> None:
        super().serve(port, keyring)
        path = self.site / "service" / "shop" / "service.json"
        found = json.loads(path.read_text())
        models = {"models": self.others, "drift": self.drift} if hasattr(self, "others") else {}
        path.write_text(json.dumps({**found, **models}))

    def add(self, name: str, **more: Any) -> Publisher:
        """A further model of another site's."""
        root = self.root.parent / f"of {name}"
        root.mkdir()
        publisher = Publisher(root)
        self.others[name] = {
            "registry": str(publisher.store.root), "keyring": str(publisher.keyring.path),
            "alias": "production", **more,
        }  # fmt: skip
        return publisher

    def memory(self, name: str = "") -> Memory:
        folder = self.site / "watch"
        return Memory.read((folder / "models" / name if name else folder) / "memory.json")

    def state(self, **versions: int | None) -> None:
        """What the server says that it serves."""
        models = {name: {"version": each} for name, each in versions.items()}
        (self.site / "state.json").write_text(json.dumps({"version": 1, "models": models}))


@pytest.fixture
def place(tmp_path: Path) -> Several:
    return Several(tmp_path)


@contextmanager
def answering(place: Several, says: Mapping[str, Any], metrics: str = "") -> Generator[list[str]]:
    """A server that has a report, or a status, of each model; yields what it was asked for."""
    asked: list[str] = []

    def answer(connection: ssl.SSLSocket, request: bytes) -> None:
        path = request.split(b" ", 2)[1].decode()
        asked.append(path)
        parts = path.split("/")
        if path == "/metrics":
            saying("200 OK", metrics.encode())(connection, request)
            return
        found = says.get(parts[3], "404 Not Found")
        if isinstance(found, str):
            saying(found)(connection, request)
        else:
            saying("200 OK", json.dumps({**found, "model": parts[3]}).encode())(
                connection, request
            )

    with peer(place.authority, answer) as other:
        place.serve(other.port)
        yield asked


def looked(place: Several, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str], Kept]:
    """One look of a new process: what was seen, said and recorded."""
    monkeypatch.setenv("FALAJ_HOME", str(place.home))
    folder = place.site / "watch"
    folder.mkdir(exist_ok=True)
    said, audit = [], Kept()
    world = Machine(StackFile("main", Project.find(place.root)), folder)
    watches = Watches(world, audit, lambda event, text, _: said.append(f"{event}: {text}"), "me")
    watches.begin(1)
    return watches.look(), said, audit


@pytest.mark.slow
def test_a_further_models_drift_is_told_by_its_name(place: Several) -> None:
    place.add("price")
    with answering(place, {"shop": report(), "price": report("drifted", version=3)}):
        status, printed = place.run("--once", "--json")
        assert place.run("--once") == (3, "")
    assert status == 3
    (line,) = [json.loads(each) for each in printed.splitlines()]
    assert (line["event"], line["model"], line["version"]) == ("drift", "price", 3)
    assert line["text"].endswith(
        "who publishes it makes it, and has to have it learn from newer data"
    )
    records = (place.site / "watch" / "logs" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(each)["model"] for each in records] == ["price"]
    signal = json.loads((place.site / "watch" / "models" / "price" / "signal.json").read_text())
    assert signal["model"] == "price"
    assert not (place.site / "watch" / "signal.json").exists()
    line = seen(place.site, "price")
    assert line is not None
    assert (line[0], line[1]) == ("watch of price", "not running")
    assert "drifted: input age" in line[2]
    assert "drifted" not in (seen(place.site) or ("", "", ""))[2]
    assert seen(place.site, "ghost") is None


def test_one_that_cannot_be_asked_keeps_no_other_from_being_looked_at(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "price"):
        place.add(name)
    says = {"shop": report(), "gone": "503 Service Unavailable", "price": report("drifted")}
    with answering(place, says):
        for expected in (1, 0):
            found, said, _ = looked(place, monkeypatch)
            assert found == "drifted"
            assert len([each for each in said if "gone: " in each]) == expected
    says["price"] = report()
    with answering(place, says):
        assert looked(place, monkeypatch)[0] == "unknown"
    assert "no version of the model that can be asked" in place.memory("gone").silent


def test_a_model_that_vanishes_is_asked_no_more_and_comes_back_with_its_cool_down(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add("price")
    says = {"shop": report(), "price": report("drifted")}
    with answering(place, says):
        assert looked(place, monkeypatch)[0] == "drifted"
    memory = place.memory("price")
    memory.acted = 4e9
    memory.write(place.site / "watch" / "models" / "price" / "memory.json")
    kept, place.others = place.others, {}
    with answering(place, says) as asked:
        assert looked(place, monkeypatch)[0] == "fine"
        assert not any("price" in each for each in asked)
    place.others = kept
    with answering(place, says):
        _, said, _ = looked(place, monkeypatch)
    assert not [each for each in said if each.startswith("drift")]
    assert place.memory("price").acted is not None


@pytest.mark.parametrize(
    "name", ["../../escaped", "a/b", ".", "..", "", "\u0633\u0639\u0631", "a\nb", "x" * 300, "-x"]
)
def test_what_is_no_name_is_neither_asked_for_nor_made_a_folder_of(
    place: Several, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place.others = {name: {"registry": "/r", "keyring": "/k"}}
    with answering(place, {"shop": report()}) as asked:
        assert looked(place, monkeypatch)[0] == "fine"
    assert {each.split("/")[3] for each in asked if each != "/metrics"} == {"shop"}
    assert not (place.site / "watch" / "models").exists()
    assert not (place.home / "escaped").exists()


@pytest.mark.parametrize("off", ["own", "all"])
def test_a_model_whose_drift_nobody_looks_at_is_not_watched(
    place: Several, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    place.add("price", **({"drift": False} if off == "own" else {}))
    place.drift = {"enabled": off != "all"}
    with answering(place, {"shop": report()}) as asked:
        assert looked(place, monkeypatch)[0] == "fine"
    assert not any("price" in each for each in asked)


def test_what_is_remembered_of_one_and_damaged_stops_no_other(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add("price")
    with answering(place, {"shop": report("drifted"), "price": report()}):
        looked(place, monkeypatch)
        path = place.site / "watch" / "models" / "price" / "memory.json"
        path.write_text("{")
        found, said, _ = looked(place, monkeypatch)
    assert found == "drifted"
    (refused,) = [each for each in said if each.startswith("refused")]
    assert refused.startswith("refused: price: what the watch remembers can't be read")
    assert path.read_text() == "{"


def worse(place: Several, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[str, list[str]]:
    """A look at version 2 of ``price``, after one at version 1, which was better."""
    place.configure(steps=["tell", "rollBack"], **more)
    place.state(price=1)
    good = report(labels=labels(600, 0.95))
    with answering(place, {"shop": report(), "price": good}):
        assert looked(place, monkeypatch)[0] == "fine"
    place.state(price=2)
    bad = report(version=2, labels=labels(600, 0.7))
    with answering(place, {"shop": report(), "price": bad}):
        found, said, _ = looked(place, monkeypatch)
    return found, said


def test_a_worse_version_goes_in_its_own_registry_and_cools_down_alone(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = Publisher(place.site), place.add("price")
    for each in ("one", "two"):
        own.publish(each, model="shop")
        other.publish(each, model="price")
    served = iter([2, 2])
    # It follows at once.
    monkeypatch.setattr(Machine, "served", lambda self: next(served, 1) if self.further else 2)
    found, said = worse(place, monkeypatch)
    assert found == "drifted"
    assert any("rolledBack: price: version 1 serves again" in each for each in said), said
    assert other.store.resolve("price") == 1
    assert own.store.resolve("shop") == 2
    assert place.memory("price").acted is not None
    assert place.memory("price").withdrawn == [2]
    assert (place.memory().acted, place.memory().withdrawn) == (None, [])


@pytest.mark.parametrize("lack", ["keys", "ring", "folder", "moved"])
def test_where_this_stack_may_not_write_it_only_tells(
    place: Several, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    other = place.add("price")
    for each in ("one", "two"):
        other.publish(each, model="price")
    words = "sign nothing here"
    if lack == "keys":
        (other.keyring.path / "signing.pem").unlink()
    elif lack == "ring":
        (other.keyring.path / "keyring.json").write_text("{")
        words = "keyring.json"
    elif lack == "folder":
        own = other.store.root / "price"
        monkeypatch.setattr(
            "falaj.stacks.watching.machine.os.access", lambda path, _: Path(path) != own
        )
        words = f"may not write {own}"
    else:
        # Somebody publishes between what is judged and what is done.
        monkeypatch.setattr(
            Machine, "barred", lambda _: other.publish("three", model="price") and ""
        )
        words = "stands for version 3 by now, and not for version 2"
    _, said = worse(place, monkeypatch)
    told = [each for each in said if "not rolled back" in each]
    assert len(told) == 1, said
    assert words in told[0]
    if lack != "moved":
        assert "who publishes it has to do it" in told[0]
        assert place.memory("price").acted is None
    assert other.store.resolve("price") == (3 if lack == "moved" else 2)


def test_the_stack_that_makes_a_model_is_named(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add("price")
    for each in ("price", "tickets"):
        place.others[each] = place.others["price"]
    config = {
        "falaj:platform": "local", "falaj:model": "shop",
        "falaj:watch": {"steps": ["tell", "rollBack"]},
        "falaj:service.models": {
            "price": {"stack": "pricing"}, "tickets": {"registry": "r", "keyring": "k"},
        },
    }  # fmt: skip
    (place.root / "Pulumi.main.yaml").write_text(yaml.safe_dump({"config": config}))
    says = {"shop": report(), "price": report("drifted"), "tickets": report("drifted")}
    with answering(place, says):
        _, said, _ = looked(place, monkeypatch)
    drifts = {each.split()[1]: each for each in said if each.startswith("drift: ")}
    assert drifts["price"].endswith(
        "stack pricing makes it, and has to have it learn from newer data"
    )
    assert "who publishes it makes it" in drifts["tickets"]
    world = Machine(StackFile("main", Project.find(place.root)), place.site).others()["price"]
    assert world.barred().startswith("stack pricing has to do it, as this stack may not write ")
    # What would have a model of another stack's learn has nothing to learn from.
    with pytest.raises(NoDataError, match="stack pricing makes it"):
        world.source(read_report(json.dumps(report("drifted")).encode(), "shop"), 0.0)
    steps = world.settings()
    assert steps is not None
    assert steps.steps == ["tell", "rollBack"]


def test_a_further_model_has_two_steps_whatever_the_file_says(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALAJ_HOME", str(place.home))
    place.add("price")
    place.serve(1)
    (place.root / "shop.csv").write_text("age\n1\n")
    config = {
        "falaj:platform": "local", "falaj:model": "shop", "falaj:dataset": "shop.csv",
        "falaj:target": "age", "falaj:service.shadow": {"first": True},
        "falaj:watch": {"steps": ["tell", "shadow", "rollBack", "retrain"]},
    }  # fmt: skip
    (place.root / "Pulumi.main.yaml").write_text(yaml.safe_dump({"config": config}))
    world = Machine(StackFile("main", Project.find(place.root)), place.site)
    first, further = world.settings(), world.others()["price"].settings()
    assert first is not None
    assert further is not None
    assert len(first.steps) == 4
    assert further.steps == ["tell", "rollBack"]


def test_failed_requests_are_counted_of_the_model_that_failed(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = place.add("price")
    for each in ("one", "two"):
        other.publish(each, model="price")

    def responses(model: str, version: int, status: int, count: int) -> str:
        return (
            f'{PREFIX}_responses_total{{model="{model}",version="{version}",route="{INFER}",'
            f'status="{status}"}} {count}'
        )

    place.configure(steps=["tell"])
    with answering(
        place, {"shop": report(), "price": report()},
        "\n".join((responses("shop", 1, 200, 500), responses("price", 1, 200, 900))),
    ):  # fmt: skip
        looked(place, monkeypatch)
    counted = "\n".join((
        responses("shop", 1, 500, 600), responses("price", 2, 200, 900),
        responses("price", 2, 500, 1),
    ))  # fmt: skip
    with answering(place, {"shop": report(), "price": report(version=2)}, counted):
        assert looked(place, monkeypatch)[0] == "fine"
    kept = place.memory("price").ledger("answers").kept
    assert {version: tuple(each) for version, each in kept.items()} == {1: (900, 0), 2: (901, 1)}
