"""`service.json`: what is refused, and how it is said."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference import configuration, settings
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.process import channel

GOOD: dict[str, Any] = {
    "format": "falaj.service/1",
    "name": "digits",
    "port": 8443,
    "registry": "/r",
    "model": "digits",
    "keyring": "/k",
    "tls": {"certificate": "/c", "private_key": "/p"},
    "auth": {"issuer": "i", "audience": "a", "jwks": "/j"},
    "logs": "/l",
    "state": "/s",
}
PATH = Path("service.json")


def parse(document: Any) -> settings.Settings:
    return settings.parse(PATH, json.dumps(document).encode())


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "the whole file: got [], allowed is an object"),
        (GOOD | {"format": "falaj.service/2"}, 'allowed is "falaj.service/1"'),
        (GOOD | {"colour": 1}, "colour is not a known key"),
        (GOOD | {"port": "8443"}, 'port: got "8443", allowed is a whole number from 0 to 65535'),
        (GOOD | {"port": 65536}, "port: got 65536"),
        (GOOD | {"port": True}, "port: got true"),
        (GOOD | {"workers": 0}, "workers: got 0"),
        (GOOD | {"name": ""}, 'name: got ""'),
        (GOOD | {"tls": {}}, "tls.certificate is missing"),
        (GOOD | {"tls": []}, "tls: got []"),
        (GOOD | {"tls": GOOD["tls"] | {"x": 1}}, "tls.x is not a known key"),
        (GOOD | {"tls": GOOD["tls"] | {"client_ca": 3}}, "tls.client_ca: got 3"),
        (GOOD | {"auth": GOOD["auth"] | {"clients": {"a": "predict"}}}, "auth.clients.a"),
        (
            GOOD | {"auth": GOOD["auth"] | {"clients": {"a": ["root"]}}},
            "predict, urgent, observe, feedback, admin",
        ),
        (GOOD | {"drift": {"enabled": "yes"}}, "drift.enabled"),
        (GOOD | {"drift": {"window_rows": 199}}, "drift.window_rows"),
        (GOOD | {"drift": {"window_rows": 300.5}}, "drift.window_rows"),
        (GOOD | {"drift": {"window_seconds": 0}}, "drift.window_seconds"),
        (GOOD | {"drift": {"alpha": 0.5}}, "drift.alpha"),
        (GOOD | {"drift": {"window": 1}}, "drift.window is not a known key"),
        (GOOD | {"batching": "yes"}, 'batching: got "yes", allowed is true or false'),
        (GOOD | {"batching": {}}, "batching: got {}, allowed is true or false"),
        (
            GOOD | {"batching": True, "upstream": {"url": "http://127.0.0.1:8000"}},
            "batching is for a server that runs the model itself",
        ),
        (GOOD | {"jobs": True}, "jobs: got true, allowed is an object"),
        (GOOD | {"jobs": {"keep_hours": 0}}, "jobs.keep_hours: got 0"),
        (GOOD | {"jobs": {"keep_hours": 721}}, "jobs.keep_hours: got 721"),
        (GOOD | {"jobs": {"keep_hours": 1.5}}, "jobs.keep_hours: got 1.5"),
        (GOOD | {"jobs": {"most_jobs": 2**80}}, "jobs.most_jobs"),
        (GOOD | {"jobs": {"most_bytes": "1"}}, 'jobs.most_bytes: got "1"'),
        (GOOD | {"jobs": {"keep_days": 1}}, "jobs.keep_days is not a known key"),
        (GOOD | {"limits": {"max_rows": 0}}, "limits.max_rows: got 0"),
        (GOOD | {"limits": {"max_tokens": 0}}, "limits.max_tokens: got 0"),
        (GOOD | {"limits": {"max_tokens": 100_001}}, "limits.max_tokens: got 100001"),
        (GOOD | {"limits": {"drain_seconds": -1}}, "limits.drain_seconds: got -1"),
        (GOOD | {"limits": {"drain_seconds": "1"}}, 'limits.drain_seconds: got "1"'),
        (
            GOOD | {"limits": {"max_body_bytes": 255 * 2**20 + 1}},
            "limits.max_body_bytes: got 267386881, allowed is a whole number from 1,024 to "
            "267,386,880 where gRPC is answered; make it smaller, or set grpc to false",
        ),
        (GOOD | {"limits": {"max_rwos": 1}}, "limits.max_rwos is not a known key; allowed here"),
        *[(without(key), f"{key} is missing") for key in GOOD],
    ],
)
def test_bad_settings_are_refused(document: Any, words: str) -> None:
    with pytest.raises(InferenceError) as caught:
        parse(document)
    assert words in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="can't read"):
        settings.read(tmp_path / "none.json")
    with pytest.raises(InferenceError, match="is not JSON"):
        settings.parse(PATH, b"{")


@pytest.mark.parametrize(
    "doubled",
    [
        b'{"port": 8443, "port": 8444}',
        b'{"tls": {"certificate": "/a", "certificate": "/b"}}',
        b'{"port": 8443, "\\u0070ort": 8444}',
    ],
)
def test_a_key_that_stands_twice_is_refused_rather_than_one_of_both_dropped(
    doubled: bytes,
) -> None:
    with pytest.raises(InferenceError, match="stands twice in one object; allowed is once"):
        settings.parse(PATH, doubled)


@pytest.mark.parametrize("constant", [b"NaN", b"-Infinity"])
def test_what_json_has_no_number_for_is_refused(constant: bytes) -> None:
    with pytest.raises(InferenceError, match="is not JSON"):
        settings.parse(PATH, b'{"drift": {"alpha": ' + constant + b"}}")


def test_defaults() -> None:
    found = parse(GOOD)
    assert (found.host, found.workers, found.threads) == ("127.0.0.1", 1, 1)
    assert found.alias == "production"
    assert found.limits == settings.Limits()
    assert found.tls.client_ca is None
    assert found.auth.clients == {}
    assert found.jobs is None
    assert parse(GOOD | {"jobs": None}).jobs is None
    assert parse(GOOD | {"jobs": {}}).jobs == settings.JobSettings(24, 1_000, 2**30)


@pytest.mark.parametrize(("grpc", "most"), [(True, 255 * 2**20), (False, 2**30)])
def test_the_largest_body_is_one_that_the_protocols_take(grpc: bool, most: int) -> None:
    found = parse(GOOD | {"grpc": grpc, "limits": {"max_body_bytes": most}})
    assert found.limits.max_body_bytes == most
    assert not grpc or most < channel.MAX_PAYLOAD


def test_two_states_of_one_folder_have_jobs_of_their_own() -> None:
    places = {parse(GOOD | {"state": state}).jobs_folder for state in ("/s/a.json", "/s/b.json")}
    assert places == {Path("/s/a.jobs"), Path("/s/b.jobs")}


def configured(*more: str) -> argparse.Namespace:
    """Options of ``configure``."""
    parser = argparse.ArgumentParser()
    configuration.add_options(parser)
    needed = ("config", "registry", "keyring", "certificate", "private-key", "jwks", "logs",
              "state", "name", "model", "issuer", "audience")  # fmt: skip
    return parser.parse_args(
        [*(f"--{each}=/x" for each in needed), "--port=1", "--workers=1", *more]
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], None),
        (["--jobs"], {"keep_hours": 24, "most_jobs": 1_000, "most_bytes": 2**30}),
        (["--jobs", "--jobs-keep-hours=2", "--jobs-most=7", "--jobs-most-bytes=1048576"],
         {"keep_hours": 2, "most_jobs": 7, "most_bytes": 2**20}),
    ],
)  # fmt: skip
def test_jobs_by_the_command(more: list[str], expected: dict[str, int] | None) -> None:
    assert configuration.document(configured(*more)).get("jobs") == expected


@pytest.mark.parametrize("more", ["--jobs-most=7", "--jobs-keep-hours=24", "--jobs-most-bytes=0"])
def test_what_is_said_of_jobs_that_are_not_taken_is_refused(more: str) -> None:
    option = more.partition("=")[0]
    with pytest.raises(InferenceError) as caught:
        configuration.document(configured(more))
    assert f"{option} is for jobs, which aren't taken: give --jobs, or leave it out" in str(
        caught.value
    )


def test_batching_by_the_command() -> None:
    assert configuration.document(configured("--batching"))["batching"] is True
    # What isn't asked for isn't written: the file of who leaves it off stays as it was.
    assert "batching" not in configuration.document(configured())
    assert not parse(GOOD).batching


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    ),
    st.sampled_from(sorted(GOOD)),
)
def test_nothing_but_clear_refusals(value: Any, key: str) -> None:
    try:
        parse(GOOD | {key: value})
    except InferenceError as error:
        assert key in str(error)
