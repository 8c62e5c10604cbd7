"""The engine, and a throw-away project, for tests of the sandbox."""

from tests.engine.conftest import engine, project

__all__ = ["engine", "project"]
