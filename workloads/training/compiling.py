"""Whether a network is compiled as it learns, by `torch.compile`, and what that needs.

The decoder's layers are compiled each by itself, in place: all are made by one compilation,
weights keep their names, a copy isn't compiled, and FSDP gathers a layer when it is its turn
(https://docs.pytorch.org/tutorials/recipes/regional_compilation.html). What the compiler makes
holds operations and shapes, and nothing of weights or data, which it is given.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sysconfig
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from torch import nn

from falaj.workloads.bounds import CHOICES
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.options import Parameters

BACKEND = "inductor"
"""PyTorch's compiler: Triton on GPUs, C++ on processors."""
_FOLDER: Final = "TORCHINDUCTOR_CACHE_DIR"
_AUTO, _ALWAYS, NEVER = CHOICES["training"]["compile"].words
_OTHERS_WRITE: Final = 0o022


@dataclass(frozen=True)
class Compilation:
    """What became of what was asked for.

    Attributes:
        asked: ``auto``, ``always`` or ``never``.
        used: whether the network is compiled.
        reason: why it is, or isn't.
    """

    asked: str
    used: bool
    reason: str

    @property
    def forgives(self) -> bool:
        """Whether the network runs as it is written where the compiler fails."""
        return self.asked == _AUTO

    def to_json(self) -> dict[str, Any]:
        """What a run's record says of it, once the run has learned."""
        found = asdict(self)
        if self.used and not _compiled_parts():
            found |= {
                "used": False,
                "reason": "the compiler refused the network; its warning says why",
            }
        return found


def choose(parameters: Parameters) -> Compilation:
    """Return whether a run compiles, as was asked for and as this machine can.

    Raises:
        WorkloadError: it was asked for by name, and this machine can't, or this run.
    """
    asked = parameters.compile
    if asked == NEVER:
        return Compilation(asked, used=False, reason="it was turned off")
    if asked == _AUTO and parameters.device == "cpu":
        reason = "on a processor compiling takes longer than what it saves"
        return Compilation(asked, used=False, reason=reason)
    if asked == _AUTO and not parameters.layers:
        reason = "this network is small: compiling takes longer than what it saves"
        return Compilation(asked, used=False, reason=reason)
    if parameters.tensor > 1:
        # With torch 2.15 losses differ from the second step on, by the thousandth.
        reason = (
            "gradients of compiled layers whose matrices are divided (--tensor "
            f"{parameters.tensor}) came out wrong"
        )
    else:
        reason = lacking(parameters.device)
    if not reason:
        reason = "it was asked for" if asked == _ALWAYS else "it is a language model on a GPU"
        return Compilation(asked, used=True, reason=reason)
    if asked == _ALWAYS:
        raise WorkloadError(
            f"--compile {asked}: {reason}; use --compile {_AUTO}, which compiles where it can, or "
            f"{NEVER}"
        )
    return Compilation(asked, used=False, reason=reason)


def with_place(found: Compilation) -> Compilation:
    """What becomes of it once there is a place for what is compiled, or none.

    Raises:
        WorkloadError: there is none, and it was asked for by name.
    """
    if not found.used:
        return found
    try:
        keep_apart()
    except WorkloadError as error:
        if not found.forgives:
            raise
        return Compilation(found.asked, used=False, reason=str(error))
    return found


def lacking(device: str) -> str:
    """Return what the compiler needs and this machine doesn't have; empty: nothing.

    Both build a module for this Python: https://github.com/triton-lang/triton
    (``python/triton/runtime/build.py``) in C for GPUs, PyTorch's ``_inductor`` in C++ for CPUs.
    """
    is_gpu = device == "cuda"
    variable, usual = ("CC", ("gcc", "clang")) if is_gpu else ("CXX", ("g++",))
    try:
        named = shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        return f"{variable} names no compiler: {error} in {os.environ[variable]!r}"
    if not any(shutil.which(each) for each in named[:1] or usual):
        language = "C" if is_gpu else "C++"
        looked = " or ".join(named[:1] or usual)
        return f"there is no {language} compiler: looked for {looked} ({variable} names another)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return (
            f"Python's header files aren't there ({header}), which its package for development has"
        )
    return ""


def keep_apart() -> Path:
    """Have what is compiled kept where this user alone writes; return the folder.

    What lies there is run. PyTorch's own default is a folder of ``/tmp`` by the user's name, which
    anybody may have made before.

    Raises:
        WorkloadError: it can't be made, or others may write into it.
    """
    given = os.environ.get(_FOLDER)
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    advice = f"set {_FOLDER} to a folder of your own, or --compile {NEVER}"
    try:
        folder = Path(given) if given else Path(home).expanduser() / "falaj" / "compiled"
    except RuntimeError as error:  # a user without an entry, as pods have them, and no HOME
        raise WorkloadError(
            f"there is no place to keep what is compiled: {error}; {advice}"
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
    except OSError as error:
        raise WorkloadError(
            f"what is compiled can't be kept in {folder}: {error.strerror}; {advice}"
        ) from error
    if found.st_uid != os.getuid() or found.st_mode & _OTHERS_WRITE:
        raise WorkloadError(
            f"what is compiled can't be kept in {folder}: others may write there, and it is run; "
            f"{advice}"
        )
    os.environ[_FOLDER] = str(folder)
    return folder


def _compiled_parts() -> int:
    """How often a part of a network was compiled in this process."""
    from torch._dynamo.utils import counters  # noqa: PLC0415 - the compiler takes seconds to load

    return int(counters["frames"]["ok"])


def compile_in_place(
    module: nn.Module, parts: Iterable[nn.Module] = (), *, forgives: bool = False
) -> None:
    """Have a module's forward passes, and the ways back, compiled when they are first run.

    Args:
        module: a decoder, of which its layers are, or another network, which is as a whole.
        parts: of another one, that are instead, each by itself. Default: none.
        forgives: whether what the compiler can't do runs as it is written.
    """
    keep_apart()
    if forgives:
        import torch._dynamo.config as settings  # noqa: PLC0415 - the compiler, as above

        settings.suppress_errors = True
    found = list(module.layers.values() if isinstance(module, Decoder) else parts)
    for each in found or [module]:
        # Each shape by itself: of a run they are few, and what is made for any is slower.
        cast("Any", each).compile(backend=BACKEND, dynamic=False)


@contextlib.contextmanager
def as_written(module: nn.Module) -> Generator[None]:
    """Have a module run without what was compiled of it, which calls no hooks that came later."""
    name = "_compiled_call_impl"
    found = {each: getattr(each, name) for each in module.modules()}
    try:
        for each in found:
            setattr(each, name, None)
        yield
    finally:
        for each, compiled in found.items():
            setattr(each, name, compiled)
