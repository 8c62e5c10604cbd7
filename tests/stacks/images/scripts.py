"""The scripts that run within builds, as modules: they lie beside no package."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from falaj.stacks.images.build import FOLDER


def script(name: str) -> ModuleType:
    """The script of that name, loaded anew."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # data classes look themselves up
    spec.loader.exec_module(module)
    return module
