"""Whose fault an error is: what is certain has a status of its own, all else is unknown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed

from falaj.workloads.errors import (
    FAULT,
    HARDWARE,
    LOST,
    REFUSED,
    STOPPED,
    StorageFullError,
    WorkloadError,
)
from falaj.workloads.exits import EXITS
from falaj.workloads.training import command
from falaj.workloads.training.faults import code_of, is_connection_loss, status_of
from tests.examples import examples

CODES = {each.code for each in EXITS}
NVML = type("NVMLError_GpuIsLost", (type("NVMLError", (Exception,), {}),), {})


def _accelerator(text: str, number: int | None = None) -> BaseException:
    error = torch.AcceleratorError(text)
    if number is not None:
        error.error_code = number  # pyright: ignore[reportAttributeAccessIssue]
    return error


def _nccl(text: str) -> BaseException:
    return distributed.DistBackendError(f"NCCL error in: ProcessGroupNCCL.cpp:4000, {text}")


#: Texts are those of libcudart 13 and NCCL as PyTorch 2.15 brings them.
CASES: list[tuple[BaseException, int, int]] = [
    # what was raised; the status alone, and in a run of several processes
    (WorkloadError("--epochs is 0"), REFUSED, REFUSED),
    (StorageFullError("the quota is used up"), REFUSED, REFUSED),
    (_accelerator("CUDA error: uncorrectable ECC error encountered"), HARDWARE, HARDWARE),
    (_accelerator("CUDA error", 214), HARDWARE, HARDWARE),
    (_accelerator("CUDA error: something newer", 999), HARDWARE, HARDWARE),
    (RuntimeError("CUDA-capable device(s) is/are busy or unavailable"), HARDWARE, HARDWARE),
    (RuntimeError("No CUDA GPUs: no CUDA-capable device is detected"), HARDWARE, HARDWARE),
    (RuntimeError("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen"), HARDWARE, HARDWARE),
    (NVML("GPU is lost"), HARDWARE, HARDWARE),
    (_nccl("unhandled cuda error (run with NCCL_DEBUG=INFO for details)"), HARDWARE, HARDWARE),
    (_nccl("remote process exited or there was a network error"), FAULT, LOST),
    (_nccl("unhandled system error (run with NCCL_DEBUG=INFO for details)"), FAULT, LOST),
    (_nccl("invalid usage (run with NCCL_DEBUG=WARN for details)"), FAULT, FAULT),
    (RuntimeError("[gloo/tcp/pair.cc:534] Connection closed by peer"), FAULT, LOST),
    (distributed.DistNetworkError("The client socket has timed out"), FAULT, LOST),
    (distributed.DistStoreError("wait timeout after 300000ms"), FAULT, LOST),
    # May be the program's own doing: nobody knows.
    (_accelerator("CUDA error: an illegal memory access was encountered", 700), FAULT, FAULT),
    (_accelerator("CUDA error: device-side assert triggered", 710), FAULT, FAULT),
    (_accelerator("CUDA error: unspecified launch failure", 719), FAULT, FAULT),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"), FAULT, FAULT),
    (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), FAULT, FAULT),
    (ValueError("the column 'connection' has no peer"), FAULT, FAULT),
    (ValueError("column xid 79 not found"), FAULT, FAULT),
    (MemoryError(), FAULT, FAULT),
    (KeyboardInterrupt(), STOPPED, STOPPED),
    (SystemExit(2), REFUSED, REFUSED),
    (SystemExit("sorry"), FAULT, FAULT),
    (SystemExit(99), FAULT, FAULT),
    (SystemExit(), 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0])[:60])
def test_what_is_certain_has_a_status_of_its_own(
    case: tuple[BaseException, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    error, alone, together = case
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert code_of(error) == alone
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert code_of(error) == together


def test_what_an_error_was_raised_from_counts() -> None:
    try:
        try:
            raise _accelerator("CUDA error: uncorrectable ECC error encountered")
        except RuntimeError as cause:
            raise ValueError("the epoch ended early") from cause
    except ValueError as error:
        assert code_of(error) == HARDWARE
    circle = RuntimeError("a")
    circle.__cause__ = RuntimeError("b")
    circle.__cause__.__cause__ = circle
    assert code_of(circle) == FAULT


def test_a_refusal_is_no_lost_peer() -> None:
    assert not is_connection_loss(WorkloadError("connection"))


class _UnprintableError(RuntimeError):
    def __str__(self) -> str:
        raise TypeError("no")


TYPES: list[type[BaseException]] = [
    RuntimeError, ValueError, OSError, MemoryError, KeyError, RecursionError, AssertionError,
    SystemExit, KeyboardInterrupt, GeneratorExit, WorkloadError, torch.AcceleratorError,
    torch.OutOfMemoryError, distributed.DistError, distributed.DistBackendError, _UnprintableError,
]  # fmt: skip


@given(
    kind=st.sampled_from(TYPES),
    what=st.one_of(st.none(), st.integers(-300, 300), st.text(max_size=40), st.binary(max_size=4)),
    number=st.one_of(st.none(), st.integers(0, 1000), st.lists(st.integers(), max_size=1)),
    size=st.sampled_from(["", "1", "8", "many", "٨"]),
)
@settings(max_examples=examples(200), deadline=None)
def test_whatever_is_raised_the_status_is_one_of_the_table(
    kind: type[BaseException], what: Any, number: Any, size: str
) -> None:
    error = kind() if what is None else kind(what)
    error.error_code = number  # type: ignore[attr-defined]

    def program() -> int:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("WORLD_SIZE", size)
        assert status_of(program) in CODES


@given(st.integers(-300, 300))
def test_whatever_is_returned_the_status_is_one_of_the_table(code: int) -> None:
    found = status_of(lambda: code)
    assert found == code if code in CODES else found == FAULT


def test_the_command_line_ends_by_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> int:
        raise _accelerator("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(command, "_dataset", broken)
    assert command.main(["dataset", "--source", "digits"]) == HARDWARE
    assert "AcceleratorError" in capsys.readouterr().err


def test_a_process_ends_by_the_table(tmp_path: Path) -> None:
    """Not by a trace of its own, nor before PyTorch is there."""
    code = (
        "import sys; from falaj.workloads.training import command\n"
        "def broken(*_): raise RuntimeError('CUDA error: hardware stack error')\n"
        "command._dataset = broken\n"
        "sys.exit(command.main(['dataset', '--source', 'digits']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == HARDWARE, done.stderr
    assert "hardware stack error" in done.stderr
