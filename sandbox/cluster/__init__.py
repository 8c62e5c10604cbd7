"""Kubernetes objects on a real API server: the test control plane of this machine."""
