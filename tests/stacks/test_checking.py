"""What `falaj check` makes of the engine's answers, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.checking.preview import require_judged, without_options
from stacks.errors import StackError


def record(kind: str, **entry: Any) -> dict[str, Any]:
    return {"kind": kind, **entry}


PACK = record("pack", name="falaj-all")


def test_every_resource_is_judged_by_every_pack() -> None:
    require_judged({"u"}, [PACK, record("resource", urn="u")], 1)
    require_judged(set(), [PACK, PACK], 2)


@pytest.mark.parametrize(
    ("records", "packs", "said"),
    [
        ([], 1, "0 of 1 policy packs judged"),
        ([PACK], 2, "1 of 2 policy packs judged"),
        ([], 0, "falaj:policies.packs"),
        ([PACK], 1, "1 of 1 resources were not judged"),
        ([PACK, PACK, record("resource", urn="u")], 2, "not judged by every pack: u"),
        ([PACK, record("resource", urn="other")], 1, "not judged by every pack: u"),
    ],
)
def test_what_nobody_judged_is_not_clean(
    records: list[dict[str, Any]], packs: int, said: str
) -> None:
    with pytest.raises(StackError, match=said):
        require_judged({"u"}, records, packs)


def test_a_persons_options_for_the_engine_do_not_reach_the_check() -> None:
    given = {
        "PATH": "/bin",
        "PULUMI_HOME": "/home/p",
        "PULUMI_OPTION_TARGET": "urn:pulumi:dev::shop::aws:s3/bucket:Bucket::logs",
        "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true",
    }
    assert without_options(given) == {"PATH": "/bin", "PULUMI_HOME": "/home/p"}
