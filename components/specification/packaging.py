"""What makes a trained model a package: the same on one machine and in a cluster."""

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.specification.arguments import Default, Usual
from falaj.components.specification.workload_bounds import bound, choice

_DROP: Final = bound("optimization", "max_accuracy_drop")
_QUANTISE: Final = choice("optimization", "quantise")
_ACCEPT: Final = choice("optimization", "accept")


class PackagingArgs(TypedDict):
    """How a model is judged and quantised."""

    accept: NotRequired[Annotated[str, _ACCEPT, Default(_ACCEPT.default)]]
    """``better`` publishes nothing of a model that is no better than guessing on held-out rows;
    ``any`` publishes whatever it is."""
    quantise: NotRequired[Annotated[str, _QUANTISE, Default(_QUANTISE.default)]]
    """Unless it is forbidden, 8 bits, or of a language model weights of 4, are taken where they
    are accurate enough, and faster where it is measured. ``int8`` or ``int4`` takes that alone,
    which need not be faster, and publishes nothing where it isn't accurate enough."""
    max_accuracy_drop: NotRequired[Annotated[float, _DROP, Usual(_DROP.default)]]
    """How much quantisation may cost, in percentage points of accuracy; for a regression in per
    cent of the RMSE, for a language model of the nats."""
