"""Who gets the platform's alerts: routes and receivers of Alertmanager, and its way to them.

Objects: https://prometheus-operator.dev/docs/developer/alerting/
Routes: https://prometheus.io/docs/alerting/latest/configuration/#route
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict
from urllib.parse import urlsplit

from annotated_types import Len

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import MONITORING, PlatformSpec, Values
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, Between, OneOf, TextRule

SEVERITIES: Final = ("critical", "warning", "info")
"""Of alerts, the worst first."""
HEARTBEAT: Final = "Watchdog"
"""An alert of the chart's that always fires."""
_NOBODY: Final = "nobody"
_BEAT_MINUTES: Final = 5
_SMTP: Final = re.compile(r"^([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):([0-9]{1,5})$")
_MAILBOX: Final = TextRule(r"^[^@\s,<>]+@[A-Za-z0-9.-]+$", "an address of mail", "ops@example.ae")
_LAST_PORT: Final = 65_535


@described
class ReceiverOptions(TypedDict):
    """Somebody who gets alerts: by one of ``webhook``, ``pagerduty`` and ``email``."""

    webhook: NotRequired[str]
    """Address, ``https://…``, that alerts are sent to as JSON:
    https://prometheus.io/docs/alerting/latest/configuration/#webhook_config. Its bearer token is
    the entry ``token`` of ``secret``, where that is given."""
    pagerduty: NotRequired[str]
    """Address, ``https://…``, of a service in the country that takes PagerDuty's events
    (version 2). Its routing key is the entry ``routing-key`` of ``secret``."""
    email: NotRequired[Annotated[list[Annotated[str, _MAILBOX]], Len(1)]]
    """Addresses that get mail through ``relay``."""
    relay: NotRequired[str]
    """Mail relay as ``host:port``, which has to offer TLS. Needed with ``email``."""
    sender: NotRequired[Annotated[str, _MAILBOX]]
    """Address that mail is from. Needed with ``email``."""
    user: NotRequired[str]
    """Name at the relay; the password is the entry ``password`` of ``secret``. Default: nobody
    logs in."""
    secret: NotRequired[Annotated[str, OBJECT]]
    """Secret in ``monitoring`` with what lets Alertmanager in. Needed with ``pagerduty`` and
    ``user``."""
    ca_secret: NotRequired[Annotated[str, OBJECT]]
    """Secret in ``monitoring`` whose entry ``ca.crt`` is the authority that the receiver's
    certificate is of. Default: those that Alertmanager's image brings."""
    cidrs: list[str]
    """Private ranges that the receiver or relay is in: Alertmanager may call nobody else."""
    severities: NotRequired[
        Annotated[list[Annotated[str, OneOf(SEVERITIES)]], Len(1), Default(SEVERITIES[:2])]
    ]
    """Which alerts."""
    heartbeat: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether it gets an alert that always fires, every five minutes: who misses it knows that
    nobody would hear of anything else."""
    repeat_hours: NotRequired[Annotated[int, Between(1, 168), Default(4)]]
    """Hours after which an alert that still fires is sent again."""


#: What a receiver is reached by, and what else belongs to it alone.
_WAYS: Final = {"webhook": (), "pagerduty": (), "email": ("relay", "sender", "user")}


def check(options: OptionsChecker) -> None:
    """Refuse ``receivers`` that can't be."""
    found = options.named("receivers", ReceiverOptions)
    if _NOBODY in found:
        options.say("receivers", f"given {_NOBODY!r}, which takes what nobody asks for; rename it")
    for each in found.values():
        _check_way(each)
        each.private_ranges("cidrs")
        for option in ("pagerduty", "user"):
            if each.given.get(option) and not each.given.get("secret"):
                each.say("secret", f"missing; needed with {option}")
        if each.given.get("email") and each.given.get("secret") and not each.given.get("user"):
            each.say("secret", "is for who logs in at the relay: give user, too, or leave it out")


def _check_way(options: OptionsChecker) -> None:
    given = [each for each in _WAYS if options.given.get(each) is not None]
    if len(given) != 1:
        options.say(
            given[1] if given else "webhook",
            f"given with {given[0]}: a receiver has one of {', '.join(_WAYS)}; name another one"
            if given
            else f"missing; a receiver has one of {', '.join(_WAYS)}",
        )
        return
    for way, belongs in _WAYS.items():
        for option in belongs:
            if way != given[0] and options.given.get(option) is not None:
                options.say(option, f"is for {way}; leave it out")
    if given[0] == "email":
        _check_mail(options)
        return
    address = str(options.given[given[0]]).strip()
    if address and not _host_and_port(address):
        options.say(
            given[0],
            f"given {address!r}; allowed: an address that starts with https://, without a "
            "name or password in it",
        )


def _check_mail(options: OptionsChecker) -> None:
    for option in ("relay", "sender"):
        if options.given.get(option) is None:
            options.say(option, "missing; needed with email")
    relay = str(options.given.get("relay") or "").strip()
    found = _SMTP.match(relay)
    if relay and not (found and 1 <= int(found[2]) <= _LAST_PORT):
        options.say("relay", f"given {relay!r}; allowed: host:port")


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Where an https:// address leads to; None for others, and for those that name somebody."""
    try:
        found = urlsplit(address)
        port = found.port or 443
    except ValueError:
        return None
    if found.scheme != "https" or not found.hostname or "@" in found.netloc:
        return None
    return found.hostname, port


def _of(spec: PlatformSpec) -> Mapping[str, Mapping[str, Any]]:
    return spec.options(MONITORING)["receivers"] or {}


def values(spec: PlatformSpec) -> Values:
    """Values of the chart below ``alertmanagerSpec``.

    Configurations in the platform's namespace are for all alerts, those in others for alerts of
    their namespace.
    """
    if not _of(spec):
        return {}
    strategy = {"type": "OnNamespaceExceptForAlertmanagerNamespace"}
    return {"alertmanagerConfigMatcherStrategy": strategy}


def objects(spec: PlatformSpec) -> list[Manifest]:
    """A configuration and a network policy for each receiver.

    The operator leaves a configuration out whose secret is missing: with one for all, nobody would
    be told.
    """
    found: list[Manifest] = []
    for name, each in _of(spec).items():
        found += [_configuration(spec, name, each), _policy(spec, name, each)]
    return found


def _configuration(spec: PlatformSpec, name: str, options: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "AlertmanagerConfig",
        "metadata": spec.metadata(f"falaj-{name}", MONITORING),
        "spec": {
            # What the receiver doesn't ask for goes nowhere.
            "route": {"receiver": _NOBODY, "routes": _routes(name, options)},
            "receivers": [{"name": _NOBODY}, {"name": name, **_receiver(options)}],
        },
    }


def _routes(name: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    wanted = "|".join(each for each in SEVERITIES if each in options["severities"])
    found = [
        {
            "receiver": name,
            "matchers": [{"name": "severity", "matchType": "=~", "value": wanted}],
            "groupBy": ["alertname", "namespace"],
            "groupWait": "30s",
            "groupInterval": "5m",
            "repeatInterval": f"{options['repeat_hours']}h",
            "continue": True,
        }
    ]
    if options["heartbeat"]:
        found.append({
            "receiver": name,
            "matchers": [{"name": "alertname", "matchType": "=", "value": HEARTBEAT}],
            "groupBy": ["alertname"],
            "groupWait": "0s",
            "groupInterval": "1m",
            "repeatInterval": f"{_BEAT_MINUTES}m",
            "continue": True,
        })  # fmt: skip
    return found


def _receiver(options: Mapping[str, Any]) -> dict[str, Any]:
    def entry(key: str) -> dict[str, str]:
        return {"name": options["secret"] or "", "key": key}

    authority = {"secret": {"name": options["ca_secret"], "key": "ca.crt"}}
    tls = {"tlsConfig": {"ca": authority}} if options["ca_secret"] else {}
    if mail := options["email"]:
        user = options["user"]
        login = {"authUsername": user, "authPassword": entry("password")} if user else {}
        return {
            "emailConfigs": [
                {
                    "to": each,
                    "from": options["sender"],
                    "smarthost": options["relay"],
                    "requireTLS": True,
                    "sendResolved": True,
                    **login,
                    **tls,
                }
                for each in mail
            ]
        }
    # Where it is redirected to, nobody has judged.
    client: dict[str, Any] = {"followRedirects": False, **tls}
    if address := options["pagerduty"]:
        config = {"url": address, "routingKey": entry("routing-key"), "sendResolved": True}
        return {"pagerdutyConfigs": [{**config, "httpConfig": client}]}
    if options["secret"]:
        client["authorization"] = {"type": "Bearer", "credentials": entry("token")}
    return {
        "webhookConfigs": [{"url": options["webhook"], "sendResolved": True, "httpConfig": client}]
    }


def _policy(spec: PlatformSpec, name: str, options: Mapping[str, Any]) -> Manifest:
    """Lets Alertmanager's pods, and no others of the namespace, call a receiver."""
    address = options["webhook"] or options["pagerduty"]
    reached = _host_and_port(address) if address else None
    port = reached[1] if reached else int(str(options["relay"]).rpartition(":")[2])
    to = [{"ipBlock": {"cidr": each}} for each in options["cidrs"]]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": spec.metadata(f"allow-to-receiver-{name}", MONITORING),
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "alertmanager"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": to, "ports": [{"port": port, "protocol": "TCP"}]}],
        },
    }
