"""The server of a pack: what its messages may be like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from falaj.policies.state import DEEPEST

PROGRAM = """
import sys
from google.protobuf import struct_pb2
from falaj.policies.model import PolicyError
from falaj.policies.server.analyzer import properties_of

value = {"region": "eu-west-1"}
for _ in range(int(sys.argv[1])):
    value = {"a": value}
sent = struct_pb2.Struct()
sent.update(value)
try:
    found = properties_of(struct_pb2.Struct.FromString(sent.SerializeToString()))
except PolicyError as error:
    print(error)
else:
    while "a" in found:
        found = found["a"]
    print(found)
"""


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        (10, "{'region': 'eu-west-1'}"),
        # A schema with the template of a pod in it; 33 were too many once.
        (60, "{'region': 'eu-west-1'}"),
        (DEEPEST - 2, "{'region': 'eu-west-1'}"),
        (DEEPEST + 1, f"properties are nested deeper than {DEEPEST} levels"),
    ],
)
def test_deep_properties_are_seen_or_refused(levels: int, said: str) -> None:
    # A process of its own: the permission holds for a whole one.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(levels)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(said)
