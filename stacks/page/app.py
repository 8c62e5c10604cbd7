"""The page's own small server: who may see it, and what each address answers.

It listens on loopback alone. A browser gets in by a token that is worth one visit and that the
command prints; from then on by a cookie. Programs of other users of the machine are turned away,
whatever they know. Other pages in the same browser can't use it: the names it answers to are two,
what changes something needs its own origin, and nothing may embed it.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from falaj.policies.reports.wording import shown
from falaj.stacks.command import project, service, summary
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.page import conversation, live
from falaj.stacks.page import form as forms
from falaj.stacks.page.account import MOST_NAME, Account, UnknownModelError, Version, data_of
from falaj.stacks.page.caller import is_foreign
from falaj.stacks.page.drift import drift_of, unwatched
from falaj.stacks.page.experiment import experiment_of
from falaj.stacks.page.server import Server, UnreachableError
from falaj.stacks.page.shadow import mean_runs, shadow_of
from falaj.wire.documents import is_mapping, mapping
from falaj.workloads.bounds import VERSION_NUMBER
from falaj.workloads.chat import ASSISTANT, USER, Message, described_template
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.protocol.routes import INFER
from falaj.workloads.training.language import request_of
from falaj.workloads.training.record import LANGUAGE

HOSTS: Final = ("127.0.0.1", "localhost")
"""By which names the page is asked for; by any other one it isn't, as a name of somebody else's
may be made to lead here (DNS rebinding)."""
_HTTP: Final = 80
MOST_BYTES: Final = 1024 * 1024
"""Of what a browser may send."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: A card brings its own style, and nothing of it may run or call.
_POLICY_OF_CARDS: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Without any referrer a browser would not say the origin of what a form sends, either.
    "Referrer-Policy": "same-origin",
    "Server": "falaj",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_STATIC: Final = {
    "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml",
}  # fmt: skip
#: What a part of the page is asked for with; other sites can't send it without being asked back.
PART: Final = "X-Part"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """Who may see the page: a token for one visit, then a cookie.

    Args:
        port: the page's, by which cookies of several pages differ.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.token: str | None = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)

    @property
    def cookie(self) -> str:
        """The cookie's name; cookies of loopback don't differ by port."""
        return f"falaj-{self.port}"

    @property
    def address(self) -> str:
        """The page's address, without the token."""
        return f"http://{HOSTS[0]}:{self.port}/"

    @property
    def link(self) -> str:
        """The address that opens the page once."""
        return f"{self.address}enter?token={self.token}"

    def enters(self, given: str) -> bool:
        """Whether a token is the one for this visit; afterwards it is worth nothing."""
        if self.token is None or not hmac.compare_digest(given.encode(), self.token.encode()):
            return False
        self.token = None
        return True

    def knows(self, request: web.Request) -> bool:
        """Whether a request has the cookie."""
        given = request.cookies.get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self._session.encode())

    def admit(self, answer: web.Response) -> web.Response:
        """Give the cookie with an answer."""
        answer.set_cookie(self.cookie, self._session, httponly=True, samesite="Strict", path="/")
        return answer

    def is_called(self, request: web.Request) -> bool:
        """Whether a request was meant for this page, by its Host."""
        named = {f"{each}:{self.port}" for each in HOSTS}
        # Browsers leave the port of HTTP itself out.
        return request.headers.get("Host", "") in (
            named | set(HOSTS) if self.port == _HTTP else named
        )

    def is_own(self, request: web.Request) -> bool:
        """Whether a request comes from this page, by its Origin."""
        own = f"http://{request.headers.get('Host', '')}"
        from_here = request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
        return request.headers.get("Origin") == own and from_here


class Page:
    """The page of one stack.

    Args:
        stack: the stack, one machine's.
        door: who may see it.
        model: which of the server's models is shown first. Default: the stack's own.
    """

    def __init__(self, stack: StackFile, door: Door, model: str | None = None) -> None:
        self.stack = stack
        self.model = model
        self.door = door
        self.up = project.command("up", stack)
        self.server = Server(self.up)
        self.meters: dict[str, live.Meter] = {}
        """By the model."""
        self._runs: Mapping[str, float] = {}
        """Seconds of a run of each version, in the mean, at the last look."""
        self._rolling = asyncio.Lock()

    def application(self) -> web.Application:
        """The page as an application of aiohttp."""
        made = web.Application(middlewares=[self._guard], client_max_size=MOST_BYTES)
        made.router.add_get("/enter", self._enter, allow_head=False)
        made.router.add_get("/", self._whole)
        made.router.add_post("/predict", self._predict)
        made.router.add_get("/rollback", self._confirm)
        made.router.add_post("/rollback", self._roll_back)
        made.router.add_get("/live", self._live)
        made.router.add_get("/metrics", self._metrics)
        made.router.add_get(f"/card/{{version:{VERSION_NUMBER}}}", self._card)
        made.router.add_get("/static/{name}", _static)
        made.on_response_prepare.append(_add_headers)
        made.on_cleanup.append(self._close)
        return made

    async def _close(self, application: web.Application) -> None:
        del application
        await self.server.close()

    # -- who may see it -----------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._admit(request)
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return _plain(error.status, error.reason, error.text or "")
        except UnknownModelError as error:
            return _plain(404, "There is no such model", f"{error}")
        except (StackError, WorkloadError, OSError) as error:
            return _plain(503, "There is nothing to show", f"{error}")

    def _admit(self, request: web.Request) -> None:
        if not self.door.is_called(request):
            raise web.HTTPMisdirectedRequest(
                text=f"This is the page at {self.door.address}, and answers to that name alone."
            )
        peer = request.transport and request.transport.get_extra_info("peername")
        if peer and is_foreign(peer[1], self.door.port):
            raise web.HTTPForbidden(text="This is the page of another user of this machine.")
        if request.path == "/enter" or request.path.startswith("/static/"):
            return
        if not self.door.knows(request):
            again = project.falaj("open", self.stack)
            raise web.HTTPForbidden(
                text="This browser hasn't been let in. Use the link that the command printed; it "
                f"works once. Get another one with: {again}\n"
                "If you came from elsewhere and were in already, reload."
            )
        if request.method not in ("GET", "HEAD") and not self.door.is_own(request):
            raise web.HTTPForbidden(text="This was sent from another page, and is refused.")

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        if "prefetch" in request.headers.get("Sec-Purpose", ""):
            raise web.HTTPServiceUnavailable(text="Come with a visit: the link works once.")
        if not self.door.enters(request.query.get("token", "")):
            if self.door.knows(request):
                raise web.HTTPSeeOther("/")
            again = project.falaj("open", self.stack)
            raise web.HTTPForbidden(
                text=f"This link was used, or isn't whole. Get another one with: {again}"
            )
        if request.headers.get("Sec-Fetch-Site", "none") == "none":
            return self.door.admit(web.Response(status=303, headers={"Location": "/"}))
        # Who comes from a file or another page has no cookie along a redirect, only from here on.
        return self.door.admit(_html("entered.html"))

    # -- what is shown ------------------------------------------------------------------------

    async def _account(self, request: web.Request) -> Account:
        """What the disk says of the model that is asked about."""
        config = service.config_path(self.stack)
        if not config.is_file():
            raise StackError(
                f"stack {self.stack.name} serves nothing now; start it with: {self.up}"
            )
        model = request.query.get("model", self.model)
        return await asyncio.to_thread(Account, config, model)

    async def _whole(self, request: web.Request) -> web.StreamResponse:
        account = await self._account(request)
        return await self._page(account, everything=request.query.get("logs") == "all")

    async def _page(
        self, account: Account, *, everything: bool = False, status: int = 200, **given: Any
    ) -> web.Response:
        shown_now = await asyncio.to_thread(self._known, account, everything)
        running = await self._running(account)
        # A server that just didn't answer isn't waited for again.
        drift = (
            {"found": None, "why": running["down"]}
            if running["down"]
            else await self._drift(account, shown_now["served"])
        )
        return _html(
            "page.html", status,
            **{**_predicting(shown_now["served"]), **shown_now,
               **running, "drift": drift, **given},
        )  # fmt: skip

    def _known(self, account: Account, everything: bool) -> dict[str, Any]:
        """All that the disk says; it takes the disk's time."""
        versions = account.versions()
        served = next((each for each in versions if each.number == account.served), None)
        manifest: Mapping[str, Any] = served.manifest if served else {}
        try:
            keys, keys_error = account.keys(), ""
        except WorkloadError as error:
            keys, keys_error = [], str(error)
        return {
            "stack": self.stack.name,
            "models": [(each, _of(each, account)) for each in account.models],
            "served": served,
            "versions": versions,
            "older": len(account.numbers) - len(versions),
            "alias": account.settings.alias,
            "list_error": account.list_error,
            "before": account.before,
            "certificates": account.certificates(),
            "keys": keys,
            "keys_error": keys_error,
            "findings": account.findings(everything=everything),
            "data": data_of(manifest),
            "calls": self._calls(account, manifest),
            "commands": {
                each: project.command(each, self.stack) for each in ("up", "status", "logs")
            },
        }

    def _calls(self, account: Account, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
        """How to call the server, to be pasted into a shell."""
        endpoint = service.endpoint(account.settings.host, account.port, account.model)
        base = endpoint.removesuffix(f"/{INFER}")
        authority = str(account.settings.tls.client_ca or "")
        example = forms.form_of(manifest).example()
        verb = "token" if account.is_first else f"token --model {shlex.quote(account.model)}"
        token = project.command(verb, self.stack, quiet=True)
        observing = project.falaj("token --scope observe", self.stack)
        root = base.partition("/v2/")[0]
        described = f"{root}/v2" if account.is_first else base
        found = [
            ("What the model takes and gives", summary.curl(token, authority, base)),
            ("All paths, in OpenAPI", summary.curl(token, authority, f"{described}/openapi.json")),
            ("Metrics", summary.curl(observing, authority, f"{root}/metrics")),
        ]
        if manifest.get("task") == LANGUAGE:
            statistics = mapping(manifest.get("statistics"))
            calls = [("Continue a text", service.COMPLETIONS, False)]
            if described_template(manifest.get("dataset")) is not None:
                calls.append(("Answer a conversation", service.CHATS, True))
            for words, path, is_chat in calls:
                request = request_of(account.model, statistics, is_chat=is_chat)
                call = summary.curl(token, authority, f"{root}/{path}", request)
                found.insert(0, (words, call))
        if example is not None:
            found.insert(0, ("Predict a row", summary.curl(token, authority, endpoint, example)))
        return found

    async def _predict(self, request: web.Request) -> web.StreamResponse:
        given = await _posted(request)
        account = await self._account(request)
        number = account.served
        version = await asyncio.to_thread(account.version, number) if number else None
        found = _predicting(version)
        found["given"] = {**found["given"], **given}
        status = 200
        if found["form"].answers:
            return await self._converse(request, account, found, given)
        try:
            row = found["form"].read(given)
            found["sent"] = forms.written(row)
            path = (
                f"/{service.COMPLETIONS}"
                if found["form"].continues
                else f"/v2/models/{quote(account.model, safe='')}/{INFER}"
            )
            reply = await self.server.ask(account, path, row)
        except forms.RowError as error:
            status, found["errors"] = 400, error.errors
        except UnreachableError as error:
            status, found["refused"], found["todo"] = 503, str(error), error.todo
        else:
            document = reply.document()
            answer = None
            if reply.status == 200 and found["form"].continues:
                answer = forms.text_of(document, row)
            elif reply.status == 200:
                answer = await self._answered(account, document, version)
            if answer is None:
                status = reply.status if 400 <= reply.status < 600 else 502
                found["refused"] = _refusal(reply.status, document)
            found["answer"] = answer
        if request.headers.get(PART):
            return _html("answer.html", status, **found)
        return await self._page(account, status=status, **found)

    async def _converse(
        self, request: web.Request, account: Account, found: dict[str, Any],
        given: Mapping[str, str],
    ) -> web.StreamResponse:  # fmt: skip
        """The next turn of a conversation, or another one's beginning."""
        status = 200
        try:
            if conversation.ANEW not in given:
                found["turns"] = turns = conversation.turns_of(given)
                row = conversation.request(found["form"], given, turns)
                found["sent"] = forms.written(row)
                reply = await self.server.ask(account, f"/{service.CHATS}", row)
                document = reply.document()
                answer = conversation.reply_of(document) if reply.status == 200 else None
                if answer is None:
                    status = reply.status if 400 <= reply.status < 600 else 502
                    found["refused"] = _refusal(reply.status, document)
                else:
                    asked = Message(USER, row["messages"][-1]["content"])
                    found["turns"] = [*turns, asked, Message(ASSISTANT, answer.text)]
                    found["reply"], found["given"][forms.MESSAGE] = answer, ""
        except forms.RowError as error:
            status, found["errors"] = 400, error.errors
        except UnreachableError as error:
            status, found["refused"], found["todo"] = 503, str(error), error.todo
        if request.headers.get(PART):
            return _html("conversation.html", status, **found)
        return await self._page(account, status=status, **found)

    async def _answered(self, account: Account, document: Any, version: Version | None) -> Any:
        """The answer, by the manifest of the version that gave it."""
        reported = mapping(document).get("model_version")
        manifest: Mapping[str, Any] = version.manifest if version else {}
        if version is None or reported != str(version.number):
            number = (
                int(reported)
                if isinstance(reported, str) and reported.isascii() and reported.isdecimal()
                else 0
            )
            other = await asyncio.to_thread(account.version, number) if number else None
            manifest = other.manifest if other else {}
        return forms.answer_of(document, manifest)

    # -- going back ---------------------------------------------------------------------------

    async def _confirm(self, request: web.Request) -> web.StreamResponse:
        account = await self._account(request)
        if account.before is None:
            return _plain(409, "There is nothing to go back to", account.list_error or
                          "No version that served before it is there.")  # fmt: skip
        current = account.aliases[account.settings.alias].version
        return _html("rollback.html", model=account.model, current=current, before=account.before,
                     stack=self.stack.name, of=_of(account.model, account))  # fmt: skip

    async def _roll_back(self, request: web.Request) -> web.StreamResponse:
        """What `falaj rollback` does, if what was shown still is so."""
        posted = await _posted(request)
        async with self._rolling:
            account = await self._account(request)
            alias = account.aliases.get(account.settings.alias)
            if alias is None or posted.get("current") != str(alias.version):
                why = account.list_error or "Another version is served by now than you saw."
                return _plain(409, "Nothing was changed", why)
            done = await asyncio.to_thread(service.roll_back, self.stack, account.model)
        if done.returncode != 0:
            reason = done.stderr.strip().removeprefix("error: ")
            return _plain(409, "Nothing was changed", reason)
        raise web.HTTPSeeOther(f"/{_of(account.model, account)}#versions")

    # -- what the server says -----------------------------------------------------------------

    async def _live(self, request: web.Request) -> web.StreamResponse:
        account = await self._account(request)
        running = await self._running(account)
        return _html(
            "live.html", 200, **{**running, "shown_version": request.query.get("version", "")}
        )

    async def _running(self, account: Account) -> dict[str, Any]:
        """What the server does now, by its metrics and its own account."""

        async def metrics() -> str:
            reply = await self.server.ask(account, "/metrics")
            if reply.status != 200:
                raise UnreachableError(
                    f"the server refused its metrics: {_refusal(reply.status, reply.document())}",
                    f"have its certificates made anew: {self.up}",
                )
            text = reply.body.decode("utf-8", "replace")
            if account.is_first and is_mapping(account.state.get("shadow")):
                self._runs = mean_runs(text, account.model)
            return text

        down, todo = "", ""
        meter = self.meters.setdefault(account.model, live.Meter())
        try:
            await meter.look(metrics, account.model)
        except UnreachableError as error:
            down, todo = str(error), error.todo
        except ValueError as error:
            down, todo = (
                f"the server's metrics can't be read: {error}",
                f"start it anew: {self.up}",
            )
        standing = account.standing
        beside: Mapping[str, Any] = account.state if account.is_first and not down else {}
        return {
            "model": account.model, "of": _of(account.model, account),
            "experiment": experiment_of(beside.get("experiment")),
            "shadow": shadow_of(beside.get("shadow")),
            "served_seconds": self._runs.get(str(account.served)),
            "down": down, "todo": todo if down else "",
            "state": str(standing.get("state", "unknown")) if not down else "down",
            "state_error": str(standing.get("error") or ""),
            "figures": meter.figures, "charts": meter.charts(),
            "has_texts": meter.has_texts, "has_others": meter.has_others,
            "shown_version": "", "served_now": account.served,
        }  # fmt: skip

    async def _drift(self, account: Account, version: Version | None) -> dict[str, Any]:
        if (key := account.drift_off) is not None:
            return {"found": None, "why": f"Drift isn't watched of this model: {key} is false."}
        path = f"/v2/models/{quote(account.model, safe='')}/drift"
        try:
            reply = await self.server.ask(account, path)
        except UnreachableError as error:
            return {"found": None, "why": str(error)}
        if reply.status == 404:
            return {"found": None, "why": "This server doesn't watch for drift: an earlier "
                    f"version of the software runs it. Start it anew with: {self.up}"}  # fmt: skip
        found = drift_of(reply.document()) if reply.status == 200 else None
        why = "" if found else _refusal(reply.status, reply.document())
        if found is not None:
            task = version.manifest.get("task") if version else None
            why = unwatched(found, is_language=task == LANGUAGE)
        return {"found": None if why else found, "why": why}

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        try:
            reply = await self.server.ask(await self._account(request), "/metrics")
        except UnreachableError as error:
            return _plain(503, "The server doesn't answer", f"{error}; {error.todo}")
        return web.Response(
            body=reply.body, status=reply.status, content_type="text/plain", charset="utf-8"
        )

    async def _card(self, request: web.Request) -> web.StreamResponse:
        account = await self._account(request)
        number = int(request.match_info["version"])
        try:
            body = await asyncio.to_thread(account.page_of, number)
        except WorkloadError as error:
            return _plain(404, "There is no such card", str(error))
        return web.Response(
            body=body, content_type="text/html", charset="utf-8",
            headers={"Content-Security-Policy": _POLICY_OF_CARDS},
        )  # fmt: skip


async def _posted(request: web.Request) -> dict[str, str]:
    """The fields of a form."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPUnsupportedMediaType(text="Only what the page's own forms send is taken.")
    try:
        posted = await request.post()
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"The form can't be read: {error}") from None
    return {key: value for key, value in posted.items() if isinstance(value, str)}


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    if name not in _STATIC:
        raise web.HTTPNotFound(text="There is nothing here.")
    return web.Response(text=_file(f"static/{name}"), content_type=_STATIC[name], charset="utf-8")


async def _add_headers(request: web.Request, answer: web.StreamResponse) -> None:
    del request
    for name, value in _HEADERS.items():
        if name not in answer.headers or name == "Server":
            answer.headers[name] = value


def _predicting(version: Version | None) -> dict[str, Any]:
    """What the form of a version shows before anything was sent."""
    made = forms.form_of(version.manifest if version else {})
    return {
        "form": made, "given": made.typical(), "errors": {}, "answer": None, "refused": "",
        "names": {each.key: each.name for each in made.fields} | {
            conversation.KEPT: "The conversation"
        }, "todo": "", "sent": "", "turns": [], "reply": None,
    }  # fmt: skip


def _refusal(status: int, document: object) -> str:
    """What the server said, in its own words where it has any."""
    reason = mapping(document).get("error")
    if is_mapping(reason):  # as OpenAI's API has it
        reason = reason.get("message")
    return (
        reason
        if isinstance(reason, str) and reason
        else f"the server answered with status {status}"
    )


def _of(model: str, account: Account) -> str:
    """What the page's addresses have behind them for a model: nothing where there is one alone."""
    return f"?model={quote(model, safe='')}" if len(account.models) > 1 else ""


def _plain(status: int, title: str, text: str) -> web.Response:
    """A page with one sentence, and the way back."""
    return _html("message.html", status, title=title, text=text)


def _html(name: str, status: int = 200, **given: Any) -> web.Response:
    text = _environment().get_template(name).render(given)
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FunctionLoader(lambda name: _file(f"templates/{name}")),
        autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    found.filters["short"] = _short
    found.filters["moment"] = _moment
    found.filters["exact"] = lambda text: Markup(escape(text))  # noqa: S704 - escaped, unchanged
    found.filters["kept"] = conversation.kept
    found.filters["duration"] = live.duration
    found.filters["rate"] = live.rate
    found.globals.update(  # pyright: ignore[reportCallIssue, reportUnknownMemberType]
        {
            "other": forms.OTHER,
            "pasted": forms.PASTED,
            "message": forms.MESSAGE,
            "kept": conversation.KEPT,
            "anew": conversation.ANEW,
            "every": live.EVERY,
            "width": live.WIDTH,
            "height": live.HEIGHT,
            "minutes": round(live.SPAN / 60),
        }  # pyright: ignore
    )
    return found


def _visible(value: object) -> object:
    """Signs that don't show, or turn what follows, are written as their number."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(text: str) -> str:
    """A moment of ISO 8601 as people read it; other texts as they are."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return _short(text, 40)


def _short(text: object, most: int = MOST_NAME) -> str:
    shown = str(text)
    # Marks of direction keep the count together behind a name that runs from right to left.
    return (
        shown if len(shown) <= most else f"{shown[:most]}… \u200e({len(shown):,} characters)\u200e"
    )


@cache
def _file(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text("utf-8")


def opened(folder: Path, door: Door) -> Path:
    """Write a private file that leads a browser in: command lines are read by others."""
    path = folder / "open.html"
    path.touch(0o600)
    path.write_text(
        _environment().get_template("open.html").render(link=door.link), encoding="utf-8"
    )
    return path
