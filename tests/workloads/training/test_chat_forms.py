"""Chat templates of other programs: the known ones are taken, and what they write is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.chat import CHATML, LLAMA_3, Message, Template
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import llama, llama_folder
from falaj.workloads.training.chat_forms import FORMS, form_of, form_of_jinja
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.start import template_of
from tests.workloads.training.other_programs import ask_transformers
from tests.workloads.training.test_llama import PAIRS, trained

MESSAGES = [
    Message("system", "Be kind"), Message("user", "ab شق 👍\n 12"), Message("assistant", "zé"),
    Message("user", "ab"),
]  # fmt: skip
Change = Callable[[dict[str, Any]], object]


def written(folder: Path, template: Template | None) -> Path:
    model = trained(DecoderSize(1, 1, 1), 4, pairs=PAIRS)
    record = {"dataset": {"chat": template.to_json()}} if template is not None else {}
    llama.write(replace(model, record=record), folder)
    return folder


def changed(folder: Path, name: str, change: Change) -> None:
    path = folder / name
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def test_transformers_words_a_chat_as_we_do_and_writes_it_back(tmp_path: Path) -> None:
    templates = {"chatml": CHATML, "llama": LLAMA_3}
    asked = [
        {"folder": str(written(tmp_path / name, template)), "tokens": [], "text": "ab øù",
         "more": 0,
         "again": str(tmp_path / f"{name}-again"),
         "messages": [{"role": each.role, "content": each.content} for each in MESSAGES]}
        for name, template in templates.items()
    ]  # fmt: skip
    for said, (name, template) in zip(ask_transformers(asked), templates.items(), strict=True):
        assert said["chat"] == template.render(MESSAGES, PAIRS, is_asked=True)
        assert said["numbers"] == PAIRS.encode("ab øù")
        again = tmp_path / f"{name}-again"
        assert (template_of(again), llama_folder.read_vocabulary(again)) == (template, PAIRS)
        assert llama_folder.read(again).template == template


def test_a_model_that_learned_no_conversations_says_nothing_of_them(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", None)
    assert "chat_template" not in json.loads((folder / llama.SETTINGS).read_text())
    assert template_of(folder) is None
    (folder / llama.SETTINGS).unlink()
    assert template_of(folder) is None


def test_a_template_of_nobody_elses_cant_be_written() -> None:
    other = replace(CHATML, begin=("Hello",))
    with pytest.raises(WorkloadError, match="none that other programs know"):
        form_of(other)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_spaces_and_quotes_in_tags_dont_matter(form: Any) -> None:
    for each in form.written:
        loose = each.replace("{%", "{%-").replace("%}", " -%}\n").replace("'", '"')
        assert form_of_jinja(loose) == form_of_jinja(each) == form


@pytest.mark.parametrize(
    ("jinja", "words"),
    [
        ("{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}", "Llama 2's, who"),
        ("{{ ''.__class__.__mro__ }}", "no program is run to find out"),
        (FORMS[0].written[0] + "{{ evil }}", "none of those that are known"),
        (FORMS[0].written[0].replace("assistant", "system"), "none of those that are known"),
        ("", "none of those"), (7, "none of those"), ([{"name": "default"}], "none of those"),
    ],
)  # fmt: skip
def test_any_other_is_refused_and_says_what_to_give(
    tmp_path: Path, jinja: Any, words: str
) -> None:
    folder = written(tmp_path / "model", CHATML)
    changed(folder, llama.SETTINGS, lambda of: of.update(chat_template=jinja))
    with pytest.raises(WorkloadError, match=words) as caught:
        template_of(folder)
    assert "without one, conversations are worded in ChatML" in str(caught.value)
    assert llama.SETTINGS in str(caught.value)


def test_a_template_beside_is_read_likewise(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", CHATML)
    changed(folder, llama.SETTINGS, lambda of: of.pop("chat_template"))
    (folder / "chat_template.jinja").write_text(FORMS[0].written[1], encoding="utf-8")
    assert template_of(folder) == CHATML
    (folder / "chat_template.jinja").write_text("{{ evil }}", encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"chat_template\.jinja: chat_template is none"):
        llama_folder.read(folder)
    (folder / "chat_template.jinja").write_text(" " * 300_000, encoding="utf-8")
    with pytest.raises(WorkloadError, match="has more than 262,144 bytes"):
        llama_folder.read(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda of: of["added_tokens"].pop(),
        lambda of: of["added_tokens"][0].update(id=65),
        lambda of: of["added_tokens"][0].update(content="a"),
        lambda of: of["added_tokens"][0].update(lstrip=True),
        lambda of: of["added_tokens"].append({"id": 66, "content": "B"}),
        lambda of: of.update(added_tokens=[]),
    ],
)
def test_other_marks_than_the_templates_are_refused(tmp_path: Path, change: Change) -> None:
    folder = written(tmp_path / "model", CHATML)
    changed(folder, llama.TOKENISER, change)
    with pytest.raises(WorkloadError, match="added_tokens aren't the marks of ChatML"):
        llama_folder.read(folder)


def test_marks_without_their_template_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", CHATML)
    changed(folder, llama.SETTINGS, lambda of: of.pop("chat_template"))
    with pytest.raises(WorkloadError, match=r"model isn't the one that cuts"):
        llama_folder.read(folder)
