"""All objects of an inference service."""

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.serving.deployment import deployment
from falaj.components.kubernetes.serving.isolation import isolation
from falaj.components.kubernetes.serving.routing import routing
from falaj.components.kubernetes.serving.scaling import scaling
from falaj.components.kubernetes.serving.secrets import secrets
from falaj.components.kubernetes.serving.specification import InferenceServiceSpec


def manifests(spec: InferenceServiceSpec) -> list[Manifest]:
    """The objects, what shuts the doors first."""
    return [
        *isolation(spec),
        *secrets(spec),
        *(deployment(spec, version) for version in spec.versions),
        *routing(spec),
        *scaling(spec),
    ]
