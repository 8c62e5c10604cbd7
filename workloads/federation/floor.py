"""The least privacy that a site takes, whatever the coordinator asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.federation.plan import Plan
from falaj.workloads.federation.updates import MessageError

NOISE: Final = "noise"
CLIP: Final = "clip"
SITES: Final = "leastSites"

_MOST_REASONS: Final = 6
"""Each of the three can be too little, and otherwise than the task says it."""
_MOST_CHARACTERS: Final = 200
_MOST_BYTES: Final = 4096
_MOST_SHOWN: Final = 40


@dataclass(frozen=True)
class Floor:
    """What a site takes of a round; None: whatever is asked.

    Attributes:
        least_noise: noise multiplier.
        most_clip: largest L2 norm of an update; a round of any norm asks for more.
        least_sites: fewest sites of a round's mean.
    """

    least_noise: float | None = None
    most_clip: float | None = None
    least_sites: int | None = None

    @property
    def told(self) -> str:
        """What this site takes, for people; empty where it takes everything."""
        found = [f"{name} {takes}" for name, (_, takes) in self._limits().items()]
        return f"this site takes rounds of {', '.join(found)}" if found else ""

    def refuses_plan(self, plan: Plan) -> list[str]:
        """Why each round of a plan would be refused; empty: its rounds are judged one by one."""
        asks = planned(plan)
        spoken = {name: each for name, each in self._limits().items() if name in asks}
        return _too_little(asks, spoken)

    def refuses(self, plan: Plan, asks: Mapping[str, Any]) -> list[str]:
        """Why a round is refused; empty: it is taken.

        Args:
            plan: the coordinator's, by which this site trains.
            asks: what the coordinator says of the round; anything may stand there.
        """
        limits, task = self._limits(), planned(plan)
        if not limits:
            return []
        otherwise = [
            f"{name} {_shown(asks, name)}, where the coordinator's task says {_shown(task, name)}"
            for name, said in task.items()
            if _number(asks.get(name)) != said
        ]
        return [*_too_little(asks, limits), *otherwise]

    def _limits(self) -> dict[str, tuple[float, str]]:
        """By what a round asks for: the limit, and the same in words."""
        found: dict[str, tuple[float, str]] = {}
        if self.least_noise is not None:
            found[NOISE] = self.least_noise, f"{self.least_noise} or more"
        if self.most_clip is not None:
            found[CLIP] = self.most_clip, f"{self.most_clip} or less"
        if self.least_sites is not None:
            found[SITES] = self.least_sites, f"{self.least_sites} or more"
        return found


def planned(plan: Plan) -> dict[str, Any]:
    """What a plan itself says of its rounds.

    Without secure aggregation the coordinator adds the noise and decides how many sites are
    enough: then a plan says no more of both than that there is no noise, where sites count by
    their rows.
    """
    found: dict[str, Any] = {CLIP: plan.clip}
    if plan.secure is not None:
        return {**found, NOISE: plan.secure.noise, SITES: plan.secure.threshold}
    return found if plan.equal else {**found, NOISE: 0.0}


def asked(plan: Plan, noise: float, sites: int) -> dict[str, Any]:
    """What a coordinator says of each round.

    Args:
        plan: of all rounds.
        noise: noise multiplier.
        sites: fewest that must answer.
    """
    return {NOISE: noise, CLIP: plan.clip, SITES: sites}


def encode_refusal(reasons: list[str]) -> bytes:
    """What a site sends that refuses a round."""
    return json.dumps({"reasons": reasons}).encode()


def decode_refusal(data: bytes) -> list[str]:
    """What `encode_refusal` was given.

    Raises:
        MessageError: it is something else. The reasons go into the coordinator's log, so they are
            few, short and of characters that print.
    """
    try:
        value: Any = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        value = None
    reasons: Any = value.get("reasons") if is_dictionary(value) and len(value) == 1 else None
    if is_sequence(reasons) and 1 <= len(reasons) <= _MOST_REASONS:
        texts = [each for each in reasons if isinstance(each, str) and each.isprintable()]
        if len(texts) == len(reasons) and max(map(len, texts)) <= _MOST_CHARACTERS:
            return texts
    raise MessageError(
        f"a refusal has 1 to {_MOST_REASONS} reasons, each of at most {_MOST_CHARACTERS} "
        "characters that print"
    )


def _too_little(asks: Mapping[str, Any], limits: Mapping[str, tuple[float, str]]) -> list[str]:
    found: list[str] = []
    for name, (limit, takes) in limits.items():
        number = _number(asks.get(name))
        if number is None or not _is_enough(name, number, limit):
            found.append(f"{name} {_shown(asks, name)}: this site takes {takes}")
    return found


def _is_enough(name: str, number: float, limit: float) -> bool:
    if name == CLIP:
        return 0 < number <= limit  # 0: updates of any norm
    return number >= limit


def _number(value: object) -> float | None:
    """A finite number that isn't negative; None: it is something else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _shown(asks: Mapping[str, Any], name: str) -> str:
    """What was asked for, short and of characters that print."""
    if name not in asks:
        return "isn't said"
    value = asks[name]
    if name == CLIP and _number(value) == 0:
        return f"{value} (any norm)"
    text = ascii(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
