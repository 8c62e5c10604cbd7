"""What components register, as the engine gets it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pulumi.runtime import mocks as sdk
from pulumi.runtime.mocks import MockMonitor

from tests.loops import own_loop


class _Answers(sdk.Mocks):
    def new_resource(self, args: sdk.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: sdk.MockCallArgs) -> tuple[dict[Any, Any], None]:
        return dict(args.args), None


@contextmanager
def recorded() -> Generator[list[Any]]:
    """Requests to register that the SDK sends meanwhile, in their order."""
    requests: list[Any] = []
    register = MockMonitor.RegisterResource

    def recording(self: MockMonitor, request: Any) -> Any:
        requests.append(request)
        return register(self, request)

    MockMonitor.RegisterResource = recording
    try:
        with own_loop():
            sdk.set_mocks(_Answers(), "falaj", "dev")
            yield requests
    finally:
        MockMonitor.RegisterResource = register
