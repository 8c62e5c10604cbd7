"""Which models of a table are still in question while folds of a cross-validation are done.

After each fold, a model that will hardly be kept isn't learned for the others: stochastic
curtailment by predictive power (Spiegelhalter, Freedman, Blackburn, 1986, Controlled Clinical
Trials 7, 8-17) of the rule of one standard error that `choice.pick` has. Losses are compared row
by row, so differences of the rows themselves cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Final

from torch import Tensor

LEAST_CHANCE: Final = 0.01
"""Of being kept, below which a model is no longer learned. On 45 runs of 15 tables all that is
kept is what it is without a race."""

_LEAST_ROWS: Final = 50
"""Of fewer, means aren't normal enough, nor is it known how much they deviate."""


def dropped(losses: Mapping[str, Tensor], total: int) -> dict[str, float]:
    """Return the models that leave the race, with the chance that each would be kept.

    Of n rows in all, m are done, of which differences have the mean d and the standard deviation
    s. Where nothing else is known of the true mean, the mean of all n will be normal around d with
    the variance s² (n - m) / (m n). Beside a cheaper model one is kept if that mean is below
    -s / sqrt(n), one standard error; beside a dearer one if it is at most s / sqrt(n).

    Args:
        losses: of the models in the race, the cheapest first: of each row that is done, (m,).
        total: rows of all folds, n.
    """
    found: dict[str, float] = {}
    for cheaper, dearer in combinations(losses, 2):
        chance = _chance_of_dearer(losses[dearer] - losses[cheaper], total)
        for name, its in ((dearer, chance), (cheaper, 1 - chance)):
            if its < LEAST_CHANCE:
                found[name] = min(its, found.get(name, 1.0))
    # In a circle, which chance alone can make, nobody leaves.
    return found if len(found) < len(losses) else {}


def _chance_of_dearer(differences: Tensor, total: int) -> float:
    """The chance that differences (m,) will in the mean be below minus one standard error."""
    done = len(differences)
    if done < _LEAST_ROWS or done >= total or not bool(differences.isfinite().all()):
        return 0.5
    deviation = float(differences.std())
    if deviation == 0:
        return 0.5
    place = float(differences.mean()) * math.sqrt(total) / deviation
    away = (-1 - place) / math.sqrt((total - done) / done)
    return math.erfc(-away / math.sqrt(2)) / 2
