"""PyTorch's usual build without NVIDIA's libraries, judged by the loader of this system."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import site
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from falaj.stacks.images.build import RECIPES, ROOT
from tests.stacks.images.scripts import script

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="libraries of Linux, of two processors",
)

MACHINE = {"x86_64": 62, "aarch64": 183}.get(platform.machine(), 0)
TRAIN = """
import json, torch
made = torch.nn.Linear(4, 2)
loss = made(torch.ones(3, 4)).sum()
loss.backward()
print(json.dumps([torch.cuda.is_available(), float(made.weight.grad.sum()), torch.__file__]))
"""


@pytest.fixture(scope="module")
def without_cuda() -> ModuleType:
    return script("without_cuda")


def has(library: ctypes.CDLL, name: str, version: str) -> bool:
    """Whether a library has a name of a version, as glibc tells."""
    find = ctypes.CDLL(None).dlvsym
    find.restype, find.argtypes = ctypes.c_void_p, [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
    ]  # fmt: skip
    return bool(find(library._handle, name.encode(), version.encode()))


def test_every_function_says_that_there_is_no_device(
    without_cuda: ModuleType, tmp_path: Path
) -> None:
    names = [
        without_cuda.Name("cudaGetDeviceCount", "libcudart.so.13"),
        without_cuda.Name("cudaFree", "libcudart.so.13"),
        without_cuda.Name("plain"),
    ]
    path = tmp_path / "libcudart.so.13"
    path.write_bytes(without_cuda.written(path.name, names, MACHINE))
    library = ctypes.CDLL(str(path))
    assert [library[each.name]() for each in names] == [100, 100, 100]
    assert has(library, "cudaFree", "libcudart.so.13")
    assert not has(library, "cudaFree", "libcudart.so.12")
    with pytest.raises(AttributeError):
        library.nothing  # noqa: B018  the look-up is what is tried


def test_a_library_of_no_names_loads(without_cuda: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "libnvshmem.so"
    path.write_bytes(without_cuda.written(path.name, [], MACHINE))
    ctypes.CDLL(str(path))


def test_an_unknown_processor_is_refused(without_cuda: ModuleType) -> None:
    with pytest.raises(ValueError, match="machine 243; allowed: 62, 183"):
        without_cuda.written("libcu.so", [], 243)


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60)])
def test_other_files_are_no_libraries(without_cuda: ModuleType, content: bytes) -> None:
    assert without_cuda.read(content) is None


def test_what_a_library_asks_for_is_what_the_loader_finds(without_cuda: ModuleType) -> None:
    """Each name with a version is in the library that it is asked of, as glibc tells."""
    import _ctypes

    path = Path(_ctypes.__file__)
    found = without_cuda.read(path.read_bytes())
    assert found.machine == MACHINE
    assert "PyInit__ctypes" in found.defined
    asked = [each for each in found.asked if each.version]
    assert asked
    for each in asked:
        assert each.library in found.needed
        assert has(ctypes.CDLL(each.library), each.name, each.version), each


@pytest.mark.thorough
def test_pytorch_learns_without_nvidia(without_cuda: ModuleType, tmp_path: Path) -> None:
    packages = next(
        Path(each) for each in site.getsitepackages() if (Path(each) / "torch").is_dir()
    )
    left_out = ("nvidia", "cuda", "triton", "torch", "__pycache__")
    for each in packages.iterdir():
        if not each.name.startswith(left_out) and each.suffix != ".pth":
            (tmp_path / each.name).symlink_to(each)
    for path in (packages / "torch").rglob("*"):
        copy = tmp_path / path.relative_to(packages)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(path)
    # The loader looks beside the real files: those of PyTorch have to be here.
    for path in (tmp_path / "torch").rglob("*.so*"):
        real = path.resolve()
        path.unlink()
        try:
            os.link(real, path)
        except OSError:  # another file system
            path.write_bytes(real.read_bytes())
    (tmp_path / "torchgen").symlink_to(packages / "torchgen")

    def learn() -> subprocess.CompletedProcess[str]:
        program = f"import sys; sys.path.append({str(tmp_path)!r})\n{TRAIN}"
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", program],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    made = without_cuda.complete(tmp_path)
    first = learn()
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == [False, 24.0, str(tmp_path / "torch" / "__init__.py")]
    if made:  # a build that asks for CUDA, which doesn't load without what was made
        made[0].unlink()
        assert made[0].name in learn().stderr
    else:
        pytest.skip("this PyTorch asks for nothing of NVIDIA's")


def test_wheels_of_gpus_stay_out_of_the_image_for_processors() -> None:
    cpu = {each.name for each in RECIPES["falaj-training-cpu"].wheels("amd64")}
    every = {each.name for each in RECIPES["falaj-training"].wheels("amd64")}
    assert {"torch", "nvidia-ml-py"} <= cpu
    assert not [each for each in cpu - {"nvidia-ml-py"} if each.startswith(("nvidia", "triton"))]
    assert any(each.startswith("nvidia-cublas") for each in every - cpu)
    assert (ROOT / "workloads" / "images" / "without_cuda.py").is_file()
