"""A resource provider for tests: a Note is a line in the log that TINY_LOG names.

Its `text` can be updated, its `place` only replaced. The text "refuse" fails the creation, "wait"
blocks it until it is cancelled, "hang" blocks it for good.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import (
    CheckRequest,
    CheckResponse,
    ConfigureRequest,
    ConfigureResponse,
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    DiffRequest,
    DiffResponse,
    Provider,
    ReadRequest,
    ReadResponse,
    UpdateRequest,
    UpdateResponse,
)
from pulumi.provider.experimental.server import main


def log(event: str) -> None:
    with Path(os.environ["TINY_LOG"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": event, "pid": os.getpid(), "parent": os.getppid()}) + "\n")


class Tiny(Provider):
    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def cancel(self) -> None:
        log("cancel")
        self.cancelled.set()

    async def configure(self, request: ConfigureRequest) -> ConfigureResponse:
        return ConfigureResponse()

    async def check(self, request: CheckRequest) -> CheckResponse:
        return CheckResponse(inputs=request.new_inputs)

    async def diff(self, request: DiffRequest) -> DiffResponse:
        changed = [
            key
            for key in ("text", "place")
            if request.new_inputs.get(key) != request.old_state.get(key)
        ]
        return DiffResponse(
            changes=bool(changed),
            diffs=changed,
            replaces=[key for key in changed if key == "place"],
        )

    async def create(self, request: CreateRequest) -> CreateResponse:
        if request.preview:
            return CreateResponse(resource_id="", properties=dict(request.properties))
        text = request.properties["text"].value
        log(f"create {text}")
        if text == "refuse":
            raise RuntimeError("the note was refused")
        if text == "wait":
            await self.cancelled.wait()
            raise RuntimeError("stopped as asked")
        if text == "hang":
            await asyncio.sleep(600)
        return CreateResponse(resource_id="note-1", properties=dict(request.properties))

    async def read(self, request: ReadRequest) -> ReadResponse:
        log("read")
        properties = {**request.properties, "text": PropertyValue("drifted")}
        return ReadResponse(
            resource_id=request.resource_id, properties=properties, inputs=dict(request.inputs)
        )

    async def update(self, request: UpdateRequest) -> UpdateResponse:
        if not request.preview:
            log(f"update {request.news['text'].value}")
        return UpdateResponse(properties=dict(request.news))

    async def delete(self, request: DeleteRequest) -> None:
        log("delete")


if __name__ == "__main__":
    main(sys.argv[1:], "0.1.0", Tiny())
