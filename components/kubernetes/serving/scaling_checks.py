"""Checks of when replicas come and go, and of where work goes that waits too long."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from falaj.components.kubernetes.serving.arguments import HoursArgs, SpillArgs
from falaj.components.kubernetes.serving.numbers import number
from falaj.components.kubernetes.serving.specification import Scaling, Spill
from falaj.components.specification.refusals import Refusals

_CRON_FIELD: Final = r"(\*|[0-9A-Za-z,/*-]+)"
_CRON: Final = re.compile(rf"^{_CRON_FIELD}( {_CRON_FIELD}){{4}}$")
_ZONE: Final = re.compile(r"^[A-Za-z]+(/[A-Za-z0-9_+-]+)*$")
_URL: Final = re.compile(r"^https?://[a-z0-9.-]+(:\d{1,5})?(/[\w./-]*)?$")
_SERVICE: Final = re.compile(r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")


def checked_scaling(given: Mapping[str, Any], careful: bool, refusals: Refusals) -> Scaling:
    """Targets, sleep and waking; ``careful`` refuses sleep."""
    to_zero = refusals.flag("scale_to_zero", given.get("scale_to_zero", False))
    hours = _hours(given, refusals)
    if to_zero and careful:
        refusals.add(
            "scale_to_zero", True, "false in production",
            "the first caller would wait for a model to load; set allow_cold_production, if so",
        )  # fmt: skip
    if to_zero and hours is None and not given.get("spilled_from"):
        refusals.say(
            "scale_to_zero",
            "nothing would ever wake the service: give hours, or spilled_from",
        )
    if hours is not None and not to_zero:
        refusals.say("hours", "are for a service with scale_to_zero; leave them out, or set it")
    namespace = str(given.get("monitoring_namespace", "monitoring"))
    address = given.get("prometheus", f"http://prometheus-operated.{namespace}.svc:9090")
    if not (isinstance(address, str) and _URL.match(address)):
        refusals.add("prometheus", address, "an address such as http://prometheus.monitoring:9090")
    return Scaling(
        number("target_queue_ms", given.get("target_queue_ms", 20), 0.1, 600_000, refusals),
        refusals.whole("target_use_percent", given.get("target_use_percent", 70), 10, 95),
        to_zero,
        hours,
        str(address),
    )


def _hours(given: Mapping[str, Any], refusals: Refusals) -> dict[str, str] | None:
    hours = _section("hours", given, HoursArgs, refusals)
    if hours is None:
        return None
    found = {"timezone": "Asia/Dubai", **{key: str(value) for key, value in hours.items()}}
    for key in ("start", "end"):
        if not _CRON.match(found.get(key, "")):
            refusals.add(
                f"hours.{key}", hours.get(key), "five fields of cron, such as '0 7 * * 1-5'"
            )
    if not _ZONE.match(found["timezone"]):
        refusals.add("hours.timezone", hours.get("timezone"), "a time zone such as Asia/Dubai")
    return found


def checked_spill(
    name: str, given: Mapping[str, Any], gpu: bool, refusals: Refusals
) -> Spill | None:
    """The argument ``spill``."""
    spill = _section("spill", given, SpillArgs, refusals)
    if spill is None:
        return None
    if gpu:
        refusals.say("spill", "is for tier 'cpu': the GPU tier is where its requests go")
    to = spill.get("to")
    if not (isinstance(to, str) and _SERVICE.match(to)) or to == name:
        refusals.add("spill.to", to, "the name of another InferenceService of this namespace")
    return Spill(
        str(to),
        refusals.whole("spill.version", spill.get("version"), 1, 999_999_999),
        number("spill.above_ms", spill.get("above_ms"), 0.1, 600_000, refusals),
        number("spill.timeout_ms", spill.get("timeout_ms", 1000), 1, 600_000, refusals),
    )


def _section(
    argument: str, given: Mapping[str, Any], kind: type, refusals: Refusals
) -> Mapping[str, Any] | None:
    """An argument with arguments of its own; None where it is left out or can't be used."""
    value = given.get(argument)
    if value is None:
        return None
    known = sorted(kind.__annotations__)
    if not isinstance(value, Mapping):
        refusals.add(argument, value, f"{', '.join(known)} by name")
        return None
    section = cast("Mapping[str, Any]", value)
    for key in section:
        if key not in known:
            refusals.say(f"{argument}.{key}", f"is not known here; allowed: {', '.join(known)}")
    return section
