"""What a watch decides: each branch of the ladder, and what it may never do."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks.settings.watching import DemandsSettings
from falaj.stacks.watching.data import newest
from falaj.stacks.watching.machine import standing_of
from falaj.workloads.rollout.pairs import Outcomes
from falaj.workloads.watching.beside import Standing, judge
from falaj.workloads.watching.ladder import NoDataError, Source, Updated
from falaj.workloads.watching.memory import WEEK, Ledger, Memory, WatchError
from falaj.workloads.watching.report import MOST_BYTES, ReportError, read_report
from falaj.workloads.watching.webhook import WebhookError
from tests.stacks.watching.reports import labels, report, row
from tests.stacks.watching.world import Crash, Scene

ALL = {"steps": ["tell", "rollBack", "retrain"]}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


# Tell.


def test_what_is_within_its_limits_by_now_says_in_how_many_windows_it_was_not() -> None:
    seen = row("outputs", "drifted", psi=0.05, ks=0.01)
    found = read_report(json.dumps(report("drifted", outputs=seen)).encode(), "shop")
    assert found.drifted == ("input age", "answers")
    age, answers = found.why.split("; ")
    assert age == "age: psi 0.4 (limit 0.1), ks 0.2 (limit 0.05)"
    assert answers == (
        "answers: psi 0.05 (limit 0.1), ks 0.01 (limit 0.05), beyond in 2 of the windows before"
    )


def test_without_drift_nothing_is_said(scene: Scene) -> None:
    assert scene.look() == "fine"
    assert scene.said == []
    assert scene.world.done == []


def test_drift_is_told_once_with_its_figures(scene: Scene) -> None:
    scene.world.asked = {"webhook": "https://localhost/x"}
    scene.world.says = report("drifted")
    assert [scene.look(), scene.look(1), scene.look(1)] == ["drifted"] * 3
    (said,) = scene.said
    assert "age: psi 0.4 (limit 0.1), ks 0.2 (limit 0.05)" in said
    (sent,) = scene.world.sent
    assert sent["event"] == "drift"
    assert sent["drifted"] == ["input age"]
    signal = json.loads((scene.folder / "signal.json").read_text())
    assert signal["figures"]["age"]["psi"] == 0.4
    assert stat.S_IMODE((scene.folder / "signal.json").stat().st_mode) == 0o600


def test_a_restart_tells_nothing_twice(scene: Scene) -> None:
    scene.world.says = report("drifted")
    scene.look()
    scene.start()
    scene.look()
    assert len(scene.events("drift")) == 1


def test_another_column_and_another_episode_are_told(scene: Scene) -> None:
    scene.world.says = report("drifted")
    scene.look()
    scene.world.says = report("drifted", features=[row("age", "drifted"), row("city", "drifted")])
    scene.look()
    # It flickers: what was told of this episode is known.
    scene.world.says = report("drifted")
    scene.look()
    assert [each["drifted"] for each in scene.events("drift")] == [
        ["input age"], ["input age", "input city"],
    ]  # fmt: skip
    scene.world.says = report("ok")
    scene.look()
    scene.world.says = report("drifted", since=5_000.0)
    scene.look()
    assert len(scene.events("drift")) == 3
    assert len(scene.events("ended")) == 1


def test_tell_alone_does_nothing_else(scene: Scene) -> None:
    scene.world.says = report("drifted")
    for _ in range(3):
        scene.look(100)
    assert scene.world.done == []


@pytest.mark.parametrize(
    ("says", "seen"),
    [("the server doesn't answer", "unknown"), (report("no reference"), "unknown"),
     (report("collecting"), "fine")],
)  # fmt: skip
def test_what_isnt_known_is_said_once(scene: Scene, says: Any, seen: str) -> None:
    scene.world.asked, scene.world.says = ALL, says
    assert [scene.look(), scene.look()] == [seen, seen]
    assert len(scene.said) == (0 if seen == "fine" else 1)
    assert scene.world.done == []


def test_a_server_that_is_back_is_said(scene: Scene) -> None:
    scene.world.says = "gone"
    scene.look()
    scene.world.says = report()
    scene.look()
    assert [each.partition(":")[0] for each in scene.said] == ["silent", "answers"]


def test_a_stack_that_asks_for_no_watch_any_more(scene: Scene) -> None:
    scene.world.asked = {"none": True}
    assert [scene.look(), scene.look()] == ["unknown"] * 2
    (said,) = scene.said
    assert "falaj:watch" in said


# Retrain.


def drifting(scene: Scene, **asked: Any) -> None:
    scene.world.asked = {**ALL, **asked}
    scene.world.says = report("drifted")


def test_new_data_make_a_new_version(scene: Scene) -> None:
    drifting(scene, webhook="https://localhost/x")
    scene.look()
    assert scene.world.done == ["up"]
    begun, ended = scene.events("retrain", "retrained")
    assert begun["data"] == "new"
    assert begun["by"] == "tester"
    assert "psi 0.4" in begun["text"]
    assert ended["text"] == "retrained: version 2 serves, in the place of version 1"
    assert [each["event"] for each in scene.world.sent] == ["drift", "retrained"]


def test_the_same_data_are_never_learned_twice(scene: Scene) -> None:
    drifting(scene, coolDownHours=0)
    scene.look()
    scene.world.says = report("drifted", version=2)
    for _ in range(5):
        scene.look(1)
    assert scene.world.done == ["up"]
    assert "is what the stack learned from last" in scene.events("waits")[-1]["text"]


@pytest.mark.parametrize(
    ("data", "learned", "words"),
    [("still being written", "old", "still being written"),
     (Source("/d", "old"), "old", "is what the stack learned from last"),
     (Source("/d", "new"), None, "state can't be read")],
)  # fmt: skip
def test_without_new_data_nothing_is_trained(
    scene: Scene, data: Any, learned: str | None, words: str
) -> None:
    drifting(scene)
    scene.world.data, scene.world.learned_from = data, learned
    scene.look()
    scene.look()
    assert scene.world.done == []
    (waits,) = scene.events("waits")
    assert words in waits["text"]


def test_the_cool_down_outlives_a_restart(scene: Scene) -> None:
    drifting(scene, coolDownHours=24)
    scene.look()
    scene.world.says = report("drifted", version=2, since=5_000.0)
    scene.world.data = Source("/d", "newer")
    scene.start()
    scene.look(23)
    assert scene.world.done == ["up"]
    scene.look(2)
    assert scene.world.done == ["up", "up"]


def test_a_clock_that_is_put_back_ends_no_cool_down_and_no_ceiling(scene: Scene) -> None:
    drifting(scene, coolDownHours=24, mostRetrainingsPerWeek=1)
    scene.look()
    scene.world.says = report("drifted", version=2, since=5_000.0)
    scene.world.data = Source("/d", "newer")
    scene.look(-1_000)
    scene.look(23)
    scene.look(2)
    assert scene.world.done == ["up"]
    assert "the most" in scene.events("waits")[-1]["text"]
    # Neither lasts for ever.
    scene.look(WEEK / 3_600)
    assert scene.world.done == ["up", "up"]


def test_a_week_has_its_ceiling(scene: Scene) -> None:
    drifting(scene, coolDownHours=0, mostRetrainingsPerWeek=2)
    for number in range(10):
        scene.world.data = Source("/d", f"data {number}")
        scene.look(10)
        scene.start()
    assert scene.world.done == ["up", "up"]
    scene.look(WEEK / 3_600)
    assert scene.world.done == ["up", "up", "up"]


def test_a_model_that_isnt_worth_it_is_not_tried_again(scene: Scene) -> None:
    drifting(scene, coolDownHours=0)
    scene.world.becomes = Updated("refused", "accuracy 0.5, and version 1 0.9")
    for _ in range(4):
        scene.look(1)
    assert scene.world.done == ["up"]
    assert "goes on to serve" in scene.events("retrained")[0]["text"]
    assert "was tried already" in scene.events("waits")[-1]["text"]


def test_what_failed_otherwise_is_tried_again_after_the_cool_down(scene: Scene) -> None:
    drifting(scene, coolDownHours=2, mostRetrainingsPerWeek=3)
    scene.world.becomes = Updated("failed", "no space left")
    for _ in range(8):
        scene.look(1)
    assert scene.world.done == ["up"] * 3
    assert "no space left" in scene.events("retrained")[0]["text"]


def test_who_finds_the_stack_busy_waits_and_counts_nothing(scene: Scene) -> None:
    drifting(scene, mostRetrainingsPerWeek=1)
    scene.world.becomes = Updated("busy", "another run is working on the stack")
    for _ in range(3):
        scene.look()
    scene.world.becomes = Updated("done")
    scene.look()
    assert scene.world.done == ["up"] * 4
    assert len(scene.events("retrained")) == 1


def test_a_table_of_the_folder_becomes_the_dataset(scene: Scene) -> None:
    drifting(scene, data="in")
    scene.world.data = Source("/in/2.csv", "new", "in/2.csv")
    scene.look()
    assert scene.world.done == ["dataset in/2.csv", "up"]
    assert scene.world.said == "in/2.csv"


@pytest.mark.parametrize("outcome", ["refused", "failed", "busy", "stopped"])
def test_the_file_says_again_what_it_said(scene: Scene, outcome: Any) -> None:
    drifting(scene, data="in")
    scene.world.data = Source("/in/2.csv", "new", "in/2.csv")
    scene.world.becomes = Updated(outcome, "why")
    scene.look()
    assert scene.world.said == "shop.csv"


def test_a_table_that_the_settings_refuse(scene: Scene) -> None:
    drifting(scene)
    scene.world.data = Source("/in/bad.csv", "new", "bad.csv")
    scene.look()
    assert scene.world.done == []
    assert "given 'bad.csv'" in scene.events("retrained")[0]["text"]


@pytest.mark.parametrize("where", ["dataset in/2.csv", "up"])
def test_a_crash_in_a_retraining_is_told_and_counts(scene: Scene, where: str) -> None:
    drifting(scene, data="in", coolDownHours=1, mostRetrainingsPerWeek=2)
    scene.world.data = Source("/in/2.csv", "new", "in/2.csv")
    scene.world.crashes_in = where
    with pytest.raises(Crash):
        scene.look()
    scene.world.crashes_in = ""
    scene.start()
    (settled,) = scene.events("settled")
    assert "in the midst of a retraining" in settled["text"]
    assert scene.world.said == "shop.csv"
    scene.look()
    assert scene.world.done.count("up") == (where == "up")
    scene.look(2)
    assert scene.world.said == "in/2.csv"
    assert len(scene.watch.memory.retrainings) == 2


def test_what_a_file_kept_from_its_end_is_settled_at_the_next_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    drifting(scene, data="in")
    scene.world.data = Source("/in/2.csv", "new", "in/2.csv")
    scene.world.becomes = Updated("refused", "why")
    put = scene.world.set_dataset

    def refuse(given: str) -> None:
        if given == "shop.csv":
            raise WatchError("somebody else is writing the file")
        put(given)

    monkeypatch.setattr(scene.world, "set_dataset", refuse)
    with pytest.raises(WatchError):
        scene.look()
    assert scene.world.said == "in/2.csv"
    monkeypatch.setattr(scene.world, "set_dataset", put)
    scene.look()
    assert scene.world.said == "shop.csv"
    assert scene.watch.memory.pending is None
    assert scene.world.done.count("up") == 1


def test_a_crash_after_the_switch_finds_the_new_version(scene: Scene) -> None:
    drifting(scene, data="in")
    scene.world.data = Source("/in/2.csv", "new", "in/2.csv")
    scene.world.crashes_in = "up"
    with pytest.raises(Crash):
        scene.look()
    scene.world.crashes_in, scene.world.serving = "", 2
    scene.start()
    assert "version 2 serves" in scene.events("settled")[0]["text"]
    assert scene.world.said == "in/2.csv"


# Roll back.


def compare(scene: Scene, before: tuple[int, float], after: tuple[int, float]) -> None:
    """Version 1 serves and has labels, then version 2 does."""
    scene.world.says = report(labels=labels(*before))
    scene.look()
    scene.world.before, scene.world.serving = 1, 2
    scene.world.says = report(version=2, labels=labels(*after))


def test_a_version_that_labels_show_to_be_worse_goes(scene: Scene) -> None:
    scene.world.asked = ALL
    compare(scene, (600, 0.95), (600, 0.75))
    assert scene.look() == "drifted"
    assert scene.world.done == ["rollBack"]
    begun, done = scene.events("rollBack", "rolledBack")
    assert "version 2 is worse than version 1: of 600 pairs 150 answers" in begun["text"]
    assert done["serves"] == 1
    # And nothing swings back and forth.
    scene.world.before = 2
    scene.world.says = report(labels=labels(600, 0.5))
    scene.look(100)
    assert scene.world.done == ["rollBack"]


@pytest.mark.parametrize(
    ("before", "after"),
    [((600, 0.75), (600, 0.95)), ((600, 0.9), (600, 0.9)), ((0, 0.0), (600, 0.2)),
     ((600, 0.9), (3, 0.5))],
    ids=["better", "alike", "nothing to compare with", "too few"],
)  # fmt: skip
def test_a_version_that_isnt_shown_to_be_worse_stays(
    scene: Scene, before: tuple[int, float], after: tuple[int, float]
) -> None:
    scene.world.asked = ALL
    compare(scene, before, after)
    for _ in range(5):
        scene.look(100)
    assert scene.world.done == []


def test_drift_that_both_versions_see_is_no_reason(scene: Scene) -> None:
    scene.world.asked = {"steps": ["tell", "rollBack"]}
    compare(scene, (600, 0.95), (600, 0.5))
    scene.world.says = report("drifted", version=2, labels=labels(600, 0.5, "drifted"))
    for _ in range(5):
        scene.look(100)
    assert scene.world.done == []


def test_a_version_that_fails_more_requests_goes(scene: Scene) -> None:
    scene.world.asked = ALL
    scene.world.counted = Outcomes(5_000, 0)
    scene.look()
    scene.world.before, scene.world.serving = 1, 2
    scene.world.says, scene.world.counted = report(version=2), Outcomes(400, 60)
    scene.look()
    assert scene.world.done == ["rollBack"]
    assert "60 requests failed" in scene.events("rollBack")[0]["text"]


def test_rolling_back_isnt_done_unasked(scene: Scene) -> None:
    scene.world.asked = {"steps": ["tell"]}
    compare(scene, (600, 0.95), (600, 0.6))
    assert scene.look() == "drifted"
    assert scene.world.done == []
    assert "rollBack isn't among the steps" in scene.events("waits")[0]["text"]


def test_a_rollback_that_is_refused_is_told(scene: Scene) -> None:
    scene.world.asked = ALL
    scene.world.refuses = "there is no earlier one to go back to"
    compare(scene, (600, 0.95), (600, 0.6))
    scene.look()
    assert "not rolled back: there is no earlier one" in scene.events("rolledBack")[0]["text"]
    scene.look(100)
    assert scene.world.done == ["rollBack"]


def test_a_crash_in_a_rollback_is_told(scene: Scene) -> None:
    scene.world.asked = ALL
    compare(scene, (600, 0.95), (600, 0.6))
    scene.world.crashes_in = "rollBack"
    with pytest.raises(Crash):
        scene.look()
    scene.start()
    assert "in the midst of a rollback" in scene.events("settled")[0]["text"]
    scene.look(1)
    assert scene.world.done == ["rollBack"]


# The shadow.


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "promote"),
        ({"since": None}, "wait"),
        ({"since": 1_000.0}, "wait"),
        ({"compared": 99, "failed": 0}, "wait"),
        ({"agreement": 0.79}, "withdraw"),
        ({"agreement": None}, "withdraw"),
        ({"compared": 995, "failed": 5}, "withdraw"),
        ({"compared": 0, "failed": 1_000, "agreement": None}, "withdraw"),
        # What fails isn't waited for.
        ({"compared": 90, "failed": 10, "since": 1_000.0}, "withdraw"),
        ({"compared": 90, "failed": 9, "since": 1_000.0}, "wait"),
    ],
)
def test_when_a_shadow_is_fit_to_serve(changes: dict[str, Any], verdict: str) -> None:
    fine: dict[str, Any] = {
        "since": 0.0,
        "compared": 2_000,
        "failed": 1,
        "rows": 4_000,
        "agreement": 0.8,
    }
    standing = Standing(2, **(fine | changes))
    found = judge(
        standing,
        DemandsSettings.model_validate({"requests": 100, "mostFailed": 0.004}),
        now=1_200.0,
    )
    assert found.verdict == verdict
    assert "version 2, as a shadow" in found.why


def test_a_retrained_version_is_a_shadow_before_it_serves(scene: Scene) -> None:
    scene.world.first = True
    drifting(scene, steps=["tell", "shadow", "retrain"], webhook="https://localhost/x")
    scene.look()
    assert scene.world.done == ["up"]
    (retrained,) = scene.events("retrained")
    assert "version 2 is the shadow of version 1, which goes on to serve" in retrained["text"]
    scene.world.data = Source("/data/newer.csv", "newer")
    scene.look(48)
    assert scene.world.done == ["up"]
    assert any("looked at as a shadow first" in each for each in scene.said)
    scene.world.beside = Standing(2, scene.now - 3_600, 5_000, 2, 9_000, 0.93)
    scene.look(1)
    assert scene.world.done == ["up", "promote 2"]
    assert scene.world.serving == 2
    (judged,) = scene.events("judged")
    (promoted,) = scene.events("promoted")
    assert judged["text"].startswith("promote: version 2, as a shadow, agrees in 93.0%")
    assert (promoted["version"], promoted["served"]) == (2, 1)
    assert "promoted" in [each["event"] for each in scene.world.sent]


def test_a_shadow_that_fails_is_withdrawn(scene: Scene) -> None:
    scene.world.asked = {"steps": ["tell", "shadow"]}
    scene.world.beside = Standing(2, scene.now, 900, 100, 900, 0.99, "the model could not run")
    scene.world.refuses = "the registry's disk is full"
    scene.look()
    assert "not done (withdraw): the registry's disk is full" in scene.said[-1]
    scene.world.refuses = ""
    scene.look()
    assert scene.world.done == ["withdraw 2", "withdraw 2"]
    assert scene.world.serving == 1
    (withdrawn,) = scene.events("withdrawn")
    assert "failed on 100 of 1,000 requests" in withdrawn["text"]
    assert "the last: the model could not run" in withdrawn["text"]


@pytest.mark.parametrize("steps", [["tell"], ["tell", "rollBack"]])
def test_without_the_step_nobody_judges_a_shadow(scene: Scene, steps: list[str]) -> None:
    scene.world.asked = {"steps": steps}
    scene.world.beside = Standing(2, 0.0, 5_000, 0, 9_000, 1.0)
    scene.look()
    assert scene.world.done == []


def test_a_server_that_says_nothing_of_its_shadow_is_asked_again(scene: Scene) -> None:
    scene.world.asked = {"steps": ["tell", "shadow"]}
    scene.world.beside = "the state can't be read"
    scene.look()
    scene.look()
    assert [each["text"] for each in scene.events("waits")] == ["the state can't be read"]
    scene.world.beside = Standing(1, 0.0, 5_000, 0, 9_000, 1.0)
    scene.look()
    assert scene.world.done == []


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.dictionaries(
        st.sampled_from(["version", "requests", "compared", "failed", "rows", "since",
                         "agreement", "why", "refused"]), inner, max_size=6,
    ),
    max_leaves=20,
))  # fmt: skip
def test_what_a_server_says_of_its_shadow_is_read_with_suspicion(said: Any) -> None:
    found = standing_of(2, said)
    assert found.version == 2
    assert min(found.compared, found.failed, found.rows) >= 0


# The webhook, and mail.


def test_who_doesnt_answer_keeps_the_others_from_nothing(scene: Scene) -> None:
    mail = {"server": "localhost", "sender": "a@b.ae", "recipients": ["c@d.ae"]}
    scene.world.asked = {"webhook": "https://localhost/x", "mail": mail}
    scene.world.deaf = {"webhook"}
    scene.world.says = report("drifted")
    scene.look()
    assert [each["by"] for each in scene.world.sent] == ["mail"]
    scene.start()
    scene.world.deaf = set()
    scene.look(1)
    assert [each["by"] for each in scene.world.sent] == ["mail", "webhook"]
    one, other = scene.world.sent
    assert one["delivery"] != other["delivery"]
    assert one["text"] == other["text"]


def test_messages_wait_for_a_webhook_that_is_away(scene: Scene) -> None:
    scene.world.asked = {"webhook": "https://localhost/x"}
    scene.world.hook = WebhookError("it can't be reached", for_good=False)
    scene.world.says = report("drifted")
    scene.look()
    scene.look()  # not due yet
    scene.start()
    scene.world.hook = None
    scene.look(1)
    (sent,) = scene.world.sent
    assert sent["event"] == "drift"
    assert scene.watch.memory.outbox == []
    assert len(scene.events("sent")) == 1


def test_a_webhook_that_refuses_gets_nothing_again(scene: Scene) -> None:
    scene.world.asked = {"webhook": "https://localhost/x"}
    scene.world.hook = WebhookError("it sends on to abroad.example", for_good=True)
    scene.world.says = report("drifted")
    scene.look()
    assert scene.watch.memory.outbox == []
    assert "given up" in scene.events("unsent")[0]["text"]


def test_a_webhook_that_never_answers_is_given_up(scene: Scene) -> None:
    scene.world.asked = {"webhook": "https://localhost/x"}
    scene.world.hook = WebhookError("no whole answer within 15 s", for_good=False)
    scene.world.says = report("drifted")
    for _ in range(20):
        scene.look(2)
    assert scene.watch.memory.outbox == []
    assert len(scene.events("unsent")) == 2  # when it began, and when it was given up


def test_what_waits_is_bounded(scene: Scene) -> None:
    scene.world.asked = {"webhook": "https://localhost/x"}
    scene.world.hook = WebhookError("away", for_good=False)
    for number in range(130):
        scene.world.says = report("drifted", since=float(number))
        scene.look()
    assert len(scene.watch.memory.outbox) <= 100
    assert scene.events("dropped")


# What is remembered.


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'{"retrainings": "many"}', b"\xff\xfe", b'{"more": 1}',
        b'{"served": true}', b'{"acted": "1"}', b'{"acted": NaN}', b'{"told": {"names": []}}',
        b'{"told": [1]}', b'{"ledgers": {"others": {}}}', b'{"tried": {"a": 1}}',
        b'{"ledgers": {"labels": {"kept": {"one": [1, 0]}}}}', b"[" * 100_000,
        b'{"ledgers": {"labels": {"seen": [1, 2]}}}', b'{"last": {"step": "retrain"}}',
    ],
)  # fmt: skip
def test_a_damaged_memory_stops_everything(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memory.json").write_bytes(content)
    with pytest.raises(WatchError, match=r"memory\.json.*\n.*move the file away"):
        Scene(tmp_path)


def test_memory_is_private_and_comes_back_whole(scene: Scene) -> None:
    drifting(scene, webhook="https://localhost/x")
    scene.world.hook = WebhookError("away", for_good=False)
    scene.look()
    path = scene.folder / "memory.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Memory.read(path) == scene.watch.memory


steps = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 500), st.floats(0, 1), st.integers(0, 3)),
    max_size=20,
)


@given(steps)
def test_ledgers_take_any_counts(looks: list[tuple[int, int, float, int]]) -> None:
    ledger = Ledger()
    for version, count, share, previous in looks:
        ledger.take(version, Outcomes(count, round(count * share)), previous or None)
        for total, failed in ledger.kept.values():
            assert 0 <= failed <= total <= 10_000
    memory = Memory(ledgers={"labels": ledger})
    assert Memory.of(memory.document) == memory


# Reports.


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"null", b'"x"', b"{", b"[" * 100_000, b"\xff",
        *(
            json.dumps({**report(), key: value}).encode()
            for key, value in (
                ("model", "other"), ("model", 3), ("version", "one"), ("version", 1),
                ("version", "9" * 40), ("state", "fine"), ("state", []), ("since", "now"),
                ("since", float("nan")), ("window", []), ("window", {"filled": -1}),
                ("window", {"filled": 1.5}), ("features", {}), ("features", [3]), ("features", 3),
                ("features", [{"name": 3}]), ("features", [row("x")] * 20_001),
                ("labels", labels(3, 1.5)), ("labels", labels(3, -1)),
                ("labels", {"scored": 2.5, "wrong": 1}), ("outputs", {"state": "ok"}),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(ReportError, match=r"\w"):
        read_report(data, "shop")


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_refused(data: bytes) -> None:
    with pytest.raises(ReportError):
        read_report(data, "shop")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=3,
)


@given(st.sampled_from(sorted(report())), json_values)
def test_any_value_anywhere_is_taken_or_refused(key: str, value: Any) -> None:
    data = json.dumps({**report(), key: value}).encode("utf-8", "surrogatepass")
    try:
        found = read_report(data, "shop")
    except ReportError:
        return
    assert found.model == "shop"
    assert len(found.episode) == 64


def test_what_steers_a_terminal_is_taken_out() -> None:
    features = [row("a\x1b[2Jb\n", "drifted")]
    found = read_report(json.dumps(report("drifted", features=features)).encode(), "shop")
    assert found.why.isprintable()
    assert MOST_BYTES < 1 << 24


# Data.


def aged(path: Path, text: str = "a,b\n1,2\n", seconds: float = 60) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    moment = path.stat().st_mtime - seconds
    os.utime(path, (moment, moment))
    return path


def test_the_last_table_by_name_is_the_newest(tmp_path: Path) -> None:
    dataset = aged(tmp_path / "shop.csv")
    now = dataset.stat().st_mtime + 60
    aged(tmp_path / "in" / "2026-10.csv", seconds=1)
    last = aged(tmp_path / "in" / "2026-11.csv", "b,a,more\n")
    aged(tmp_path / "in" / ".2026-12.csv")
    aged(tmp_path / "in" / "readme.txt")
    found = newest(tmp_path, dataset, "in", now)
    assert (found.path, found.given) == (last, "in/2026-11.csv")
    assert newest(tmp_path, dataset, None, now).given is None
    assert newest(tmp_path, last, "in", now).given is None


@pytest.mark.parametrize(
    ("name", "text", "seconds", "words"),
    [("1.csv", "a,b\n", 0, "changed just now"), ("1.csv", "a,c\n", 60, "lacks the columns b"),
     ("1.csv", "", 60, "can't be compared"), ("1.txt", "a,b\n", 60, "holds no .csv")],
)  # fmt: skip
def test_tables_that_arent_taken(
    tmp_path: Path, name: str, text: str, seconds: float, words: str
) -> None:
    dataset = aged(tmp_path / "shop.csv")
    now = aged(tmp_path / "in" / name, text, seconds).stat().st_mtime + seconds
    with pytest.raises(NoDataError, match=words):
        newest(tmp_path, dataset, "in", now)


def test_no_folder_and_no_file(tmp_path: Path) -> None:
    dataset = tmp_path / "shop.csv"
    for folder in ("in", None):
        with pytest.raises(NoDataError, match="can't be read"):
            newest(tmp_path, dataset, folder, 0.0)
