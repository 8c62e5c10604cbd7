"""The shipped schema is the settings' own and judges files as they do; models load on use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from falaj.stacks.settings import schema
from tests.stacks.mistakes import BASES, MISTAKES, Mistake

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    # Not at the top: it brings grammars, which each process of the tests would compile.
    from jsonschema import Draft202012Validator

    found = json.loads(schema.FILE.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(found)


def loaded(text: str) -> Any:
    return yaml.safe_load(text)


def test_the_shipped_schema_is_the_one_that_the_settings_make() -> None:
    shipped = schema.FILE.read_text(encoding="utf-8")
    assert shipped == schema.text(), f"write it anew: falaj settings --schema {schema.FILE}"


@pytest.mark.parametrize(
    "path",
    sorted(
        each
        for glob in ("Pulumi.*.yaml", "templates/*.yaml")
        for each in (ROOT / "stacks").glob(glob)
    ),
    ids=lambda each: each.name,
)
def test_shipped_stacks_meet_the_schema(validator: Draft202012Validator, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [each.message for each in validator.iter_errors(loaded(text))] == []
    # The line by which editors find it is there already, and right.
    assert schema.for_editors(text, path) == text


@pytest.mark.parametrize("base", BASES)
def test_right_files_meet_the_schema(validator: Draft202012Validator, base: str) -> None:
    assert validator.is_valid(loaded(BASES[base]))


@pytest.mark.parametrize(
    "mistake",
    [
        each
        for each in MISTAKES
        if "unknown key" in each.said and not each.said.startswith("falaj:installation")
    ],
    ids=lambda each: f"{each.base}-{each.new[:30]}",
)
def test_unknown_keys_don_t_meet_the_schema(
    validator: Draft202012Validator, mistake: Mistake
) -> None:
    text = BASES[mistake.base].replace(mistake.old, mistake.new, 1)
    assert not validator.is_valid(loaded(text))


def test_commands_that_need_no_settings_load_none() -> None:
    program = (
        "import sys; from falaj.stacks.command.__main__ import main; main(sys.argv[1:]); "
        "sys.exit('pydantic' in sys.modules)"
    )
    for arguments in (["--help"], ["status", "--help"], ["config", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        assert done.stdout


def test_the_status_of_a_machine_loads_no_models(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.local.yaml").write_text(BASES["local"])
    program = (
        "import sys; from falaj.stacks.command.__main__ import main; main(sys.argv[1:]); "
        "sys.exit('pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "status", "--project", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "local" in done.stdout


def test_the_reference_loads_no_cloud() -> None:
    heavy = {"pulumi_aws", "pulumi_azure_native", "pulumi_kubernetes", "torch", "onnx", "pandas"}
    program = (
        "import sys; from falaj.stacks.command.__main__ import main; main(sys.argv[1:]); "
        f"sys.exit(sorted({heavy!r} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "settings", "gpuPools"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "falaj:gpuPools.NAME.gpu" in done.stdout
