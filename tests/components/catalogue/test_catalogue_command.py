"""``falaj catalogue``: tables, JSON, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from falaj.components.catalogue.__main__ import main
from falaj.components.catalogue.reports import Column, render

COMMANDS = [
    "places",
    "status",
    "gpus",
    "cpus",
    "services",
    "refused",
    "gpu-facts",
    "mig",
    "operators",
    "sources",
]


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["gpus", "--place", "aws/us-east-1"], "not a place in the country; allowed"),
        (["gpus", "--gpu", "H300"], "did you mean H200"),
        (["gpus", "--gpu", "A100", "--place", "aws/me-central-1"], "does not sell A100; sold"),
        (["gpus", "--zone", "me-central-1a"], "no such zone"),
        (["cpus", "--vcpu", "4096"], "at least 4096 vCPU"),
        (["cost", "p5.48xlarge", "--place", "aws/me-central-1"], "not sold in aws/me-central-1"),
        (["cost", "p5en.48xlarge", "--nodes", "-1"], "nodes is -1"),
        (["cost", "p5en.48xlarge", "--nodes", "1", "--min-nodes", "2"], "min_nodes is 2"),
        (["mig", "Z1"], "no GPU is called 'Z1'"),
        (["choose", "aws/me-central-1", "--gpu", "H200"], "acknowledge this report by its date"),
        (["choose", "aws/eu-west-1"], "not a place in the country"),
    ],
)
def test_bad_input_is_refused_in_words(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert reason in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["prices"],
        ["gpus", "--count", "many"],
        ["gpus", "--count", "1/0"],
        ["gpus", "--fabric", "ethernet"],
        ["cpus", "--vcpu", "some"],
        ["cpus", "--gpu", "H200"],
        ["cost"],
        ["choose", "azure/uaenorth", "--acknowledge", "2026-04-30"],
    ],
)
def test_bad_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: falaj catalogue" in capsys.readouterr().err


def _shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", ["80", "120", "200"])
def test_tables_fit_the_terminal(
    command: str, width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    out = _shown([command], capsys)
    assert "As of: " in out
    assert "None" not in out.replace("None of", "")
    # Names and addresses are never broken, so that narrow terminals may be exceeded by words.
    if width == "200" and command != "sources":
        assert all(len(line) <= 200 for line in out.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_json_has_rows_and_date(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(_shown([command, "--json"], capsys))
    assert shown["rows"]
    assert shown["as_of"]
    assert all(source["reference"] for source in shown["sources"])


def test_gpus_of_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    out = _shown(["gpus", "--place", "aws/me-central-1", "--gpu", "h200"], capsys)
    lines = out.splitlines()
    assert " ".join(lines[2].split()) == (
        "place machine GPUs GPU GB vCPU GiB fabric zones MIG USD/h"
    )
    assert " ".join(lines[4].split()) == (
        "aws/me-central-1 p5en.48xlarge 8 x H200 1128 192 2048 EFA x 16 mec1-az1, mec1-az3 yes "
        "75.9552"
    )
    assert "AL2023 AMIs in the region were frozen at 2026-03-02" in out
    assert "Sources: S_MOTO" in out


def test_unknown_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    out = _shown(["cost", "g6.xlarge", "--nodes", "3"], capsys)
    assert out.splitlines()[4].split()[-3:] == ["unknown"] * 3
    shown = json.loads(_shown(["cost", "g6.xlarge", "--json"], capsys))
    assert shown["rows"][0]["usd_per_hour"] is None


def test_cost_of_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    out = _shown(["cost", "p5en.48xlarge", "--nodes", "4", "--min-nodes", "0"], capsys)
    assert out.splitlines()[4].split()[-3:] == ["0.00", "303.82", "221,789.18"]
    assert "730 hours" in out


def test_fractions_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["gpus", "--gpu", "A10", "--count", "1/3", "--place", "azure/uaenorth", "--json"]
    rows = json.loads(_shown(arguments, capsys))["rows"]
    assert [row["machine"] for row in rows] == ["Standard_NV12ads_A10_v5"]
    assert rows[0]["total_gpu_memory_gb"] == 8
    assert rows[0]["zones"] is None


def test_choose_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["choose", "aws/me-central-1", "azure/uaenorth", "--gpu", "H200", "--count", "8"]
    out = _shown(arguments, capsys)
    assert "azure/uaenorth  8 x H200  Standard_ND96isr_H200_v5" in out
    assert "aws/me-central-1 passed over" in out
    accepted = _shown([*arguments, "--acknowledge", "aws/me-central-1=2026-04-30"], capsys)
    assert "aws/me-central-1  8 x H200  p5en.48xlarge" in accepted


def test_refused_families_have_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(_shown(["refused", "--json"], capsys))["rows"]
    refused = {row["name"]: row["reason"] for row in rows}
    for family in ("t3", "t4g", "c7i-flex", "r8i-flex"):
        assert refused[family].startswith("sources conflict")
    assert "no ARM SKU" in refused["Standard_ND96ams_A100_v4"]


def test_a_reader_that_leaves_early() -> None:
    arguments = [sys.executable, "-m", "falaj.components.catalogue", "cpus"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"Machines without GPUs, cheapest first\n"
        running.stdout.close()
        complaints = running.stderr.read()
    assert complaints == b""
    assert running.returncode == 0


def test_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "falaj.components.catalogue", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(command in done.stdout for command in [*COMMANDS, "cost", "choose"])


def test_long_cells_are_wrapped_and_short_ones_are_not() -> None:
    rows: list[Mapping[str, Any]] = [{"name": "p5en.48xlarge", "text": "one two three four"}]
    table = render((Column("name", "name"), Column("text", "text")), rows, 29)
    assert table.splitlines() == [
        "name           text",
        "-------------  --------------",
        "p5en.48xlarge  one two three",
        "               four",
    ]
    assert "one two three four" in render((Column("text", "text"),), rows, None)
