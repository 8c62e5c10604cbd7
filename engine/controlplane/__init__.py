"""A real Kubernetes control plane on loopback with simulated machines, for tests and laptops."""

from engine.controlplane.plane import ControlPlane, start, stop
from engine.controlplane.pools import Site

__all__ = ["ControlPlane", "Site", "start", "stop"]
