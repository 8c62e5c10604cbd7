"""Kueue's configuration by default, which the test control plane starts with too.

``python -m tests.components.kubernetes.kueue_defaults`` writes the engine's file anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from falaj.components.kubernetes import platform
from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.kueue import GATES, kueue_configuration
from falaj.engine import controlplane

FILE = Path(controlplane.__file__).with_name("kueue.json")


def document() -> str:
    """The file: what the add-on renders where nothing is asked of it, and its feature gates.

    In a cluster the chart gives the gates on the command line; the configuration takes them too.
    """
    given: Any = {
        "distribution": "existing", "region": "dxb-1", "registry": "registry.acme.example/falaj",
        "owner": "ml@acme.example", "data_class": "confidential", "cost_center": "ml",
        "tenant": "platform", "control_plane_cidrs": ["10.0.0.0/24"],
        "addons": {each: each == "kueue" for each in ADDONS},
        "images": {"kueue": "sha256:" + "1" * 64},
    }  # fmt: skip
    rendered = kueue_configuration(platform.check("platform", given))
    return json.dumps({**rendered, "featureGates": dict.fromkeys(GATES, True)}, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
