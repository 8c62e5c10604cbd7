"""The judge as a pod runs it: real servers, a real registry, and the alias that it leaves."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from falaj.workloads.errors import REFUSED
from falaj.workloads.inference.drift.answers import BUCKETS
from falaj.workloads.registry.alias_record import AliasRecord
from falaj.workloads.registry.aliases import NothingSeen, Signer, newest, promote
from falaj.workloads.registry.delivery import Content, deliver
from falaj.workloads.registry.distribution import RegistryClient
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.shelf import Shelf
from falaj.workloads.rollout import command
from falaj.workloads.rollout.command import Servers, main, parser, watch
from falaj.workloads.rollout.measures import read
from tests.stacks.images.registries import running
from tests.workloads.inference import models
from tests.workloads.inference.conftest import site as site  # noqa: PLC0414 - the fixtures
from tests.workloads.inference.conftest import start as start  # noqa: PLC0414
from tests.workloads.inference.serving import Server, Site, call
from tests.workloads.registry.conftest import fields as fields  # noqa: PLC0414
from tests.workloads.registry.fronts import QUICK

MODEL = "digits"


@pytest.fixture
def keyring(tmp_path: Path) -> KeyRing:
    return KeyRing.create(tmp_path / "keyring")


@pytest.fixture
def shelf(
    tmp_path: Path, keyring: KeyRing, fields: dict[str, Any]
) -> Generator[Shelf[RegistryClient]]:
    """Two versions: production stands for the first, candidate for the second."""
    with running(tmp_path / "images") as registry:
        shelf = Shelf(registry.address, "models", RegistryClient(pauses=QUICK))
        for number, alias in ((1, "production"), (2, "candidate")):
            deliver(
                shelf, Content(MODEL, {"model.onnx": b"%d" % number}, fields),
                Signer(keyring, NothingSeen()), alias=alias, staging=tmp_path / f"s{number}",
                say=lambda _: None,
            )  # fmt: skip
        yield shelf


@dataclass(frozen=True)
class Pod:
    """The judge's: its key ring, its certificates, and the registry."""

    shelf: Shelf[RegistryClient]
    keyring: KeyRing
    pki: Path

    def given(self, *more: str) -> list[str]:
        pki = self.pki
        return [
            "judge", "--model", MODEL, "--stable", "1", "--canary", "2",
            "--canary-alias", "candidate", "--servers", "servers.example:8443",
            "--server-name", "localhost", "--certificate", str(pki / "prometheus.crt"),
            "--private-key", str(pki / "prometheus.key"), "--authority", str(pki / "ca.crt"),
            "--keyring", str(self.keyring.path), "--to", f"{self.shelf.address}/models",
            "--window-minutes", "2", "--deadline-hours", "24", "--least-requests", "200",
            "--most-error-rise", "0.1", "--most-latency-rise", "25", "--least-likeness", "95",
            *more,
        ]  # fmt: skip

    def record(self, alias: str) -> AliasRecord:
        entry = newest(self.shelf, MODEL, alias, self.keyring.verify_key())
        assert entry is not None
        return entry.record


@pytest.fixture
def pki(site: Site) -> Path:
    site.pki.issue("prometheus", "prometheus", ExtendedKeyUsageOID.CLIENT_AUTH)
    site.document["auth"]["clients"]["prometheus"] = ["observe"]
    site.write()
    return site.pki.folder


@pytest.fixture
def pod(shelf: Shelf[RegistryClient], keyring: KeyRing, pki: Path) -> Pod:
    return Pod(shelf, keyring, pki)


def shown(version: int, answered: int, failed: int) -> str:
    labels = f'model="{MODEL}",version="{version}"'
    times = "".join(
        f'falaj_inference_request_duration_seconds_bucket{{{labels},le="{bound}"}} {answered}\n'
        for bound in ("0.001", "+Inf")
    )
    answers = "".join(
        f'falaj_inference_answers_total{{{labels},bucket="{each}"}} {answered}\n'
        for each in range(BUCKETS)
    )
    statuses = "".join(
        f'falaj_inference_responses_total{{{labels},route="infer",status="{status}"}} {count}\n'
        for status, count in ((200, answered), (500, failed))
    )
    return (
        "# TYPE falaj_inference_request_duration_seconds histogram\n" + times
        + "# TYPE falaj_inference_answers_total counter\n" + answers
        + "# TYPE falaj_inference_responses_total counter\n" + statuses
    )  # fmt: skip


def measured(monkeypatch: pytest.MonkeyPatch, failed: int) -> None:
    """Servers of which the canary's fails so many of a hundred and so many, within no time."""
    looks = iter(range(100))

    def texts(_: Servers) -> dict[str, str]:
        look = next(looks)
        return {
            "10.0.0.1": shown(1, 100 * look, 0),
            "10.0.0.2": shown(2, 100 * look, failed * look),
        }

    monkeypatch.setattr(Servers, "texts", texts)
    times = iter(range(0, 10_000, 15))

    def quickly(*what: Any, **how: Any) -> Any:
        return watch(*what, **how, clock=lambda: next(times), sleep=lambda _: None)

    monkeypatch.setattr(command, "watch", quickly)


@pytest.mark.parametrize(
    "case",
    [(0, "promoted", "production", 2), (40, "withdrawn", "candidate", 1)],
)
def test_the_alias_moves_by_what_was_measured_and_says_why(
    pod: Pod, case: tuple[int, str, str, int], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    failed, verdict, alias, version = case
    measured(monkeypatch, failed)
    arguments = pod.given()
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["verdict"], told["alias"], told["version"]) == (verdict, alias, version)
    said = pod.record(alias)
    assert (said.version, said.why) == (version, told["why"])
    assert "% failed (stable 0 % of" in said.why
    # Both stand for the same now, and the next run finds it decided.
    other = pod.record("candidate" if alias == "production" else "production")
    assert other.version == version
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["why"] == "decided before"
    assert pod.record(alias) == said


def test_a_canary_that_passes_a_step_earns_the_next_share_and_no_more(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*more: str) -> dict[str, Any]:
        assert main(pod.given(*more)) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    measured(monkeypatch, 0)
    stable, first = pod.record("production"), pod.record("candidate")
    said = told("--next-share", "20")
    assert (said["verdict"], said["version"], said["share"]) == ("raised", 2, 20)
    earned = pod.record("candidate")
    assert (earned.version, earned.share, earned.number) == (2, 20, first.number + 1)
    assert earned.why.startswith("20 % are next: ")
    assert "% failed (stable 0 % of" in earned.why
    assert earned.history == first.history, "it stood for no other version meanwhile"
    assert pod.record("production") == stable
    # A pod that was ended before it could say so finds it done.
    assert told("--next-share", "20")["why"] == "decided before"
    assert pod.record("candidate") == earned
    # Whoever renews the record has it begin anew.
    signer = Signer(pod.keyring, NothingSeen())
    promote(pod.shelf, (MODEL, 2), "candidate", signer, renew=True)
    assert pod.record("candidate").share == 0
    measured(monkeypatch, 0)
    assert told("--next-share", "20")["why"] != "decided before"
    # With more requests it may fail, too.
    measured(monkeypatch, 40)
    assert told("--next-share", "45")["verdict"] == "withdrawn"
    assert (pod.record("candidate").version, pod.record("candidate").share) == (1, 0)
    assert pod.record("production") == stable


def test_a_first_version_that_nobody_promoted_is_the_stable_one(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(monkeypatch, 40)
    arguments = pod.given("--stable-alias", "released")
    for why in ("% failed (stable 0 % of", "decided before"):
        assert main(arguments) == 0
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (told["verdict"], told["version"]) == ("withdrawn", 1)
        assert why in told["why"]
    assert pod.record("candidate").version == 1
    assert newest(pod.shelf, MODEL, "released", pod.keyring.verify_key()) is None


def test_versions_that_the_aliases_left_are_not_judged(
    pod: Pod, fields: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signer = Signer(pod.keyring, NothingSeen())
    deliver(
        pod.shelf, Content(MODEL, {"model.onnx": b"3"}, fields), signer, alias="candidate",
        staging=tmp_path / "s3", say=lambda _: None,
    )  # fmt: skip
    assert main(pod.given()) == REFUSED
    assert "stand for versions 1 and 3, and 1 and 2 are served: bring the stack up" in (
        capsys.readouterr().err
    )
    promote(pod.shelf, (MODEL, 3), "production", signer)
    assert main(pod.given()) == REFUSED
    assert "stand for versions 3 and 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--least-requests", "1"), "--least-requests: given 1; allowed: 100 to"),
        (("--window-minutes", "nan"), "--window-minutes: given nan; allowed: 1 to 10,080"),
        (("--window-minutes", "90", "--deadline-hours", "1"), "the window has to end before"),
        (("--canary", "1"), "which is --stable as well"),
        (("--next-share", "50"), "--next-share: given 50; allowed: 1 to 49"),
        (("--to", "models"), "--to: given 'models'"),
        (("--servers", "servers.example"), "--servers: given 'servers.example'; allowed"),
        (("--authority", "/nowhere/ca.crt"), "can't be used"),
    ],
)
def test_what_can_t_be_used_is_said(
    pod: Pod, more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(pod.given(*more)) == REFUSED
    assert words in capsys.readouterr().err


def test_servers_show_their_counters_to_the_certificate_that_observes(
    pod: Pod, site: Site, start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    version = site.publish(models.classifier())
    server = start(site).serving(version)
    image = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64}
    connection, token = server.connect(), site.token("predict")
    for _ in range(3):
        call(connection, "POST", "/v2/models/mlp/infer", token=token, body={"inputs": [image]})
    found = socket.getaddrinfo

    def resolved(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host == "servers.example":
            return [*found("127.0.0.1", port, *more, **named),
                    *found("127.0.0.9", port, *more, **named)]  # fmt: skip
        return found(host, port, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    options = parser().parse_args(pod.given("--servers", f"servers.example:{server.port}"))
    texts = Servers.of(options).texts()
    assert texts.keys() == {"127.0.0.1"}
    assert "127.0.0.9 didn't answer" in capsys.readouterr().err
    counters = read(texts["127.0.0.1"])
    assert counters[str(version), "falaj_inference_responses_total", "200"] == 3
    assert counters[str(version), "falaj_inference_answers_total", "0"] == 3
    # Who has another certificate observes nothing.
    options.certificate, options.private_key = pod.pki / "caller.crt", pod.pki / "caller.key"
    assert Servers.of(options).texts() == {}
    assert "status 403" in capsys.readouterr().err
