"""What the engine is told: failures, differences, plain messages."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime import proto
from pulumi.runtime.proto import status_pb2

from falaj.sandbox import faults, urns
from falaj.sandbox.cloud import BANNER, MARK, Cloud
from falaj.sandbox.clouds.kubernetes import KubernetesModel
from falaj.sandbox.clouds.model import CloudModel, GenericModel
from falaj.sandbox.faults import Fault
from falaj.sandbox.serving import SandboxServicer
from falaj.sandbox.store import Store
from falaj.wire import SECRET, SIGNATURE, UNKNOWN, Unknown, decode, encode

TOPIC = "aws:sns/topic:Topic"
URN = urns.make("dev", "proj", TOPIC, "t")


class Model(GenericModel):
    def is_shared(self, token: str) -> bool:
        del token
        return False

    def replacements(self, token: str) -> frozenset[str]:
        return frozenset({"fifoTopic"})


class AbortedError(Exception):
    pass


class Context:
    """What a servicer needs of gRPC's own."""

    def __init__(self) -> None:
        self.details: status_pb2.Status | None = None

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        raise AbortedError(message)

    def set_trailing_metadata(self, metadata: tuple[tuple[str, bytes], ...]) -> None:
        assert metadata[0][0] == "grpc-status-details-bin"
        self.details = status_pb2.Status.FromString(metadata[0][1])


class Engine:
    """Calls the servicer as the engine does."""

    def __init__(self, model: CloudModel | None = None) -> None:
        self.warnings: list[str] = []
        self.cloud = Cloud(model or Model("aws"), Store(":memory:"))
        self.servicer = SandboxServicer(self.cloud, self.warnings.append)
        self.context = Context()

    def __getattr__(self, method: str) -> Any:
        call = getattr(self.servicer, method)
        return lambda request: asyncio.run(call(request, self.context))

    def make(self, **inputs: Any) -> proto.CreateResponse:
        request = proto.CreateRequest(urn=URN, properties=encode(inputs))
        return self.Create(request)


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_wrong_inputs_are_failures_with_paths(engine: Engine) -> None:
    news = encode({"tags": {"a": 1}, "nam": "x"})
    found = engine.Check(proto.CheckRequest(urn=URN, news=news))
    assert [failure.property for failure in found.failures] == ["nam", "tags.a"]


@pytest.mark.parametrize("name", ["accessKey", "secretKey", "token"])
def test_real_credentials_in_settings_are_refused(engine: Engine, name: str) -> None:
    settings = encode({"region": "me-central-1", name: UNKNOWN})
    found = engine.CheckConfig(proto.CheckRequest(news=settings))
    assert [failure.property for failure in found.failures] == [name]
    assert "real credentials were given to the sandbox" in found.failures[0].reason


def test_settings_come_as_texts(engine: Engine) -> None:
    good = encode({"region": "r", "maxRetries": "3", "defaultTags": '{"tags": {"a": "b"}}'})
    assert not engine.CheckConfig(proto.CheckRequest(news=good)).failures
    engine.Configure(proto.ConfigureRequest(args=good))
    assert engine.cloud.config["defaultTags"] == {"tags": {"a": "b"}}
    bad = encode({"maxRetries": "many", "defaultTags": "{", "version": "7.0.0"})
    found = engine.CheckConfig(proto.CheckRequest(news=bad))
    assert [failure.property for failure in found.failures] == ["defaultTags", "maxRetries"]


def test_sandbox_is_announced_once_by_each_process(engine: Engine) -> None:
    for _ in range(2):
        response = engine.Configure(proto.ConfigureRequest(args=encode({})))
    assert engine.warnings == [BANNER]
    assert response.acceptSecrets
    assert not response.acceptOutputs


def test_secrets_stay_secret(engine: Engine) -> None:
    inputs = encode({"displayName": "hush", "name": "n"}, frozenset({"displayName"}))
    request = proto.CreateRequest(urn=URN, properties=inputs)
    found = engine.Create(request)
    marked = found.properties.fields["displayName"].struct_value.fields[SIGNATURE]
    assert marked.string_value == SECRET
    state = proto.ReadRequest(urn=URN, id=found.id, properties=found.properties, inputs=inputs)
    read = engine.Read(state)
    assert decode(read.inputs)[1] == decode(read.properties)[1] == {"displayName"}


def test_preview_makes_nothing(engine: Engine) -> None:
    request = proto.CreateRequest(urn=URN, properties=encode({"name": "n"}), preview=True)
    outputs = decode(engine.Create(request).properties)[0]
    assert outputs["name"] == "n"
    assert isinstance(outputs["arn"], Unknown)
    assert engine.cloud.store.all() == []


def test_difference_says_what_replaces(engine: Engine) -> None:
    made = engine.make(name="n", tags={"a": "b"})
    new = encode({"name": "n", "tags": {"a": "c"}, "fifoTopic": True, "policy": UNKNOWN})
    old = encode({"name": "n", "tags": {"a": "b"}})
    request = proto.DiffRequest(
        urn=URN, id=made.id, olds=made.properties, old_inputs=old, news=new
    )
    found = engine.Diff(request)
    kinds = {path: each.kind for path, each in found.detailedDiff.items()}
    assert kinds == {
        "tags.a": proto.PropertyDiff.UPDATE,
        "fifoTopic": proto.PropertyDiff.ADD_REPLACE,
        "policy": proto.PropertyDiff.ADD,
    }
    assert (list(found.diffs), list(found.replaces)) == (
        ["fifoTopic", "policy", "tags"],
        ["fifoTopic"],
    )
    request.ignoreChanges.extend(["tags", "fifoTopic", "policy"])
    assert engine.Diff(request).changes == proto.DiffResponse.DIFF_NONE


def test_foreign_state_is_refused_in_a_diff(engine: Engine) -> None:
    request = proto.DiffRequest(urn=URN, id="arn:real", olds=encode({"name": "n"}))
    with pytest.raises(AbortedError, match="was not made in the sandbox"):
        engine.Diff(request)


def test_what_is_gone_and_what_never_was_have_no_id(engine: Engine) -> None:
    gone = proto.ReadRequest(urn=URN, id="x", properties=encode({MARK: "x"}))
    assert engine.Read(gone).id == ""
    assert engine.Read(proto.ReadRequest(urn=URN, id="x")).id == ""


def test_creation_that_times_out_tells_the_engine_what_exists(engine: Engine) -> None:
    faults.add(engine.cloud.store, Fault("create", timeout=True))
    with pytest.raises(AbortedError, match="timed out because the sandbox was told so"):
        engine.make(name="n")
    assert engine.context.details is not None
    detail = proto.ErrorResourceInitFailed()
    assert engine.context.details.details[0].Unpack(detail)
    assert detail.id == engine.cloud.store.all()[0].id
    assert decode(detail.properties)[0]["name"] == "n"


def test_secret_that_exists_in_part_stays_secret() -> None:
    engine = Engine(KubernetesModel())
    faults.add(engine.cloud.store, Fault("create", timeout=True))
    plain = encode({"metadata": {"name": "s", "namespace": "n"}, "data": {"p": "aHVudGVyMg=="}})
    urn = urns.make("dev", "proj", "kubernetes:core/v1:Secret", "s")
    with pytest.raises(AbortedError, match="timed out because the sandbox was told so"):
        engine.Create(proto.CreateRequest(urn=urn, properties=plain))
    assert engine.context.details is not None
    detail = proto.ErrorResourceInitFailed()
    assert engine.context.details.details[0].Unpack(detail)
    assert "data" in decode(detail.properties)[1]


def test_query_that_is_not_known_is_a_failure(engine: Engine) -> None:
    found = engine.Invoke(proto.InvokeRequest(tok="aws:index/getRegion:getRegion"))
    assert "doesn't know the query" in found.failures[0].reason


def test_components_that_the_sandbox_does_not_know_are_refused(engine: Engine) -> None:
    request = proto.ConstructRequest(type="kubernetes:kustomize/v2:Directory")
    with pytest.raises(AbortedError, match=r"v2:Directory is a component that runs"):
        engine.Construct(request)


def test_internal_error_is_told_without_a_trace(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cloud, "check", lambda *_: 1 / 0)
    with pytest.raises(AbortedError) as caught:
        engine.Check(proto.CheckRequest(urn=URN))
    assert "internal error of the sandbox: ZeroDivisionError" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_text_that_is_no_urn_is_refused(engine: Engine) -> None:
    with pytest.raises(AbortedError, match="'nonsense' is no URN"):
        engine.Check(proto.CheckRequest(urn="nonsense"))


def test_plugin_has_the_version_of_the_sdk(engine: Engine) -> None:
    assert engine.GetPluginInfo(empty_pb2.Empty()).version == engine.cloud.tables.package.version
    assert '"name": "aws"' in engine.GetSchema(proto.GetSchemaRequest()).schema
    assert engine.Handshake(proto.ProviderHandshakeRequest()).accept_secrets
    assert engine.Cancel(empty_pb2.Empty()) == empty_pb2.Empty()
