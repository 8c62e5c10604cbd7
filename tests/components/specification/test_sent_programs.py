"""What is sent to machines as text runs there without Falaj's components."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from falaj.components.aws.serving import cloud_init as on_aws
from falaj.components.azure.serving import cloud_init as on_azure
from falaj.components.specification.sent_programs import program


def test_a_program_that_renames_what_it_imports_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "start.py"
    file.write_text("import os\nfrom falaj.components.specification.server_start import a as b\n")
    with pytest.raises(ValueError, match=r"start\.py:2: renames what it imports"):
        program(file)


def test_a_program_that_imports_no_component_is_sent_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "start.py"
    file.write_text(
        '"""Starts."""\n\nfrom pathlib import Path\n\nprint(Path("falaj.components."))\n'
    )
    assert program(file) == file.read_text()


@pytest.mark.parametrize("text_of", [on_aws.program, on_azure.program], ids=["aws", "azure"])
def test_the_start_of_a_server_is_whole(
    text_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_of("start_server.py")
    imported = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names | {"cryptography"}
    monkeypatch.setenv("FALAJ_SERVING", "{")
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
