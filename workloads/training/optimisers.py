"""PyTorch's own optimisers, which don't load its compiler.

Their methods are wrapped in what keeps the compiler from looking into them, and that loads it: a
second at the beginning of each process that trains, though nothing is compiled.
"""

from __future__ import annotations

import inspect
from typing import Any, Final, TypeVar, cast

import torch

_Kind = TypeVar("_Kind", bound=torch.optim.Optimizer)

_WRAPPED: Final = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods of all optimisers, beside ``step``."""


def _uncompiled(kind: type[_Kind]) -> type[_Kind]:
    """The same optimiser without what is wrapped around its methods."""
    own: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    own["step"] = torch.no_grad()(inspect.unwrap(cast("Any", kind).step))
    return cast("type[_Kind]", type(kind.__name__, (kind,), own))


AdamW: Final = _uncompiled(torch.optim.AdamW)
LBFGS: Final = _uncompiled(torch.optim.LBFGS)
SGD: Final = _uncompiled(torch.optim.SGD)
