"""Programs of other people, asked what they make of our files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LLAMA = Path(__file__).parent / "programs" / "llama.py"


def ask_transformers(asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what `programs/llama.py` answers, which reaches no network."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(_LLAMA)], input=json.dumps(asked), capture_output=True, text=True,
        check=False, env={**os.environ, **offline}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
