"""Settings of the watch over a served model's drift, and their check against the rest."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from falaj.components.specification.arguments import SameAs
from falaj.components.specification.drift import WebhookArgs
from falaj.components.specification.limits import Between, TextRule
from falaj.components.specification.workload_bounds import bound, form
from falaj.stacks.settings.problems import Drop, Finding, Put, format_value
from falaj.stacks.settings.section import Section
from falaj.workloads.watching.memory import Carrier

RETRAIN: Final = "retrain"
SHADOW: Final = "shadow"
ROLL_BACK: Final = "rollBack"
TELL: Final = "tell"
_INTERVAL: Final = bound("watch", "interval_seconds")
_COOL_DOWN: Final = bound("watch", "cool_down_hours")
_PER_WEEK: Final = bound("watch", "most_retrainings_per_week")
_WEBHOOK: Final = form("watch", "webhook")
_HOST: Final = TextRule(
    r"^(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
    "a host's name without port, or '*.' and a domain",
    "hooks.example.ae",
)
_MAIL_HOST: Final = TextRule(
    r"^[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?$",
    "a host's name or address, without port",
    "mail.example.ae",
)
_ADDRESS: Final = TextRule(
    r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
    "an address of mail",
    "falaj@example.ae",
)
_Path = Annotated[str, TextRule(r"^.*\S.*$", "text that is not empty", "data/labelled")]


class MailSettings(Section):
    """Where mails of a watch go, and by whom; always over TLS."""

    server: Annotated[str, _MAIL_HOST]
    """Host of the server that takes mails: of one's own networks, of the country's regions, or
    among the watch's ``allowedHosts``."""
    port: Annotated[int, Between(1, 65_535)] = 587
    """Of the server: usually 587 for ``starttls``, and 465 for ``tls``."""
    security: Literal["starttls", "tls"] = "starttls"
    """When TLS begins: after the server offered it, or at once. Without TLS nothing is sent."""
    sender: Annotated[str, _ADDRESS]
    """Address that mails come from."""
    recipients: Annotated[list[Annotated[str, _ADDRESS]], Field(min_length=1, max_length=20)]
    """Addresses that they go to."""
    user: Annotated[str, TextRule(r"^\S.{0,199}$", "a name", "falaj")] | None = None
    """Who submits them. Default: the server asks nobody."""
    password_file: _Path | None = None
    """File of the user's password, from the project's folder, which only its owner can read."""
    authority: _Path | None = None
    """PEM file of the authority that the server's certificate is of, from the project's folder.
    Default: those that the machine trusts."""


class DemandsSettings(Section):
    """What a version that gets copies of requests has to come to before it serves."""

    requests: Annotated[int, Between(100, 1_000_000_000)] = 1_000
    """Copies that it has to have been given."""
    minutes: Annotated[float, Between(0, 10_080)] = 10.0
    """For how long it has to have been looked at."""
    least_agreement: Annotated[float, Between(0, 1)] = 0.8
    """Share of rows in which it has to agree with the version that serves. One that learned from
    what drifted answers otherwise where that is right: lower it then, to 0 to demand nothing."""
    most_failed: Annotated[float, Between(0, 1)] = 0.001
    """Share of copies that it may fail on; the version that serves answered all of them."""


class WatchSettings(Section):
    """What is done about drift of the served models, by a program of its own beside the server. A
    further model is told of, and rolled back where this stack may write its registry."""

    steps: list[Literal["tell", "shadow", "rollBack", "retrain"]] = Field(
        default_factory=lambda: ["tell"]
    )
    """What may be done, always in this order: ``tell`` says what drifted; ``shadow`` has a version
    serve that got copies of requests and is fit to, and ends one that isn't; ``rollBack`` serves
    the previous version where outcomes say that the serving one is worse; ``retrain`` brings the
    stack up with new data."""
    shadow: DemandsSettings = DemandsSettings.unset()
    """What is demanded of a shadow, with that step alone."""
    interval_seconds: Annotated[int, _INTERVAL] = _INTERVAL.default
    """Between two looks at the server's report, in seconds."""
    webhook: Annotated[Annotated[str, _WEBHOOK] | None, SameAs(WebhookArgs, "webhook")] = None
    webhook_authority: _Path | None = None
    """PEM file of the authority that the webhook's certificate is of, from the project's folder.
    Default: those that the machine trusts."""
    mail: MailSettings | None = None
    """How the same is sent by mail. Default: it isn't."""
    allowed_hosts: list[Annotated[str, _HOST]] = Field(default_factory=list)
    """Hosts in the country that the webhook and the mail's server may have. One's own networks
    need not be named."""
    cool_down_hours: Annotated[float, _COOL_DOWN] = _COOL_DOWN.default
    """How long after a rollback or a retraining none is begun, in hours."""
    most_retrainings_per_week: Annotated[int, _PER_WEEK] = _PER_WEEK.default
    """Most retrainings begun within seven days, whatever became of them."""
    data: _Path | None = None
    """Folder of tables to learn from, from the project's folder: the last by its name is the
    newest, and holds all rows. Default: the stack's ``dataset``, once that file has changed."""
    alpha: Annotated[float, Between(1e-6, 0.1)] = 0.01
    """How seldom a version may be called worse than the one before it where it isn't, however
    often it is looked."""

    @property
    def carriers(self) -> list[Carrier]:
        """How messages are sent."""
        found: list[Carrier] = ["webhook"] if self.webhook is not None else []
        return [*found, "mail"] if self.mail is not None else found


def check_watch(
    watch: WatchSettings, *, is_table: bool, model: str | None, made: str, has_shadow: bool
) -> list[Finding]:
    """Steps that can't be, a webhook abroad, data that nobody adds rows to.

    Args:
        watch: what is asked for.
        is_table: whether the stack's dataset is a table, of which newer ones can be.
        model: the model's name, as the stack says it.
        made: the name that is made where it says none.
        has_shadow: whether the server gives a second version copies of requests.
    """
    if SHADOW in watch.steps and not has_shadow:
        path = ("service", "shadow")
        message = "missing; the watch's step shadow is for a server that copies requests"
        return [Finding(path, message, (Put(path, {"first": True}),))]
    found = [*_steps(watch, is_table=is_table), *_webhook(watch), *_mail(watch)]
    if not found and watch.data is not None and model is None:
        message = "missing; with data of the watch it can't be made from the dataset's name"
        found.append(Finding(("model",), message, (Put(("model",), made),)))
    if watch.webhook is None and watch.webhook_authority is not None:
        message = "given without webhook, whose certificate it is for"
        path = ("watch", "webhookAuthority")
        found.append(Finding(path, message, (Drop(path),)))
    return found


def _steps(watch: WatchSettings, *, is_table: bool) -> list[Finding]:
    path = ("watch", "steps")
    steps = list(dict.fromkeys(watch.steps))
    if TELL not in steps:
        message = f"given {', '.join(watch.steps) or 'none'}; what is done is always told as well"
        return [Finding(path, message, (Put(path, [TELL, *steps]),))]
    if RETRAIN in steps and not is_table:
        message = "retrain is for a table, of which a newer one can be there"
        return [Finding(path, message, (Put(path, [each for each in steps if each != RETRAIN]),))]
    return []


def _webhook(watch: WatchSettings) -> list[Finding]:
    if watch.webhook is None:
        return []
    path = ("watch", "webhook")
    try:
        parts = urlsplit(watch.webhook)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return [Finding(path, f"given {format_value(watch.webhook)}: {error}")]
    return _judged(watch, path, host, path)


def _mail(watch: WatchSettings) -> list[Finding]:
    if watch.mail is None:
        return []
    path, mail = ("watch", "mail"), watch.mail
    if (mail.user is None) != (mail.password_file is None):
        key, other = ("user", "passwordFile")[:: 1 if mail.user is None else -1]
        return [Finding((*path, key), f"missing, where {other} is given: one needs the other")]
    return _judged(watch, (*path, "server"), mail.server, path)


def _judged(
    watch: WatchSettings, path: tuple[str, ...], host: str, whole: tuple[str, ...]
) -> list[Finding]:
    """What is to be said of a receiver; ``whole``: what goes where it is abroad."""
    reason = refused_host(host, watch.allowed_hosts)
    if reason is None:
        return []
    hosts = ("watch", "allowedHosts")
    # What is known to be abroad isn't made better by naming it.
    mend = (Drop(whole),) if "abroad" in reason else (Put(hosts, [*watch.allowed_hosts, host]),)
    return [Finding(path, reason, mend)]


def refused_host(host: str, allowed: list[str]) -> str | None:
    """Why nothing may be sent to a host; None where it may.

    As the policy packs judge receivers: hosts of one's own networks, of the country's regions, and
    those that are named as being in the country.

    Args:
        host: its name or address, without a port.
        allowed: names, and ``*.`` with domains.
    """
    # The packs take a while to load, and few stacks have a webhook.
    from falaj.policies.model import Settings  # noqa: PLC0415
    from falaj.policies.reading.hosts import foreign_service, may_talk_to  # noqa: PLC0415

    name = host.lower().rstrip(".")
    if service := foreign_service(name):
        return f"given the host {host}, which is {service}: it keeps what it gets abroad"
    if may_talk_to(name, Settings(allowed_hosts=tuple(allowed))):
        return None
    return (
        f"given the host {host}; allowed: hosts of one's own networks, of the country's regions, "
        "and those in allowedHosts, if they stand in the country"
    )
