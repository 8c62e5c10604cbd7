"""Hosts that data may go to, and hosts of services that keep it abroad."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

from falaj.components.catalogue.clusters import PRIVATE_SUFFIXES
from falaj.components.catalogue.region_names import AZURE_LOCATIONS, regions_in
from falaj.policies.model import Settings, text

_HOST: Final = re.compile(
    r"(?:[a-z][a-z0-9+.:-]*:)?//(?:[^/?#@\s]*@)?(\[[0-9a-f:.%]+\]|[^/?#:@\s]+)", re.IGNORECASE
)
_BARE: Final = re.compile(
    r"((?:[a-z0-9_*](?:[a-z0-9_-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]|\d+\.\d+\.\d+\.\d+)\.?"
    r"(?::\d+)?(?:/\S*)?",
    re.IGNORECASE,
)

#: Schemes of buckets, which a stack's own rules place.
BUCKET_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
#: Services that take data and keep it abroad, by the end of their hosts. None offers a region in
#: the country: what each is, from the services' own documentation of their sites.
FOREIGN_SERVICES: Final[dict[str, str]] = {
    "datadoghq.com": "Datadog", "datadoghq.eu": "Datadog", "ddog-gov.com": "Datadog",
    "newrelic.com": "New Relic", "nr-data.net": "New Relic", "sentry.io": "Sentry",
    "honeycomb.io": "Honeycomb", "grafana.net": "Grafana Cloud", "logz.io": "Logz.io",
    "splunkcloud.com": "Splunk Cloud", "signalfx.com": "Splunk Observability",
    "sumologic.com": "Sumo Logic", "dynatrace.com": "Dynatrace", "elastic-cloud.com": "Elastic",
    "lightstep.com": "Lightstep", "loggly.com": "Loggly", "papertrailapp.com": "Papertrail",
    "pagerduty.com": "PagerDuty", "opsgenie.com": "Opsgenie", "hooks.slack.com": "Slack",
    "discord.com": "Discord", "api.telegram.org": "Telegram", "wandb.ai": "Weights & Biases",
    "comet.com": "Comet", "langchain.com": "LangSmith", "openai.com": "OpenAI",
    "anthropic.com": "Anthropic", "cohere.ai": "Cohere", "mistral.ai": "Mistral",
    "huggingface.co": "Hugging Face", "hf.co": "Hugging Face", "replicate.com": "Replicate",
    "together.xyz": "Together", "groq.com": "Groq", "generativelanguage.googleapis.com": "Gemini",
    "storage.googleapis.com": "Google Cloud Storage", "mongodb.net": "MongoDB Atlas",
    "snowflakecomputing.com": "Snowflake", "webhook.site": "webhook.site",
    "segment.io": "Segment", "mixpanel.com": "Mixpanel", "amplitude.com": "Amplitude",
    "google-analytics.com": "Google Analytics", "zapier.com": "Zapier", "ngrok.io": "ngrok",
    "sendgrid.net": "SendGrid", "mailgun.org": "Mailgun", "twilio.com": "Twilio",
    "cloudflarestorage.com": "Cloudflare R2", "backblazeb2.com": "Backblaze B2",
    "wasabisys.com": "Wasabi", "digitaloceanspaces.com": "DigitalOcean Spaces",
}  # fmt: skip


def host_of(value: object) -> str:
    """The host of a URL, or of a bare ``host:port/path``; empty where there is none.

    In small letters, without port, user or brackets.
    """
    given = text(value)
    if not given or len(given) > 4096 or "\n" in given:
        return ""
    if found := _HOST.match(given):
        return found[1].strip("[]").rstrip(".").lower()
    bare = _BARE.fullmatch(given)
    return bare[1].lower() if bare else ""


_NAME: Final = re.compile(r"[a-z_][\w-]*")


@lru_cache(maxsize=4096)
def is_private(host: str) -> bool:
    """Whether a host can be reached within one's own networks only."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        # A name without dots begins with a letter: 0x08080808 and 134744072 are addresses.
        return bool(_NAME.fullmatch(host)) or host.endswith(PRIVATE_SUFFIXES)
    return address.is_private or address.is_loopback or address.is_link_local


def _covers(pattern: str, host: str) -> bool:
    name = re.split(r"[:/]", pattern, maxsplit=1)[0].lower()
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def is_listed(host: str, settings: Settings) -> bool:
    """Whether the setting ``allowedHosts`` names a host."""
    return any(_covers(each, host) for each in settings.allowed_hosts)


def region_of_host(host: str) -> str:
    """The place that a host of AWS or Azure names, as ``aws/me-central-1``; else empty."""
    for region, _ in regions_in(host):
        return f"aws/{region}"
    if host.endswith((".azure.com", ".azure.net", ".windows.net", ".azurecr.io", ".azmk8s.io")):
        for label in reversed(host.split(".")):
            if label in AZURE_LOCATIONS:
                return f"azure/{label}"
    return ""


def may_talk_to(host: str, settings: Settings) -> bool:
    """Whether data may go to a host: private, in an allowed region, or listed in the settings."""
    return (
        is_private(host)
        or region_of_host(host) in settings.allowed_places
        or is_listed(host, settings)
    )


def foreign_service(host: str) -> str:
    """The known service abroad that a host belongs to; empty for others."""
    parts = host.split(".")
    for start in range(len(parts) - 1):
        if found := FOREIGN_SERVICES.get(".".join(parts[start:])):
            return found
    return ""
