"""How a server of models watches for drift, and where a watch over that tells of it: the same on
one machine and in a cluster."""

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.specification.arguments import Default
from falaj.components.specification.workload_bounds import bound

_WINDOW_ROWS: Final = bound("drift", "window_rows")
_WINDOW_SECONDS: Final = bound("drift", "window_seconds")
_ALPHA: Final = bound("drift", "alpha")


class DriftArgs(TypedDict):
    """How the server compares what it is asked and answers with the rows that the model was made
    from."""

    enabled: NotRequired[Annotated[bool, Default(True)]]
    """Whether rows and answers are compared with what the package says."""
    window_rows: NotRequired[Annotated[int, _WINDOW_ROWS, Default(_WINDOW_ROWS.default)]]
    """Rows that are judged together."""
    window_seconds: NotRequired[Annotated[int, _WINDOW_SECONDS, Default(_WINDOW_SECONDS.default)]]
    """After how long fewer rows are judged, if there are 200."""
    alpha: NotRequired[Annotated[float, _ALPHA, Default(_ALPHA.default)]]
    """Chance of a false alarm in a window; drift is what two of three windows find."""


class WebhookArgs(TypedDict):
    """Where a watch over drift tells of it."""

    webhook: NotRequired[str]
    """Address that what was seen and done is sent to, as signed JSON. Default: nowhere."""
