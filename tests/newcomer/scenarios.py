"""Which commands of the documents are run by which test; the documents say what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Commands within sentences and tables, by the scenario whose test runs them as they stand there.
MENTIONED: Final[Mapping[str, tuple[str, ...]]] = {
    "local": (
        "make up", "make demo", "make status", "make token", "make logs", "make preview",
        "make rollback", "make shell", "make down", "make new STACK=shop", "pulumi preview",
        "pulumi up --yes", "pulumi stack output", "falaj token --scope observe --minutes 10",
        "falaj completion bash",
    ),
    "preview": (
        "falaj preview --details", "falaj preview --costs", "falaj preview --unknown-prices FILE",
    ),
    "wheel": ("falaj new shop", "falaj up", "falaj check"),
    "table": ("make up STACK=shop",),
    "template": ("falaj new --list", "pulumi new FOLDER-OF-A-TEMPLATE"),
    "onprem": ("falaj images list",),
    "packs": ("falaj check --live",),
    "report": ("make report",),
    "reference": (
        ".venv/bin/falaj --help", ".venv/bin/falaj settings", ".venv/bin/falaj policies",
        ".venv/bin/falaj policies --coverage", ".venv/bin/falaj policies --suppress checkov",
        ".venv/bin/falaj settings gpuPools",
    ),
    "docs": ("make help", "make docs"),
    "pydoc": (
        ".venv/bin/python -m pydoc falaj.components.azure.gpu_node_pool",
        ".venv/bin/python -m pydoc falaj.policies.model",
    ),
    "audit": (".venv/bin/python -m falaj.workloads.inference audit --logs DIR",),
}  # fmt: skip
#: What `.ci/run` itself runs, or what is measured or needs a machine that no test has; by command,
#: what runs it instead.
ELSEWHERE: Final[Mapping[str, str]] = {
    "make test": ".ci/run",
    "make test-all": ".ci/run",
    "make lint": ".ci/run",
    "make environment-dev": "what `make lint` begins with, which .ci/run runs",
    "make format": "changes what ruff says; .ci/run asks that it says nothing",
    "make test-fast": "a part of what .ci/run runs",
    "make test-cluster": "a part of what .ci/run runs",
    "make test-gpu": "a machine with a GPU",
    "make test-alerts": "a machine with Prometheus's promtool",
    "make bench": "takes half an hour and judges nothing",
    "make bench BENCH_SIZES=100x800,1000x5000": "takes half an hour and judges nothing",
    "make lock": "asks the package index for newer versions",
    "falaj preflight": "the block of the scenario preflight has it with its stack",
    "falaj images mirror --to REGISTRY": "tests/stacks/images run it against a registry of theirs",
    "falaj images pin": "tests/stacks/images run it against a registry of theirs",
    "pulumi stack export": "what `falaj draw --now` calls",
    "pulumi preview --json --show-sames": "what `falaj draw` calls",
    "pulumi up": "what `make up` calls",
    "pulumi refresh": "what `make refresh` calls",
    "python -m falaj.workloads.training": "what pods run: tests/components/kubernetes",
    ".venv/bin/pre-commit install": "tests/documents/test_hooks.py installs it in a repository",
    ".venv/bin/pytest tests/policies/rules tests/policies/controls": "a part of what .ci/run runs",
    ".venv/bin/pytest tests/components/kubernetes/test_residency.py": (
        "a part of what .ci/run runs"
    ),
    ".venv/bin/pytest tests/cluster/test_admission_parity.py": "a part of what .ci/run runs",
    ".venv/bin/python -m tests.components.kubernetes.platforms": (
        "writes the files with which tests/components/kubernetes/test_platform_values.py compare"
    ),
    ".venv/bin/uv pip install FOLDER": (
        "installs the reader's own package; tests/policies/test_team_rules.py offer its rules"
    ),
    ".venv/bin/pytest tests/components/specification tests/components/test_cloud_parity.py": (
        "a part of what .ci/run runs"
    ),
    ".venv/bin/pytest tests/components/kubernetes": "a part of what .ci/run runs",
    ".venv/bin/pytest tests/documents": "a part of what .ci/run runs",
    ".venv/bin/falaj settings --schema stacks/settings/stack.schema.json": (
        "tests/stacks compare the file with what the command writes"
    ),
    "pip install 'dist/falaj-0.1.0-py3-none-any.whl[local,azure]'": (
        "tests/newcomer/test_wheel.py install it with uv, and pinned versions"
    ),
    "uv tool install": "tests/newcomer/test_wheel.py have it with the wheel that they make",
    "pulumi package add /path/to/falaj/components/aws": (
        "generates a package by the vendor's plugins: tests/components/aws read the schema instead"
    ),
}
