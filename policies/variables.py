"""Variables by which a pack's process is told what the engine doesn't tell it."""

from __future__ import annotations

from typing import Final

PROJECT_FOLDER: Final = "FALAJ_PROJECT_FOLDER"
"""The folder that paths in settings start from."""
RECORD_FOLDER: Final = "FALAJ_POLICY_RECORD"
"""Where packs write what they found."""
