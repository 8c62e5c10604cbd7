"""Benchmarks share the fixtures of the whole-stack tests."""

from tests.stacks.conftest import project

__all__ = ["project"]
