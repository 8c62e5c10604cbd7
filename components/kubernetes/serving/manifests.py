"""All objects of an inference service."""

from components.kubernetes._objects import Manifest
from components.kubernetes.serving.deployment import deployment
from components.kubernetes.serving.isolation import isolation
from components.kubernetes.serving.routing import routing
from components.kubernetes.serving.scaling import scaling
from components.kubernetes.serving.secrets import secrets
from components.kubernetes.serving.specification import InferenceServiceSpec


def manifests(spec: InferenceServiceSpec) -> list[Manifest]:
    """The objects, what shuts the doors first."""
    return [
        *isolation(spec),
        *secrets(spec),
        *(deployment(spec, version) for version in spec.versions),
        *routing(spec),
        *scaling(spec),
    ]
