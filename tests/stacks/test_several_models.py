"""``falaj:service.models``: what a stack may say, what its server is told, and what is shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import jwt
import pytest

from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider import fields
from falaj.components.local.provider.handler import Context, Site
from falaj.components.local.provider.resources.inference_service import InferenceServiceHandler
from falaj.components.local.provider.service import ServiceFiles, configuration
from falaj.stacks.command import __main__ as command
from falaj.stacks.command import service
from falaj.stacks.command.options import models_here
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.settings.local import LocalSettings
from falaj.stacks.settings.local_checks import check_combinations
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.stacks.two_versions import aliases_of, make_registry
from tests.workloads.inference import models

FURTHER = {"registry": "/srv/r", "keyring": "/srv/k"}


def settings(models: dict[str, Any], **service: Any) -> LocalSettings:
    return LocalSettings.model_validate(
        {"platform": "local", "model": "churn", "service": {"models": models, **service}}
    )


@pytest.mark.parametrize(
    ("models", "key", "words"),
    [
        ({"churn": {"stack": "price"}}, (), "name of the stack's own model"),
        ({"stats": {"stack": "price"}}, (), "a path of the server's own"),
        ({"price": {}}, (), "stack, or registry and keyring"),
        ({"price": {"registry": "r"}}, (), "stack, or registry and keyring"),
        ({"price": {"stack": "price", "registry": "r", "keyring": "k"}}, (), "one of both ways"),
        ({"price": {"stack": "p", "maxBodyBytes": 2**24}}, ("maxBodyBytes",), "8388608 at most"),
    ],
)
def test_a_stack_that_names_no_further_model_is_told_why(
    tmp_path: Path, models: dict[str, Any], key: tuple[str, ...], words: str
) -> None:
    every = check_combinations(settings(models), tmp_path)
    found = [each for each in every if each.path[1:2] == ("models",)]
    assert [each.path for each in found] == [("service", "models", *models, *key)]
    assert words in found[0].message


@pytest.mark.parametrize(
    "models",
    [
        {"a/b": {"stack": "price"}}, {"price": {"stack": "No Stack"}}, {"price": {"shadow": {}}},
        {"price": {"stack": "price", "drift": {}}}, {"price": {"alias": "No"}},
        {"price": {"stack": "price", "batching": "always"}},
    ],
)  # fmt: skip
def test_what_a_further_model_has_not_is_refused(models: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="service"):
        settings(models)


def test_a_further_model_is_of_a_stack_or_of_folders(tmp_path: Path) -> None:
    models = {"price": {"stack": "price"}, "tickets": {"registry": "r", "keyring": "/srv/k"}}
    price, tickets = settings(models).service.models.values()
    site = Path("/home/stacks")
    assert price.places(tmp_path, site.joinpath) == (
        site / "price" / "registry", site / "price" / "keyring",
    )  # fmt: skip
    assert tickets.places(tmp_path, site.joinpath) == (tmp_path / "r", Path("/srv/k"))


# -- the component ----------------------------------------------------------------------------

INPUTS: dict[str, Any] = {
    "site": "/srv/site", "name": "churn", "model": "churn", "version": 1, "port": 8443,
    "keyring": "/srv/site/keyring", "certificate": "/c", "privateKey": "/p", "clientCa": "/a",
    "certificateFingerprint": "f", "issuer": "i", "audience": "a",
}  # fmt: skip


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([], "allowed: a map from names to maps"),
        ({"price": "production"}, "allowed: a map from names to maps"),
        ({"price": {"registry": "/r"}}, "models: price.keyring: missing"),
        ({"price": FURTHER | {"registry": "r"}}, "price.registry: given 'r'"),
        ({"price": FURTHER | {"alias": "No"}}, "price.alias: given 'No'"),
        ({"price": FURTHER | {"shadow": True}}, "price.shadow: unknown input 'shadow'"),
        ({"price": FURTHER | {"maxRows": 0}}, "price.maxRows: given 0"),
        ({"price": FURTHER | {"batching": 1}}, "price.batching: given 1"),
    ],
)
def test_the_component_refuses_what_is_no_further_model(models: Any, words: str) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        InferenceServiceHandler().check(INPUTS | {"models": models}, {})
    assert words in str(caught.value)


def test_the_server_is_told_of_further_models(tmp_path: Path) -> None:
    queue = {"batching": True, "priorities": True}
    models: Any = {"price": FURTHER | {"maxRows": 7}, "wide": FURTHER | queue}
    inputs = InferenceServiceHandler().check(INPUTS | {"models": models}, {})
    assert fields.KIND_NAMES["maps"] == "a map from names to maps"
    service = ServiceFiles(tmp_path / "churn")
    told = configuration(Context("service"), service, inputs, Site(tmp_path))
    usual = {"alias": "production", "batching": False, "priorities": False, "drift": True}
    assert told["models"] == {
        "price": FURTHER | usual | {"max_rows": 7}, "wide": FURTHER | usual | queue,
    }  # fmt: skip


# -- the command ------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    auth = {"issuer": "i", "audience": "a"}
    tls = {"certificate": str(tmp_path / "server.crt")}
    return make_registry(
        tmp_path, monkeypatch, models={"price": FURTHER}, auth=auth, tls=tls, host="127.0.0.1",
        port=8443, logs=str(tmp_path / "logs"),
    )  # fmt: skip


def test_a_token_may_be_for_one_model(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    KeyRing.open(store.root.parent / "keyring")
    assert command.main(["token", "--scope", "predict:price", "--scope", "observe"]) == 0
    header = capfd.readouterr().out.strip()
    claims = jwt.decode(header.split()[-1], options={"verify_signature": False})
    assert claims["scope"] == "predict:price observe"


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("predict:ghost", "no model ghost is served; served: digits, price"),
        ("admin:price", "given 'admin:price'; allowed: predict, urgent, observe"),
        ("read", "given 'read'; allowed: predict, urgent, observe"),
        ("predict:", "given 'predict:'"),
    ],
)
def test_a_token_for_what_is_not_there_is_refused(
    store: Store, capfd: pytest.CaptureFixture[str], scope: str, words: str
) -> None:
    assert command.main(["token", "--scope", scope]) == 2
    assert words in capfd.readouterr().err


@pytest.mark.parametrize("version", [2, None])
def test_the_status_tells_of_further_models(
    store: Store, capfd: pytest.CaptureFixture[str], version: int | None
) -> None:
    (path,) = store.root.parent.glob("service/*/service.json")
    error = None if version else "the package was changed"
    state = {
        "pid": os.getpid(), "status": "serving", "version": 2,
        "models": {"price": {"version": version, "error": error, "registry": "/srv/r",
                             "bytes": 2**20, "memory_bytes": 3 * 2**20}},
        "models_room_bytes": 8 * 2**20,
    }  # fmt: skip
    Path(json.loads(path.read_text())["state"]).write_text(json.dumps(state))
    assert command.main(["status"]) == (0 if version else 1)
    (line,) = [each for each in capfd.readouterr().out.splitlines() if "model price" in each]
    held = "about 3.0 MiB of each worker, where further models may take 8.0 MiB"
    words = ("version 2", held) if version else ("unavailable", str(error))
    assert all(each in line for each in words)


def test_a_token_may_be_for_one_named_model_alone(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    KeyRing.open(store.root.parent / "keyring")
    for words, scope in (
        ([], "predict:price"),
        (["--scope", "observe", "--scope", "predict:price"], "observe:price predict:price"),
    ):
        assert command.main(["token", "--model", "price", *words]) == 0
        header = capfd.readouterr().out.strip()
        claims = jwt.decode(header.split()[-1], options={"verify_signature": False})
        assert claims["scope"] == scope


WRONG = "--model: given 'ghost'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["token", "--model", "ghost"], f"{WRONG}, which the server hasn't; allowed: digits, pr"),
        (["demo", "--model", "ghost"], WRONG),
        (["rollback", "--model", "ghost"], WRONG),
        (["open", "--model", "ghost", "--no-browser"], WRONG),
        (["publish", "registry.example.ae/x", "--model", "ghost"], WRONG),
        (["predict", "rows.csv", "--model", "ghost"], "nor the stack's registry has; allowed: d"),
        (["predict", "rows.csv", "--model", ""], "given ''"),
        (["token", "--model", "price", "--scope", "admin"], "it is for all models always"),
        (["token", "--model", "price", "--scope", "predict:digits"], "another model than --model"),
        (["token", "--model", "price", "--scope", "read"], "allowed: predict, urgent, observe"),
        (["demo", "--model", "price"], "no stack of this project has its data"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("store")
def test_who_names_a_model_that_is_not_there_is_told_which_are(
    capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert command.main(words) == 2
    assert said in capfd.readouterr().err


def test_a_further_model_is_rolled_back_in_its_own_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ring = KeyRing.create(tmp_path / "other")
    other = Store(tmp_path / "others", ring)
    further = {"registry": str(other.root), "keyring": str(ring.path), "alias": "best"}
    store = make_registry(tmp_path, monkeypatch, models={"price": further})
    for run in ("one", "two"):
        content = models.table()
        made = other.publish("price", {"model.onnx": content}, models.fields(content, run), ring)
        other.promote("price", made.version, "best")
    assert command.main(["rollback", "--model", "price"]) == 0
    assert other.aliases("price")["best"].version == 1
    assert aliases_of(store) == {"production": 2}
    assert command.main(["rollback", "--model", "price"]) == 2
    assert "no earlier one to go back to" in capfd.readouterr().err
    assert command.main(["rollback", "--model", "digits"]) == 0
    assert aliases_of(store) == {"production": 1}

    # Its rows are predicted by its keys, and sealed with those of the stack.
    rows = tmp_path / "rows.csv"
    rows.write_text("age,city\n5,x\n")
    assert command.main(["predict", str(rows), "--model", "price:2"]) == 0
    capfd.readouterr()
    (sealed,) = (store.root.parent / "batches").glob("*.sealed")
    assert command.main(["unseal", str(sealed)]) == 0
    assert capfd.readouterr().out == "row,score,label\n1,5.0,x\n"


def test_held_out_rows_are_those_of_the_stack_that_made_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path))
    here = StackFile("local", Project.find(None))
    maker = next(here.sibling(name) for name in here.project.stack_names if name != here.name)
    further = {"registry": str(maker.site / "registry"), "keyring": str(maker.site / "keyring")}
    make_registry(tmp_path, monkeypatch, models={"price": further})
    asked: list[list[str]] = []
    monkeypatch.setattr(service, "_dataset", lambda stack: stack.site / "dataset")
    monkeypatch.setattr(service, "run_workload", lambda words: asked.append(list(words)) or 0)
    assert command.main(["demo", "--model", "price"]) == 0
    (words,) = asked
    given = dict(zip(words[1::2], words[2::2], strict=True))
    assert given["--model"] == "price"
    assert given["--dataset"] == str(maker.site / "dataset")
    assert given["--dataset-keyring"] == further["keyring"]
    # Its token is by the keys of the stack that serves.
    assert given["--keyring"] == str(here.site / "keyring")


@pytest.mark.usefixtures("store")
def test_a_shell_completes_names_of_models() -> None:
    context = click.Context(click.Command("token"))
    for incomplete, names in (("", ["digits", "price"]), ("p", ["price"]), ("x", [])):
        found = models_here(context, click.Option(["--model"]), incomplete)
        assert [each.value for each in found] == names
    context.params["stack"] = "ghost"
    assert models_here(context, click.Option(["--model"]), "") == []
