"""How much a server of models answers: the same on one machine and in a cluster."""

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.specification.arguments import Default
from falaj.components.specification.workload_bounds import bound

_ROWS: Final = bound("service", "max_rows")
_TOKENS: Final = bound("service", "max_tokens")


class AnswersArgs(TypedDict):
    """Most of what one request or caller gets, and what is kept for the next."""

    max_rows: NotRequired[Annotated[int, _ROWS, Default(_ROWS.default)]]
    """Most rows of a request."""
    max_tokens: NotRequired[Annotated[int, _TOKENS, Default(_TOKENS.default)]]
    """Most tokens that a language model adds to a text of a request."""
    tokens_per_minute: NotRequired[Annotated[int, bound("service", "tokens_per_minute")]]
    """Most tokens that each caller may have of each worker in a minute, those of its prompts
    and those that a language model adds. Default: no limit."""
    keep_seconds: NotRequired[Annotated[int, bound("service", "keep_seconds")]]
    """For how many seconds each worker keeps what a language model computed of a text that has
    ended, for the next turn of its caller's conversation; 0: it doesn't."""
