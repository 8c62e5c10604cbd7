"""The protocol's messages without the SDK around them."""

from __future__ import annotations

import subprocess
import sys

import pytest

ALONE = """
import sys
from falaj.wire.protocol import provider_pb2 as alone
assert "pulumi" not in sys.modules
from pulumi.runtime import proto
from falaj.wire.protocol import provider_pb2 as beside
print(alone.CreateRequest is proto.CreateRequest, beside.CreateRequest is proto.CreateRequest)
"""


DEEP = """
import sys
from google.protobuf import struct_pb2
from falaj.wire import protocol
value = struct_pb2.Value(string_value="leaf")
for _ in range(300):
    value = struct_pb2.Value(struct_value=struct_pb2.Struct(fields={"properties": value}))
wanted = protocol.provider_pb2.CreateRequest(properties=value.struct_value).SerializeToString()
read = protocol.provider_pb2.CreateRequest.FromString(wanted)
assert "pulumi" not in sys.modules
print(read.SerializeToString() == wanted)
"""


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_messages_are_the_sdks_own_whoever_loads_them_first() -> None:
    assert run(ALONE) == "True True"


def test_messages_are_as_deep_as_the_engines() -> None:
    """Such as the schema of a custom resource definition that has a pod's template in it."""
    assert run(DEEP) == "True"


@pytest.mark.parametrize(
    "module",
    [
        "falaj.engine.languagehost.__main__",
        "falaj.sandbox.serving",
        "falaj.policies.server.serving",
        "falaj.components.local.provider.__main__",
    ],
)
def test_what_only_answers_the_engine_loads_no_sdk(module: str) -> None:
    assert run(f"import sys, {module}\nprint('pulumi' in sys.modules)") == "False"


def test_what_the_protocol_does_not_have_is_no_name_of_it() -> None:
    from falaj.wire import protocol

    with pytest.raises(AttributeError, match="no attribute 'CreateRequest'"):
        _ = protocol.CreateRequest  # pyright: ignore[reportAttributeAccessIssue]
