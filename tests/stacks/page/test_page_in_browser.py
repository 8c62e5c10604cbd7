"""The page of a served model in a real browser: what it asks for, looks like, and does."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto

from falaj.stacks.command.project import StackFile
from falaj.workloads.optimization import __main__ as optimization
from tests.policies.reports.browser import Browser, browser
from tests.stacks.conftest import wait_for
from tests.stacks.page import axe
from tests.stacks.page.site import Running, make_stack, publish_run, serving
from tests.stacks.page.test_page import HOSTILE, junk
from tests.stacks.page.test_page_live import DRIFT
from tests.stacks.page.test_page_shadow import publish as publish_shadow
from tests.workloads.inference import languages, models
from tests.workloads.inference.serving import Server, Site
from tests.workloads.inference.test_chats import ANSWER, manifest, model
from tests.workloads.optimization.conftest import called, trained, write_customers

# A browser is on no bare machine: `make test-all` sees to it first.
pytestmark = [pytest.mark.slow, pytest.mark.thorough]
WIDTHS = [1280, 390]
LOOPBACK = "http://127.0.0.1:"
WATCH = (
    "window.violations = []; document.addEventListener('securitypolicyviolation', "
    "event => window.violations.push(event.violatedDirective + ' ' + event.blockedURI));"
)
SUBMIT = "document.querySelector('form[data-into] button[type=submit]').click()"
OUTSIDE = (
    "[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, pre, "
    ".hidden, .skip, svg, textarea') && each.checkVisibility() && "
    "(each.getBoundingClientRect().right > innerWidth + 1 || "
    "each.getBoundingClientRect().left < -1)).map(each => each.outerHTML.slice(0, 120))"
)


class Stand:
    """A served stack with its page, and where pictures of it go."""

    def __init__(self, stack: StackFile, site: Site, server: Server, running: Running) -> None:
        self.stack, self.site, self.server, self.running = stack, site, server, running

    @property
    def link(self) -> str:
        self.running.door.token = "again"
        return self.running.door.link

    @property
    def address(self) -> str:
        return self.running.door.address


Publish = Callable[[Site], int]


def made(folder: Path, model: str, publish: Publish) -> Iterator[Stand]:
    stack, site = make_stack(folder, model)
    version = publish(site)
    server = Server(site)
    try:
        server.serving(version)
        with serving(stack) as running:
            yield Stand(stack, site, server, running)
    finally:
        server.kill()


def publish_twice(output: Path) -> Publish:
    """A version with a card, and a second one of the same model."""

    def publish(site: Site) -> int:
        first = publish_run(site, output)
        fields = json.loads((output / "fields.json").read_text())
        fields["lineage"]["run"] = "again"
        (output / "fields.json").write_text(json.dumps(fields))
        assert first == 1
        return publish_run(site, output)

    return publish


@pytest.fixture(scope="module")
def table(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A classification of a table, trained, with Arabic names and classes."""
    del home
    folder = tmp_path_factory.mktemp("table")
    write_customers(folder / "table.csv")
    run = trained(folder, "--source", str(folder / "table.csv"), "--target", "churn", epochs=2)
    done = called(
        optimization.main, "--run", str(run.path), "--dataset", str(run.dataset),
        "--output", str(folder / "out"), "--quantise", "never",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    yield from made(folder / "stack", "customers", publish_twice(folder / "out"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the page go."""
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with browser() as found:
        found.before(WATCH)
        yield found


def calm(page: Browser) -> None:
    """Nothing was asked of anybody else, nothing was complained of, and no rule was broken."""
    assert [each for each in page.requests if not each.startswith(LOOPBACK)] == []
    assert page.complaints == []
    assert page.evaluate("window.violations") == []


def show(page: Browser, stand: Stand, width: int = 1280) -> None:
    page.visit(stand.link, width=width)
    assert page.evaluate("location.pathname + location.search") == "/"


def answered(page: Browser) -> str:
    """Send the row; the answer's text."""
    page.evaluate(SUBMIT)
    wait_for(
        lambda: page.evaluate(
            "document.querySelector('#answer .value, #answer .text, #answer .note') !== null && "
            "!document.getElementById('answer').hasAttribute('aria-busy')"
        ),
        "an answer",
    )
    return page.evaluate("document.getElementById('answer').innerText")


def judged(page: Browser) -> list[str]:
    """What axe-core objects to."""
    page.evaluate(axe.script() + "; undefined")
    found = page.evaluate("axe.run().then(each => each.violations)")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes']]}"
        for each in found
    ]


def test_the_judge_objects_to_what_is_wrong(page: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<p style="color:#999">pale</p><input>', encoding="utf-8")
    page.open(bad)
    found = " ".join(judged(page))
    for rule in ("color-contrast:", "label:", "html-has-lang:", "document-title:"):
        assert rule in found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_predicts_and_fits(
    page: Browser, table: Stand, pictures: Path, width: int, scheme: str
) -> None:
    page.scheme(scheme)
    show(page, table, width)
    said = answered(page)
    assert "version 2 answered" in said
    assert "نعم" in said
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    assert judged(page) == []
    (pictures / f"table-{scheme}-{width}.png").write_bytes(page.screenshot(full=True))
    calm(page)
    page.scheme("light")


def test_the_link_leaves_no_token_behind(page: Browser, table: Stand) -> None:
    show(page, table)
    history = page.call("Page.getNavigationHistory")["entries"]
    assert not [each for each in history[1:] if "token=again" in each["url"]]
    assert page.evaluate("document.cookie") == "", "scripts don't see it"
    assert page.evaluate("document.referrer") == ""


def test_a_file_leads_in_as_well(page: Browser, table: Stand, tmp_path: Path) -> None:
    from falaj.stacks.page.app import opened

    page.call("Network.clearBrowserCookies")
    table.running.door.token = "by-file"
    page.visit(opened(tmp_path, table.running.door).as_uri())
    wait_for(
        lambda: page.evaluate("location.href") == table.address
        and page.evaluate("document.getElementById('try') !== null"), "the page",
    )  # fmt: skip


def test_keys_alone_are_enough(page: Browser, table: Stand) -> None:
    show(page, table)
    seen: list[str] = []
    for _ in range(40):
        page.key("Tab", 9)
        seen.append(page.evaluate(
            "(e => { const b = e.getBoundingClientRect(); return e === document.body ? '' : "
            "(e.id || e.getAttribute('href') || e.textContent.trim()) + "
            "(b.width && b.height ? '' : ' (unseen)'); })(document.activeElement)"
        ))  # fmt: skip
    assert seen[0].startswith("#try"), seen
    order = [seen.index(each) for each in ("#live", "i0", "Predict", "/rollback")]
    assert order == sorted(order)
    assert not [each for each in seen if each.endswith("(unseen)")]


def test_another_value_is_asked_for_when_it_is_chosen(page: Browser, table: Stand) -> None:
    show(page, table)
    place = (
        "(name => { const field = [...document.querySelectorAll('.field')].find(each => "
        "each.querySelector('label').textContent === name); return field; })('مدينة')"
    )
    seen = f"{place}.querySelector('.other-value').checkVisibility()"
    assert page.evaluate(seen) is False
    page.evaluate(f"{place}.querySelector('select').value = 'other'")
    assert page.evaluate(seen) is True
    page.evaluate(f"{place}.querySelector('input').value = 'العين'")
    assert "version 2 answered" in answered(page)
    # Arabic runs from right to left where it stands.
    assert page.evaluate(
        f"getComputedStyle({place}.querySelector('.other-value input')).direction"
    ) == "rtl"  # fmt: skip


@pytest.fixture(scope="module")
def language(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A language model that writes Arabic among others."""
    del home
    yield from made(tmp_path_factory.mktemp("language"), languages.NAME, languages.publish)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_language_model_goes_on_with_a_text(
    page: Browser, language: Stand, pictures: Path, width: int
) -> None:
    show(page, language, width)
    page.evaluate("document.getElementById('prompt').value = 'شكرا\\n'")
    page.evaluate("document.getElementById('temperature').value = '0'")
    said = answered(page)
    assert languages.greedy("شكرا\n", 200) in said
    assert "version 1 answered" in said
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    assert judged(page) == []
    (pictures / f"language-{width}.png").write_bytes(page.screenshot(full=True))
    calm(page)


@pytest.fixture(scope="module")
def chat(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A language model that answers to conversations."""
    del home

    def publish(site: Site) -> int:
        return site.publish(model(), fields=manifest())

    yield from made(tmp_path_factory.mktemp("chat"), "chat", publish)


SAY = "document.getElementById('message').value = {}"
TURNS = "[...document.querySelectorAll('.turn .text')].map(each => each.innerText)"


def talk(page: Browser, turns: int) -> None:
    page.evaluate(SUBMIT)
    wait_for(lambda: len(page.evaluate(TURNS)) == turns, f"{turns} turns")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_conversation_goes_on(
    page: Browser, chat: Stand, pictures: Path, width: int, scheme: str
) -> None:
    page.scheme(scheme)
    show(page, chat, width)
    page.evaluate("document.getElementById('temperature').value = '0'")
    page.evaluate(SAY.format("'عاصمة؟'"))
    talk(page, 2)
    assert page.evaluate("document.getElementById('message').value") == ""
    page.evaluate(SAY.format(json.dumps("<b>b</b>\n\u202e")))
    talk(page, 4)
    texts = page.evaluate(TURNS)
    assert texts[:2] == ["عاصمة؟", ANSWER]
    assert texts[2].startswith("<b>b</b>\n")
    assert "\u202e" not in texts[2]
    assert texts[3] == ANSWER
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    assert judged(page) == []
    (pictures / f"chat-{scheme}-{width}.png").write_bytes(page.screenshot(full=True))
    page.evaluate("document.querySelector('button[name=anew]').click()")
    wait_for(lambda: page.evaluate(TURNS) == [], "another conversation")
    assert page.evaluate("document.activeElement.id") == "message"
    calm(page)
    page.scheme("light")


def test_without_scripts_a_conversation_goes_on(page: Browser, chat: Stand) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(page, chat, 390)
        for turns in (2, 4):
            page.evaluate(SAY.format("'ab'"))
            page.events.clear()
            page.evaluate(SUBMIT)
            page.loaded()
            assert page.evaluate(TURNS) == ["ab", ANSWER] * (turns // 2)
            assert page.evaluate("document.getElementById('message').value") == ""
        page.events.clear()
        page.evaluate("document.querySelector('button[name=anew]').click()")
        page.loaded()
        assert page.evaluate(TURNS) == []
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_mistake_is_said_beside_the_form(page: Browser, table: Stand, pictures: Path) -> None:
    show(page, table, 390)
    number = page.evaluate("document.querySelector('input[inputmode=decimal]').id")
    page.evaluate(f"document.getElementById('{number}').value = 'many'")
    said = answered(page)
    assert "'many' is no number" in said
    assert judged(page) == []
    (pictures / "mistake-390.png").write_bytes(page.screenshot())
    page.evaluate(f"document.querySelector('#answer a[href=\"#{number}\"]').click()")
    assert page.evaluate("document.activeElement.id") == number
    assert page.evaluate("window.violations") == []


def test_it_looks_again_by_itself(page: Browser, table: Stand) -> None:
    show(page, table)
    for _ in range(3):
        answered(page)
    wait_for(
        lambda: page.evaluate(
            "document.querySelector('#live-now svg .pen') !== null && "
            "/[1-9]\\d* answered, 0 failed/.test(document.getElementById('live').innerText)"
        ),
        "figures",
    )
    calm(page)


def test_without_scripts_it_predicts_and_goes_back(page: Browser, table: Stand) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(page, table, 390)
        page.events.clear()
        page.evaluate(SUBMIT)
        page.loaded()
        assert page.evaluate("location.pathname") == "/predict"
        assert "version 2 answered" in page.evaluate("document.body.innerText")
        page.visit(f"{table.address}rollback", width=390)
        assert judged_without_scripts(page)
        page.events.clear()
        page.evaluate("document.querySelector('button').click()")
        page.loaded()
        assert table.site.store.resolve("customers") == 1
        table.server.serving(1)
        page.visit(table.address)
        assert "version 1" in page.evaluate("document.querySelector('.lead').innerText")
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
        table.site.store.promote("customers", 2)
        table.server.serving(2)


def judged_without_scripts(page: Browser) -> bool:
    """Whether the question has a name, and each way a text."""
    return page.evaluate(
        "document.querySelector('h1').innerText.endsWith('again?') && "
        "[...document.querySelectorAll('button, .button')].every(each => each.innerText)"
    )


@pytest.fixture(scope="module")
def shadowed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A table's model with a shadow."""
    del home
    yield from made(tmp_path_factory.mktemp("shadowed"), "shadowed", publish_shadow)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_shadow_is_a_table(page: Browser, shadowed: Stand, pictures: Path, width: int) -> None:
    show(page, shadowed, width)
    shadowed.server.wait(
        lambda state: (state["shadow"] or {}).get("state") == "ready", "no shadow"
    )
    page.evaluate(SUBMIT)
    wait_for(
        lambda: page.evaluate(
            "document.querySelector('.answer') !== null && "
            "!document.getElementById('answer').hasAttribute('aria-busy')"
        ),
        "an answer",
    )
    wait_for(
        lambda: "100.0 %" in page.evaluate("document.getElementById('live').innerText"),
        "a comparison",
    )
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    assert judged(page) == []
    (pictures / f"shadow-{width}.png").write_bytes(page.screenshot(full=True))
    calm(page)


@pytest.mark.parametrize("address", ["card/2", "rollback", "metrics", "nothing"])
def test_the_other_pages(page: Browser, table: Stand, pictures: Path, address: str) -> None:
    show(page, table)
    page.visit(f"{table.address}{address}", width=390)
    (pictures / f"{address.replace('/', '-')}-390.png").write_bytes(page.screenshot())
    assert [each for each in page.requests if not each.startswith(LOOPBACK)] == []
    if address == "card/2":
        # A card brings its style, and runs nothing.
        assert page.evaluate("getComputedStyle(document.querySelector('td')).borderTopWidth") == (
            "1px"
        )
        assert page.evaluate("window.origin") == "null"
    if address == "rollback":
        assert judged(page) == []
        calm(page)


def test_no_other_page_embeds_or_drives_it(page: Browser, table: Stand, tmp_path: Path) -> None:
    show(page, table)
    other = tmp_path / "other.html"
    other.write_text(
        f'<iframe src="{table.address}"></iframe>'
        f'<form method="post" action="{table.address}rollback">'
        '<input name="current" value="2"><button>x</button></form>'
    )
    page.open(other)
    time.sleep(0.5)
    page.evaluate("document.querySelector('button').click()")
    wait_for(lambda: "rollback" in page.evaluate("location.href"), "the answer")
    assert table.site.store.resolve("customers") == 2


def test_when_the_server_is_down_the_page_says_so(
    page: Browser, table: Stand, pictures: Path
) -> None:
    show(page, table, 390)
    os.kill(table.server.process.pid, signal.SIGSTOP)
    port = table.site.document["port"]
    try:
        # A port that nobody has: what a server that was ended leaves.
        table.site.write(port=9)
        wait_for(
            lambda: "The server doesn\u2019t answer" in page.evaluate(
                "document.getElementById('live').innerText"), "the outage",
        )  # fmt: skip
        assert "bring the server back:" in answered(page)
        page.visit(table.address, width=390)
        assert judged(page) == []
        (pictures / "down-390.png").write_bytes(page.screenshot(full=True))
    finally:
        table.site.write(port=port)
        os.kill(table.server.process.pid, signal.SIGCONT)


def test_drift_is_a_table(page: Browser, table: Stand, pictures: Path) -> None:
    port = table.site.document["port"]
    many = [{**DRIFT["features"][1], "name": f"{HOSTILE} {n}"} for n in range(6)]
    document: dict[str, Any] = {**DRIFT, "features": [*DRIFT["features"], *many]}
    try:
        with junk(table.site) as server:
            server.answers = (200, {}, json.dumps(document).encode())
            for width in WIDTHS:
                show(page, table, width)
                page.evaluate("document.getElementById('drift').scrollIntoView()")
                assert page.evaluate("document.scrollingElement.scrollWidth") <= width
                assert page.evaluate(OUTSIDE) == []
                assert judged(page) == []
                (pictures / f"drift-{width}.png").write_bytes(page.screenshot())
    finally:
        table.site.write(port=port)
    assert page.evaluate("document.querySelectorAll('img').length") == 0


@pytest.fixture(scope="module")
def image(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A model of pictures of eight by eight that says which pixel is the darkest."""
    del home
    yield from made(tmp_path_factory.mktemp("image"), "pixels", publish_image)


def publish_image(site: Site) -> int:
    fields = models.fields(models.classifier()) | {
        "dataset": {"digest": "0" * 64, "features": [
            {"name": "image", "kind": "image", "shape": [1, 8, 8], "largest": 16}]},
    }  # fmt: skip
    return site.publish(models.classifier(), fields=fields)


def test_a_picture_is_drawn_by_mouse_and_by_keys(
    page: Browser, image: Stand, pictures: Path
) -> None:
    show(page, image)
    x, y, size = page.evaluate(
        "(() => { const box = document.querySelector('.pixels').getBoundingClientRect();"
        "return [box.left, box.top, box.width / 8]; })()"
    )
    middle = [(x + size * (column + 0.5), y + size * 2.5) for column in range(2, 6)]
    page.mouse("mousePressed", *middle[0])
    for place in middle[1:]:
        page.mouse("mouseMoved", *place)
    page.mouse("mouseReleased", *middle[-1], buttons=0)
    row = "document.querySelector('textarea').value.split('\\n')[2]"
    assert page.evaluate(row) == "0 4 16 16 16 16 4 0"
    (pictures / "drawn-1280.png").write_bytes(page.screenshot())
    # The first cell is where the keys begin; its value is the darkest by itself after a clear.
    page.evaluate("[...document.querySelectorAll('.drawing > button')][0].click()")
    page.evaluate("document.querySelector('.pixels button').focus()")
    for _ in range(3):
        page.key("ArrowRight", 39)
    page.key("ArrowDown", 40)
    page.key(" ", 32, " ")
    assert answered(page).startswith("11\n")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert judged(page) == []
    calm(page)


@pytest.fixture(scope="module")
def hostile(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A model whose names are attacks, and very long ones."""
    del home

    def publish(site: Site) -> int:
        long = "ط" * 1_500  # longer ones: test_page.py; the judge takes minutes for them
        model = models.echo({HOSTILE: TensorProto.FLOAT, long: TensorProto.STRING})
        fields = models.fields(model) | {
            "data_class": HOSTILE, "classes": [HOSTILE, long],
            "statistics": {"features": {long: {"categories": {HOSTILE: 3, "و" * 500: 1}}}},
        }  # fmt: skip
        return site.publish(model, fields=fields)

    yield from made(tmp_path_factory.mktemp("hostile"), "hostile", publish)


@pytest.mark.parametrize("width", WIDTHS)
def test_names_do_nothing_and_fit(
    page: Browser, hostile: Stand, pictures: Path, width: int
) -> None:
    show(page, hostile, width)
    page.evaluate(SUBMIT)
    wait_for(lambda: page.evaluate("document.querySelector('#answer .other') !== null"), "it")
    assert page.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    assert judged(page) == []
    (pictures / f"hostile-{width}.png").write_bytes(page.screenshot(full=True))
    calm(page)
