"""The engine's protocol, as the SDK has its messages and services, without the SDK around them.

``from falaj.wire.protocol import provider_pb2`` gives ``pulumi.runtime.proto.provider_pb2``, where
nothing else of the SDK is needed. To import a module of a package runs the package first, and the
SDK's takes a quarter of a second: as much as all else that a language host, a provider or a pack
loads before it answers. What that does for messages, this does: they may be nested as deep as the
engine's are.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pulumi.runtime.proto import (
        analyzer_pb2,
        analyzer_pb2_grpc,
        engine_pb2,
        engine_pb2_grpc,
        events_pb2_grpc,
        language_pb2,
        language_pb2_grpc,
        plugin_pb2,
        provider_pb2,
        provider_pb2_grpc,
        resource_pb2,
        resource_pb2_grpc,
        status_pb2,
    )

__all__ = [
    "MESSAGE_OPTIONS",
    "analyzer_pb2",
    "analyzer_pb2_grpc",
    "engine_pb2",
    "engine_pb2_grpc",
    "events_pb2_grpc",
    "language_pb2",
    "language_pb2_grpc",
    "plugin_pb2",
    "provider_pb2",
    "provider_pb2_grpc",
    "resource_pb2",
    "resource_pb2_grpc",
    "status_pb2",
]

#: The engine sends whole stacks in one message, of up to 400 MiB (pulumi/pulumi v3.255.0,
#: sdk/go/common/util/rpcutil/serve.go).
_MESSAGE_LIMIT: Final = 400 << 20
#: The options of whoever talks with the engine, server or client.
MESSAGE_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MESSAGE_LIMIT),
    ("grpc.max_send_message_length", _MESSAGE_LIMIT),
)

_OF_THE_SDK: Final = "pulumi.runtime.proto"
_ALONE: Final = f"{__name__}.sdk"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{_package()}.{name}")


def _package() -> str:
    """The package that the modules are taken from: the SDK's own where it was loaded already.

    Where it is loaded later, there are two modules with the same messages: the protocol's library
    keeps one class for each message, whoever describes it.
    """
    if _OF_THE_SDK in sys.modules:
        return _OF_THE_SDK
    if _ALONE not in sys.modules:
        found = importlib.util.find_spec("pulumi")
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError("No module named 'pulumi'", name="pulumi")
        package = ModuleType(_ALONE)
        top = Path(found.submodule_search_locations[0])
        package.__path__ = [str(top.joinpath(*_OF_THE_SDK.split(".")[1:]))]
        sys.modules[_ALONE] = package
    return _ALONE


def _allow_deep_messages() -> None:
    """Let messages be read that are nested deeper than the 100 levels Python allows by default.

    Each level of a property takes three of a message, so that the schema of a custom resource
    definition with a pod's template in it could not be read. The SDK does the same as it is loaded
    (pulumi/pulumi, sdk/python/lib/pulumi/runtime/rpc.py).
    """
    try:
        from google._upb import _message  # noqa: PLC0415 # pyright: ignore
    except ImportError:  # another implementation, without that limit
        return
    _message.SetAllowOversizeProtos(True)  # pyright: ignore


_allow_deep_messages()
