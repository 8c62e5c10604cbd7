"""The settings of the repair: what is refused, and with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import REFUSED, WorkloadError
from falaj.workloads.repair.command import main
from falaj.workloads.repair.settings import parse_settings
from tests.workloads.repair.parts import GIVEN, settings

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"domain": None}, "domain: it is missing"),
    ({"domain": "repair.falaj.io/"}, "domain: given 'repair.falaj.io/'"),
    ({"taint": ""}, "taint: given ''"),
    ({"watched": []}, "watched: no label is named"),
    ({"watched": ["a b"]}, "watched[0]: given 'a b'"),
    ({"conditions": ["GPUMissing"]}, "TYPE=True or TYPE=False, such as GPUMissing=True"),
    ({"conditions": ["GPUMissing=Unknown"]}, "conditions[0]: given 'GPUMissing=Unknown'"),
    ({"conditions": "GPUMissing=True"}, "conditions: given 'GPUMissing=True'; allowed: a list"),
    ({"taints": [7]}, "taints[0]: given 7"),
    ({"xids": {"79": "hammer"}}, "allowed: numbers of errors, each with one of"),
    ({"xids": {"x": "reset"}}, "allowed: numbers of errors"),
    ({"exporters": {"namespace": "a"}}, "namespace, label (key=value) and port"),
    ({"exporters": {"namespace": "a", "label": "b", "port": 1}}, "label (key=value)"),
    ({"exporters": {"namespace": "a", "label": "b=c", "port": 0}}, "port (1 to 65,535)"),
    ({"most_out": 0}, "allowed: 1 to 5,000, or 1 to 100 with % behind it"),
    ({"most_out": "0%"}, "most_out: given '0%'"),
    ({"most_out": "101%"}, "most_out: given '101%'"),
    ({"most_out": 1.5}, "most_out: given 1.5"),
    ({"most_out": True}, "most_out: given True"),
    ({"sick_minutes": -1}, "sick_minutes: given -1; allowed: 0 to 1,440"),
    ({"drain_minutes": "60"}, "drain_minutes: given '60'; allowed: 0 to 10,080"),
    ({"pass_seconds": 0}, "pass_seconds: given 0; allowed: 1 to 300"),
    ({"lease_seconds": 2}, "lease_seconds: given 2; allowed: 3 to 300"),
    ({"dry_run": "no"}, "dry_run: given 'no'; allowed: true or false"),
    ({"drain_minuts": 5}, "drain_minuts: there is no such setting; allowed: one of conditions,"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        settings(**changes)
    assert said in str(refused.value)


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(WorkloadError) as refused:
        settings(most_out=0, dry_run="no")
    assert "most_out" in str(refused.value)
    assert "dry_run" in str(refused.value)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([*GIVEN, "most_out", "exporters", "x"]), inner, max_size=6),
    max_leaves=12,
))  # fmt: skip
def test_whatever_is_given_is_read_or_refused(given_: object) -> None:
    for value in (given_, {**GIVEN, **given_} if isinstance(given_, dict) else [given_]):
        try:
            parse_settings(value)
        except WorkloadError as error:
            assert "allowed" in str(error)


@pytest.mark.parametrize(
    ("most_out", "nodes", "limit"),
    [(3, 4, 3), ("10%", 4, 1), ("10%", 100, 10), ("25%", 7, 1), ("100%", 5, 5), ("10%", 0, 1)],
)
def test_how_many_may_be_out(most_out: object, nodes: int, limit: int) -> None:
    assert settings(most_out=most_out).limit(nodes) == limit


def test_the_command_says_what_is_wrong_without_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.json"
    assert main([f"--settings={file}"]) == REFUSED
    assert "there is no file" in capsys.readouterr().err
    file.write_text("{")
    assert main([f"--settings={file}"]) == REFUSED
    assert "isn't valid JSON" in capsys.readouterr().err
    file.write_text(json.dumps(GIVEN))
    assert main([f"--settings={file}", "--check"]) == 0
    assert main([f"--settings={file}"]) == REFUSED
    assert "--holder is missing" in capsys.readouterr().err
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main([f"--settings={file}", "--holder=a"]) == REFUSED
    assert "KUBERNETES_SERVICE_HOST" in capsys.readouterr().err
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    assert main([f"--settings={file}", "--holder=a", f"--account={tmp_path}"]) == REFUSED
    assert "ca.crt" in capsys.readouterr().err
    (tmp_path / "ca.crt").write_text("no")
    (tmp_path / "token").write_text("t")
    assert main([f"--settings={file}", "--holder=a", f"--account={tmp_path}"]) == REFUSED
    assert "is no certificate in PEM form" in capsys.readouterr().err
    assert main([f"--settings={file}", "--holder=a", "--listen=8080"]) == REFUSED
    assert "address:port" in capsys.readouterr().err
