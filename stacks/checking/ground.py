"""What a checked stack stands on, in the sandbox that goes with the check.

It isn't brought up there: a preview in the sandbox makes all that an update would make in a copy
of the cloud (`falaj.sandbox.prediction`). That copy becomes the cloud, and the stack's state gets
the outputs that the preview foretold, which is all that others read of it. Where a preview can't
tell them all, an update does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from falaj.sandbox import activation, store, urns
from falaj.stacks.command import operation
from falaj.stacks.command.cloud import require_made, update_in_sandbox
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.settings import CloudSettings
from falaj.wire import MASKED, STACK, UNKNOWN_TEXTS

#: An engine's state that nothing but a stack's outputs is in.
_MANIFEST: Final = {"time": "0001-01-01T00:00:00Z", "magic": "", "version": ""}


def make_predicted(pulumi: Pulumi, settings: CloudSettings) -> None:
    """Make a stack in the sandbox of a check that another one stands on.

    Raises:
        KeyboardInterrupt: it was told to stop.
        StackError: it can't be made.
    """
    name = pulumi.stack.name
    with pulumi.predicting() as predicted:
        arguments = ["preview", "-s", name]
        outcome = operation.run(pulumi, arguments, f"making {name}", predicted)
        require_made(outcome, name)
        if import_predicted(pulumi, predicted, outcome.outputs):
            return
    update_in_sandbox(pulumi, settings)


def import_predicted(
    pulumi: Pulumi, predicted: Mapping[str, str], outputs: Mapping[str, Any]
) -> bool:
    """Let the sandbox have what a preview of a stack that wasn't there made in its copy.

    Args:
        pulumi: the stack's engine.
        predicted: variables of the preview, which name the copy.
        outputs: of the stack, as the preview's events told them.

    Returns:
        False where the preview didn't tell them all, and nothing was done.
    """
    if not outputs or not _is_told(outputs):
        return False
    copy = Path(predicted[activation.PREDICTION_VARIABLE])
    store.copy_without_faults(copy, activation.cloud_file(pulumi.environment))
    stack, project = pulumi.stack.name, pulumi.stack.project.name
    resource = {
        "urn": urns.make(stack, project, STACK, f"{project}-{stack}"),
        "custom": False, "type": STACK, "outputs": outputs,
    }  # fmt: skip
    deployment = {"manifest": _MANIFEST, "resources": [resource]}
    state = json.dumps({"version": 3, "deployment": deployment})
    pulumi.capture(["stack", "import", "--force", "-s", stack], state)
    return True


def _is_told(value: Any) -> bool:
    """Whether a value of an output is there as it is."""
    if isinstance(value, Mapping):
        return all(map(_is_told, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, list):
        return all(map(_is_told, cast("list[Any]", value)))
    return value not in UNKNOWN_TEXTS and value != MASKED
