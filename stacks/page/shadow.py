"""What a server says of its shadow: read without trusting it, beside the version that serves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from falaj.stacks.page.form import NOTHING, figure
from falaj.wire.documents import is_mapping, mapping
from falaj.workloads.inference.metrics import PREFIX

MOST_OUTPUTS: Final = 20
"""That are shown."""
_RUN: Final = f"{PREFIX}_compute_duration_seconds"
STATES: Final = ("starting", "ready", "failed")
"""Of a second version."""


@dataclass(frozen=True)
class Shadow:
    """A version that gets copies of requests.

    Attributes:
        version: its number.
        state: ``starting``, ``ready`` or ``failed``; ``unknown`` for others.
        percent: of the requests that are copied.
        requests: copies by what they came to, as pairs.
        agreement: rows that agree, in words.
        outputs: each one's name, share of rows that agree and mean difference.
        seconds: of a run in the mean; None where there was none.
        error: why it takes no copies; empty where it does.
        why: the last reason of copies that weren't compared, by what they came to.
    """

    version: str
    state: str
    percent: str
    requests: tuple[tuple[str, str], ...]
    agreement: str
    outputs: tuple[tuple[str, str, str], ...]
    seconds: float | None
    error: str
    why: tuple[tuple[str, str], ...]


def shadow_of(found: object) -> Shadow | None:
    """Read what ``state.json`` has of a shadow; None where there is none."""
    if not is_mapping(found):
        return None
    rows, agreement = number(found.get("rows")) or 0.0, number(found.get("agreement"))
    state, seconds = found.get("state"), number(found.get("mean_run_seconds"))
    outputs = mapping(found.get("outputs"))
    return Shadow(
        str(found.get("version", "")),
        state if isinstance(state, str) and state in STATES else "unknown",
        figure(found.get("percent")),
        tuple((name, figure(count)) for name, count in mapping(found.get("requests")).items()),
        "no rows were compared until now" if agreement is None
        else f"{_share(agreement)} of {rows:,.0f} rows",
        tuple(_output(name, mapping(each)) for name, each in [*outputs.items()][:MOST_OUTPUTS]),
        seconds if seconds is not None and seconds >= 0 else None,
        str(found.get("error") or ""),
        tuple((name, str(each)) for name, each in mapping(found.get("why")).items()),
    )  # fmt: skip


def mean_runs(metrics: str, model: str | None = None) -> dict[str, float]:
    """Return the mean seconds of a run of each version, by a server's metrics.

    Args:
        metrics: of the server.
        model: whose versions. Default: the server has one.

    Raises:
        ValueError: they aren't in the exposition format.
    """
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    try:
        samples = [s for each in text_string_to_metric_families(metrics) for s in each.samples]
    except (ArithmeticError, LookupError) as error:
        raise ValueError(f"a sample or a label is missing or none: {error}") from error
    for sample in samples:
        into = {f"{_RUN}_sum": sums, f"{_RUN}_count": counts}.get(sample.name)
        if into is not None and (model is None or sample.labels.get("model") == model):
            version = sample.labels.get("version", "")
            into[version] = into.get(version, 0.0) + sample.value
    return {each: sums.get(each, 0.0) / count for each, count in counts.items() if count > 0}


def _output(name: str, figures: Mapping[str, Any]) -> tuple[str, str, str]:
    agreement, apart = number(figures.get("agreement")), number(figures.get("mean_difference"))
    return (
        name,
        NOTHING if agreement is None else _share(agreement),
        NOTHING if apart is None else figure(float(f"{apart:.3g}")),
    )


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def number(value: object) -> float | None:
    """A finite number; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= sys.float_info.max else None
