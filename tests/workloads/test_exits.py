"""The table of exit statuses: stated by the workloads, and the same for whoever starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from falaj.components.kubernetes.training import pods
from falaj.components.local.provider import workloads as local
from falaj.components.specification import workload_exits
from falaj.components.specification.workload_exits import exit_codes
from falaj.workloads import errors, exits

FILE = Path(workload_exits.__file__).with_suffix(".json")
GUIDE = Path(__file__).parents[2] / "docs/how-to/training.md"


def test_the_file_is_what_the_workloads_say() -> None:
    assert FILE.read_text() == exits.document(), (
        "write it again: python -m falaj.workloads.exits > "
        "components/specification/workload_exits.json"
    )


def test_each_status_stands_once_and_the_workloads_have_no_other() -> None:
    codes = [each.code for each in exits.EXITS]
    assert len(set(codes)) == len(codes)
    named = {errors.FAULT, errors.REFUSED, errors.HARDWARE, errors.LOST, errors.STOPPED}
    assert set(codes) == {0, *named}


def test_whoever_starts_them_goes_by_the_table() -> None:
    assert pods.FINAL == exit_codes("end") == (local.REFUSED,)
    assert pods.STOPPED == exit_codes("free") == (local.STOPPED,)
    assert errors.FAULT in exit_codes("retry")
    with pytest.raises(KeyError):
        exit_codes("perhaps")


def test_the_guide_has_the_whole_table() -> None:
    rows = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    for each in exits.EXITS:
        (row,) = [line for line in rows if line.startswith(f"| {each.code} |")]
        assert each.meaning in row
