"""Why a loss or a gradient is no longer a number: which layer, in which step, after what.

Asked in the step in which it happens, while the weights are still those that it happens with. That
needs numbers from the device at each step: on a processor 0.2 % of it. On a GPU it is found at the
end of the epoch, and weights are all that is left to look at.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from falaj.workloads.errors import printable, some
from falaj.workloads.training.compiling import as_written
from falaj.workloads.training.tensors import modules_of

_STEPS_BEFORE: Final = 5
_NAMED: Final = 3
#: A gradient that became so many times as large within those steps was exploding.
_EXPLODING: Final = 10.0


class Watch:
    """Looks at the steps of a training on the processor; holds what it found first.

    Args:
        module: what learns.
        rate: the run's peak learning rate, for the advice.
        clip: the largest norm of gradients; 0: they aren't clipped.
        is_divided: whether no process holds the whole model, and none can tell of a layer.
    """

    def __init__(
        self, module: nn.Module, rate: float, clip: float, *, is_divided: bool = False
    ) -> None:
        self._is_divided = is_divided
        self._module, self._rate, self._clip = module, rate, clip
        self._norms: deque[float] = deque(maxlen=_STEPS_BEFORE)
        self._of_loss = self._of_gradient = ""
        self._is_defined = False
        """Whether weights and inputs are numbers, and a layer or the loss makes none of them."""

    def loss(self, inputs: Tensor, outputs: Tensor, loss: Tensor) -> None:
        """Look at the loss of a part of a batch, before the weights change by it."""
        if not self._of_loss and not math.isfinite(float(loss.detach())):
            self._of_loss = self._cause(inputs, outputs.detach())

    def gradient(self, norm: Tensor) -> None:
        """Look at the gradient's norm, before it is clipped."""
        value = float(norm)
        if math.isfinite(value):
            self._norms.append(value)
        elif not self._of_gradient:
            gradients = {
                name: parameter.grad
                for name, parameter in self._module.named_parameters()
                if parameter.grad is not None
            }
            self._of_gradient = f"that of {_named(gradients)}"

    @property
    def has_found(self) -> bool:
        """Whether the loss of this process's own rows is no number."""
        return bool(self._of_loss)

    def step(self, place: str, *, loss: float) -> str:
        """What happened in a step, and what to do.

        Args:
            place: of the run, as ``epoch 3, step 7 of 45``.
            loss: of all processes' rows. Where it is no number and this process's is, the gradient
                is no number for another's reason: all have the same.
        """
        if self._is_divided:
            what = "the gradient" if math.isfinite(loss) else "the loss"
            return self._diverged(what, place, "in which layer isn't told of a divided model")
        if self._of_loss:
            what, found = "the loss", self._of_loss
        elif math.isfinite(loss):
            what, found = "the gradient", self._of_gradient
        else:
            return f"{_no_number('the loss', place)} in another process, which says more"
        if self._norms:
            norms = ", ".join(map(_short, self._norms))
            found += f" (norms of the gradients before: {norms})"
        if self._is_defined and not self._grew():
            return (
                f"{_no_number(what, place)}: {found}; the weights are numbers and gradients "
                "didn't grow: look there for what isn't defined for all values, as log(0), sqrt "
                "of less than 0 or a division by 0"
            )
        return self._diverged(what, place, found)

    def epoch(self, place: str, otherwise: str) -> str:
        """What happened in an epoch whose steps weren't looked at, and what to do.

        Args:
            place: of the run, as ``epoch 3``.
            otherwise: what it is if all weights are numbers.
        """
        found = "" if self._is_divided else weights(self._module)
        return self._diverged("the loss", place, found or otherwise)

    def _diverged(self, what: str, place: str, found: str) -> str:
        clip = "" if self._clip else ", or clip gradients (--gradient-clip 1)"
        return (
            f"{_no_number(what, place)}: {found}; training has diverged at --learning-rate "
            f"{self._rate:g}; use a lower one{clip}"
        )

    def _grew(self) -> bool:
        return bool(self._norms) and max(self._norms) > _EXPLODING * max(self._norms[0], 1e-12)

    def _cause(self, inputs: Tensor, outputs: Tensor) -> str:
        if broken := weights(self._module):
            return broken
        if not _are_numbers([inputs]):
            return "the inputs, which no preparation should leave so"
        self._is_defined = True
        if bool(torch.isfinite(outputs).all()):
            least, most = float(outputs.min()), float(outputs.max())
            return f"the loss itself, of outputs between {_short(least)} and {_short(most)}"
        return f"the output of {first_broken(self._module, inputs) or 'the model'}"


def weights(module: nn.Module) -> str:
    """The weights and buffers of a module that aren't numbers, in words; empty where all are."""
    named = _named(module.state_dict())
    return f"the weights {named}" if named else ""


def first_broken(module: nn.Module, inputs: Tensor) -> str:
    """The first layer that makes of numbers what is none, as ``2.norm (LayerNorm)``, if any."""
    found: list[str] = []
    hooks = [
        each.register_forward_hook(_noting(f"{printable(name)} ({type(each).__name__})", found))
        for name, each in modules_of(module)
        if name
    ]
    try:
        with torch.no_grad(), as_written(module):
            module(inputs)
    except Exception:
        # A team's own model, asked once more than it expected.
        return found[0] if found else ""
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else ""


def _no_number(what: str, place: str) -> str:
    return f"{what} is no longer a number in {place}"


def _noting(name: str, found: list[str]) -> Any:
    def note(module: nn.Module, given: tuple[Any, ...], made: Any) -> None:
        del module
        if _are_numbers(given) and not _are_numbers([made]):
            found.append(name)

    return note


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(
        bool(torch.isfinite(each).all())
        for each in values
        if isinstance(each, Tensor) and each.is_floating_point()
    )


def _named(tensors: Mapping[str, Any]) -> str:
    broken = [printable(name) for name, each in tensors.items() if not _are_numbers([each])]
    return some(broken, _NAMED)


def _short(value: float) -> str:
    return f"{value:.2g}"
