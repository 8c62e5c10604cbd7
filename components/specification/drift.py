"""How a server of models watches for drift: the same on one machine and in a cluster."""

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.specification.arguments import Default
from falaj.components.specification.workload_bounds import bound

WINDOW_ROWS: Final = bound("drift", "window_rows")
WINDOW_SECONDS: Final = bound("drift", "window_seconds")
ALPHA: Final = bound("drift", "alpha")


class DriftArgs(TypedDict):
    """How the server compares what it is asked and answers with the rows that the model was made
    from."""

    enabled: NotRequired[Annotated[bool, Default(True)]]
    """Whether it does."""
    window_rows: NotRequired[Annotated[int, WINDOW_ROWS, Default(WINDOW_ROWS.default)]]
    """Rows that are judged together."""
    window_seconds: NotRequired[Annotated[int, WINDOW_SECONDS, Default(WINDOW_SECONDS.default)]]
    """After how long fewer rows are judged, if there are 200."""
    alpha: NotRequired[Annotated[float, ALPHA, Default(ALPHA.default)]]
    """Chance of a false alarm in a window; drift is what two of three windows find."""
