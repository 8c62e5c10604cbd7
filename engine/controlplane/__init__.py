"""A real Kubernetes control plane on loopback with simulated machines, for tests and laptops."""

from falaj.engine.controlplane.plane import ControlPlane, start, stop
from falaj.engine.controlplane.pools import Site

__all__ = ["ControlPlane", "Site", "start", "stop"]
