"""Previews that know what an update would bring: ids, ARNs, whatever a cloud would answer.

A preview is honest about what it can't know yet, and so is the sandbox's. But ids and answers of
the sandbox are the same in each run, so it can also make a preview's resources in a copy of its
cloud that goes when the preview ends. Then nothing is unknown, and policies can judge documents
that are made of several resources' ARNs. It is asked for by naming the copy in the environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from falaj.engine.errors import EngineError
from falaj.sandbox.activation import PREDICTION_VARIABLE
from falaj.sandbox.cloud import MARK, Cloud
from falaj.sandbox.clouds.model import Properties
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.models import PACKAGES, load
from falaj.sandbox.store import Store
from falaj.wire import has_unknown
from falaj.wire.documents import is_mapping


class Prediction:
    """Answers previews of one provider as if they were updates, in the copy."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @classmethod
    def of(cls, package: str, environ: Mapping[str, str]) -> Prediction | None:
        """Prediction where the environment names a copy; none of what there is no model of."""
        copy = environ.get(PREDICTION_VARIABLE)
        if not copy or package not in PACKAGES:
            return None
        return cls(Cloud(load(package), Store(Path(copy))))

    def configure(self, settings: Properties) -> None:
        """Take over the provider's settings."""
        self._cloud.configure(settings)

    def create(self, urn: str, inputs: Properties) -> tuple[str, dict[str, Any]] | None:
        """Id and outputs that a new resource would have.

        None where that can't be predicted: inputs come from a provider without prediction, or the
        resource replaces one that is still there.

        Raises:
            SandboxError: the cloud would refuse it.
        """
        if has_unknown(inputs):
            return None
        replaces = bool(self._cloud.store.generations(urn))
        try:
            made, outputs = self._cloud.create(urn, inputs)
            return made, self._cloud.without_guesses(urn, inputs, outputs)
        except SandboxError:
            if replaces:
                return None
            raise

    def update(
        self, urn: str, id: str, state: Properties, inputs: Properties
    ) -> dict[str, Any] | None:
        """Outputs that a changed resource would have; None where that can't be predicted."""
        if has_unknown(inputs):
            return None
        try:
            return self._cloud.update(urn, id, state, inputs)
        except SandboxError:
            return None

    def invoke(self, token: str, arguments: Properties) -> dict[str, Any]:
        """The answer to a query about what would be there. Raises SandboxError."""
        return self._cloud.invoke(token, arguments)


# Tells a stack's state of the sandbox from a real one, for who moves states between backends.

_SHOWN = 3


def made_in_sandbox(deployment: Mapping[str, Any]) -> list[str]:
    """URNs of the resources that the sandbox made, in what `pulumi stack export` prints."""
    return [
        str(resource.get("urn"))
        for resource in _resources(deployment)
        if is_mapping(outputs := resource.get("outputs")) and MARK in outputs
    ]


def refuse_sandbox_state(deployment: Mapping[str, Any]) -> None:
    """Refuse a real run on the sandbox's state: names in it may belong to something real.

    Raises:
        EngineError: some of the resources were made in the sandbox.
    """
    found = made_in_sandbox(deployment)
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise EngineError(
            f"this state was made in the sandbox ({', '.join(found[:_SHOWN])}{more}), but the run "
            "would be a real one: what has the same name in a real account would be changed or "
            "deleted; start with an empty stack, or run in the sandbox with `falaj up --sandbox`"
        )


def _resources(deployment: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    inner = deployment.get("deployment")
    resources = inner.get("resources") if is_mapping(inner) else None
    return [each for each in resources or () if is_mapping(each)]
