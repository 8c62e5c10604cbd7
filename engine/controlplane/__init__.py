"""A real Kubernetes control plane on loopback with simulated machines, for tests and laptops."""

from falaj.engine.controlplane.machines import Site
from falaj.engine.controlplane.plane import ControlPlane, start, stop

__all__ = ["ControlPlane", "Site", "start", "stop"]
