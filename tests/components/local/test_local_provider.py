"""The provider over gRPC, as the engine calls it: plain errors, previews, diffs, life cycles."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime import proto

from falaj.components.local import machine
from falaj.wire.values import SECRET, SIGNATURE, UNKNOWN, decode, encode

ROOT = Path(__file__).resolve().parents[3]


def test_an_unknown_type_is_refused_without_a_trace(provider: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        provider.stub.Create(proto.CreateRequest(urn=provider.urn("Castle")))
    details = caught.value.details()
    assert "unknown resource type 'falaj-local:index:Castle'; allowed:" in details
    assert "File" not in details


def test_an_internal_error_is_one_line_and_its_trace_is_logged(provider: Any, site: Path) -> None:
    provider.stub.Configure(proto.ConfigureRequest(args=encode({"site": str(site)})))
    with pytest.raises(grpc.RpcError) as caught:
        provider.delete("Certificate", "x", {"site": 7})
    details = caught.value.details()
    assert "Traceback" not in details
    assert "line" not in details
    assert f"the details are in {site / 'provider.log'}" in details
    assert "Traceback" in (site / "provider.log").read_text()


def test_a_folder_that_cannot_be_made_is_a_plain_error(provider: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(grpc.RpcError) as caught:
        provider.create("Workspace", {"path": str(blocked)})
    assert caught.value.details() == (
        f"{blocked} is a file, but a folder is needed there; move it away"
    )


def test_a_held_port_is_refused_in_preview_and_in_create(provider: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for preview in (True, False):
            with pytest.raises(grpc.RpcError) as caught:
                provider.create(
                    "Workspace", {"path": str(tmp_path / "s"), "ports": [port]}, preview=preview
                )
            assert (
                f"port {port} on 127.0.0.1 is in use by {psutil.Process().name()} ("
                in caught.value.details()
            )
            assert "choose another port" in caught.value.details()
    assert not (tmp_path / "s").exists()


def test_where_plans_alone_are_judged_a_held_port_is_none_of_theirs(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    monkeypatch.setenv(machine.PLANS_ALONE, "1")
    provider: Any = request.getfixturevalue("own_provider")
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = {"path": str(tmp_path / "s"), "ports": [server.getsockname()[1]]}
        provider.create("Workspace", wanted, preview=True)
        with pytest.raises(grpc.RpcError):
            provider.create("Workspace", wanted)


def test_configuration_is_checked(provider: Any) -> None:
    request = proto.CheckRequest(news=encode({"site": "here", "sight": "/x"}))
    failures = {f.property: f.reason for f in provider.stub.CheckConfig(request).failures}
    assert "given 'here'; allowed: an absolute path" in failures["site"]
    assert "did you mean 'site'?" in failures["sight"]


def test_capabilities(provider: Any) -> None:
    answer = provider.stub.Configure(proto.ConfigureRequest())
    assert answer.supportsPreview
    assert answer.acceptSecrets
    assert not answer.acceptOutputs


def test_the_schema_names_every_resource(provider: Any) -> None:
    schema = provider.stub.GetSchema(proto.GetSchemaRequest()).schema
    for name in ("Workspace", "KeyRing", "Dataset", "TrainingRun", "InferenceService"):
        assert f"falaj-local:index:{name}" in schema


def test_workspace_life(provider: Any, tmp_path: Path) -> None:
    inputs = {"path": str(tmp_path / "site")}
    made, state = provider.create("Workspace", inputs, preview=True)
    assert (made, state["path"]) == ("", inputs["path"])
    assert not (tmp_path / "site").exists()
    made, state = provider.create("Workspace", inputs)
    assert stat.S_IMODE((tmp_path / "site").stat().st_mode) == 0o700
    assert provider.diff("Workspace", made, state, inputs).changes == proto.DiffResponse.DIFF_NONE
    moved = provider.diff("Workspace", made, state, {"path": str(tmp_path / "other")})
    assert list(moved.replaces) == ["path"]
    assert moved.detailedDiff["path"].kind == proto.PropertyDiff.UPDATE_REPLACE
    assert provider.read("Workspace", made, state)[0] == made
    key = tmp_path / "site" / "pki" / "x.key"
    key.parent.mkdir()
    key.write_text("secret")
    for _ in range(2):
        provider.delete("Workspace", made, state)
        assert not (tmp_path / "site").exists()
    assert provider.read("Workspace", made, state)[0] == ""


def test_a_retained_workspace_stays(provider: Any, tmp_path: Path) -> None:
    made, state = provider.create("Workspace", {"path": str(tmp_path / "site"), "retain": True})
    provider.delete("Workspace", made, state)
    assert (tmp_path / "site").is_dir()


def test_a_replaced_resource_leaves_its_successor_alone(provider: Any, site: Path) -> None:
    inputs = {"site": str(site), "commonName": "ours"}
    made, old = provider.create("CertificateAuthority", inputs)
    again, new = provider.create("CertificateAuthority", inputs)
    assert made == again
    assert old["fingerprint"] == new["fingerprint"]  # adopted, not made again
    provider.delete("CertificateAuthority", made, old)
    assert (site / "pki" / "ca.key").is_file()
    provider.delete("CertificateAuthority", made, new)
    assert not (site / "pki" / "ca.key").exists()


def test_unknown_inputs_give_unknown_outputs_in_a_preview(provider: Any) -> None:
    made, state = provider.create(
        "Certificate",
        {
            "site": UNKNOWN,
            "fileName": "server",
            "commonName": "localhost",
            "authorityFingerprint": UNKNOWN,
        },
        preview=True,
    )
    assert made == ""
    assert state["certificatePath"] is UNKNOWN
    assert state["fingerprint"] is UNKNOWN


def test_paths_are_known_in_a_preview(provider: Any, site: Path) -> None:
    _, state = provider.create("KeyRing", {"site": str(site)}, preview=True)
    assert state["path"] == str(site / "keyring")
    assert state["primary"] is UNKNOWN
    assert not (site / "keyring").exists()


def test_an_unknown_input_is_a_change(provider: Any, site: Path) -> None:
    inputs = {"site": str(site), "fileName": "a", "commonName": "a", "authorityFingerprint": "f"}
    answer = provider.diff(
        "Certificate", "id", inputs, {**inputs, "authorityFingerprint": UNKNOWN}
    )
    assert "authorityFingerprint" in answer.detailedDiff


def test_secret_inputs_stay_secret_in_the_outputs(provider: Any, site: Path) -> None:
    properties = struct_pb2.Struct()
    properties.update(
        {"site": str(site), "commonName": {SIGNATURE: SECRET, "value": "hidden"}, "days": 30}
    )
    request = proto.CheckRequest(urn=provider.urn("CertificateAuthority"), news=properties)
    checked = provider.stub.Check(request).inputs
    assert decode(checked)[1] == {"commonName"}
    answer = provider.stub.Create(
        proto.CreateRequest(urn=provider.urn("CertificateAuthority"), properties=checked)
    )
    assert decode(answer.properties)[1] == {"commonName"}


def test_ignored_changes_are_no_changes(provider: Any, site: Path) -> None:
    made, state = provider.create("CertificateAuthority", {"site": str(site)})
    checked, _ = provider.check("CertificateAuthority", {"site": str(site), "days": 7})
    answer = provider.stub.Diff(
        proto.DiffRequest(
            urn=provider.urn("CertificateAuthority"),
            id=made,
            olds=encode(state),
            news=encode(checked),
            ignoreChanges=["days"],
        )
    )
    assert answer.changes == proto.DiffResponse.DIFF_NONE


def test_a_cancelled_deployment_begins_nothing_new(own_provider: Any, site: Path) -> None:
    own_provider.stub.Cancel(empty_pb2.Empty())
    with pytest.raises(grpc.RpcError) as caught:
        own_provider.create("CertificateAuthority", {"site": str(site)})
    assert "stopped on request" in caught.value.details()
    assert not (site / "pki").exists()


def test_the_provider_leaves_quietly_on_a_signal(own_provider: Any) -> None:
    own_provider.process.send_signal(signal.SIGTERM)
    assert own_provider.process.wait(timeout=60) == 0


def test_the_provider_leaves_when_the_engine_is_gone() -> None:
    folder = ROOT / "components" / "local" / "provider"
    with socket.create_server(("127.0.0.1", 0)) as engine:
        port = engine.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, str(folder), f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        assert process.poll() is None
    assert process.wait(timeout=60) == 0
    process.stdout.close()
