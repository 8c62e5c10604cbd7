"""What stands in for the packages that make values: the form that was asked for, in each run."""

from __future__ import annotations

import base64
import importlib.util
import re
import string
from typing import Any

import pytest

from falaj.engine.errors import EngineError
from falaj.sandbox import models
from falaj.sandbox.schema import Package
from falaj.sandbox.sdks import UTILITIES
from falaj.sandbox.store import Store

URN = "urn:pulumi:dev::shop::random:index/x:X::one"


def made(token: str, **inputs: Any) -> tuple[str, Any]:
    model = models.load(token.split(":", maxsplit=1)[0])
    id = model.identity(token, "one", inputs, {}, URN) or "one-0123456789abcdef0"
    assert id == (model.identity(token, "one", inputs, {}, URN) or id)
    outputs = model.outputs(token, id, inputs, {}, Store(":memory:"))
    assert outputs == model.outputs(token, id, inputs, {}, Store(":memory:"))
    return id, outputs


def random(kind: str, **inputs: Any) -> tuple[str, Any]:
    return made(f"random:index/random{kind}:Random{kind}", **inputs)


def test_texts_have_the_characters_that_are_asked_for() -> None:
    id, outputs = random("String", length=8, special=False, upper=False)
    assert re.fullmatch("[a-z0-9]{8}", id)
    assert outputs["result"] == id
    assert outputs["lower"] is True
    _, outputs = random("Password", length=16, overrideSpecial="_", minNumeric=3)
    assert len(outputs["result"]) == 16
    for each in (string.ascii_lowercase, string.ascii_uppercase, "_"):
        assert set(outputs["result"]) & set(each)
    assert sum(one.isdigit() for one in outputs["result"]) >= 3
    assert random("String", length=3, special=True)[1]["result"] != ""


@pytest.mark.parametrize(("kind", "version"), [("Uuid", "4"), ("Uuid4", "4"), ("Uuid7", "7")])
def test_uuids_are_uuids(kind: str, version: str) -> None:
    id, outputs = random(kind)
    assert outputs["result"] == id
    assert re.fullmatch(rf"[0-9a-f]{{8}}-[0-9a-f]{{4}}-{version}[0-9a-f]{{3}}-[89ab].{{16}}", id)


def test_numbers_lists_bytes_and_names() -> None:
    assert 3 <= random("Integer", min=3, max=9)[1]["result"] <= 9
    shuffled = random("Shuffle", inputs=["a", "b", "c"], resultCount=2)[1]["results"]
    assert len(set(shuffled)) == 2
    assert set(shuffled) < {"a", "b", "c"}
    assert random("Shuffle", inputs=[], resultCount=2)[1]["results"] == []
    id, outputs = random("Id", byteLength=4, prefix="p-")
    assert outputs["hex"].startswith("p-")
    assert base64.urlsafe_b64decode(id + "==").hex() == outputs["hex"].removeprefix("p-")
    assert len(base64.b64decode(random("Bytes", length=5)[1]["base64"])) == 5
    assert random("Pet", length=2, prefix="a")[0].startswith("a-sandbox-")


@pytest.mark.parametrize(("algorithm", "form"), [("RSA", "ssh-rsa"), ("ED25519", "ssh-ed25519")])
def test_keys_have_a_public_form_and_open_nothing(algorithm: str, form: str) -> None:
    _, outputs = made("tls:index/privateKey:PrivateKey", algorithm=algorithm)
    name, text = outputs["publicKeyOpenssh"].split()
    assert name == form
    assert base64.b64decode(text)[4:].startswith(form.encode())
    assert "none: made by the sandbox" in outputs["privateKeyPem"]


def test_another_wish_is_another_value() -> None:
    assert {"keepers", "length"} <= models.load("random").replacements("random:index/x:X")


@pytest.mark.parametrize("name", UTILITIES)
def test_who_lacks_the_sdk_is_told_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EngineError, match=f"pip install pulumi_{name}"):
        Package(name)
