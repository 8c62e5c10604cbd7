"""Packages that make values, not things in a cloud: ``random`` and ``tls``.

Values have the form that was asked for and are the same in each run: nothing here is random, and
no key opens anything.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import string
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.inputs import Inputs, as_list
from falaj.sandbox.clouds.model import GenericModel, Properties, World

#: Of random_string and random_password: registry.terraform.io/providers/hashicorp/random.
_SPECIAL: Final = "!@#$%&*()-_=+[]{}<>:?"
_SETS: Final = {
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "numeric": string.digits,
    "special": _SPECIAL,
}
_TEXT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("lower", "upper", "number", "numeric", "special"), True),
    **dict.fromkeys(("minLower", "minUpper", "minNumeric", "minSpecial"), 0),
}
_UNSET: Final[Mapping[str, Mapping[str, Any]]] = {
    "RandomString": _TEXT,
    "RandomPassword": _TEXT,
    "RandomPet": {"length": 2, "separator": "-"},
}
"""What holds where an input says nothing, by type."""
_REPLACING: Final = frozenset(
    {
        "keepers", "length", "lower", "upper", "number", "numeric", "special", "overrideSpecial",
        "minLower", "minUpper", "minNumeric", "minSpecial", "min", "max", "seed", "byteLength",
        "prefix", "separator", "inputs", "resultCount",
    }
)  # fmt: skip
"""Inputs of ``random`` a change of which makes a new value: all there are."""


def _bytes(count: int, *seeds: str) -> bytes:
    blocks = (
        hashlib.sha256("|".join((*seeds, str(number))).encode()).digest()
        for number in itertools.count()
    )
    return bytes(itertools.islice(itertools.chain.from_iterable(blocks), count))


def _text(inputs: Inputs, seed: str) -> str:
    """Characters of all sets that are asked for, each as often as it has to be."""
    special = inputs.string("overrideSpecial") or _SPECIAL
    sets = {name: special if name == "special" else each for name, each in _SETS.items()}
    off = {name for name in sets if inputs.flag(name) is False}
    if inputs.flag("number") is False:  # the older name
        off.add("numeric")
    allowed = "".join(each for name, each in sets.items() if name not in off)
    length = int(inputs.number("length") or 0)
    least = {name: int(inputs.number(f"min{name.capitalize()}") or 0) for name in sets}
    needed = [each for name, each in sets.items() for _ in range(least[name])]
    # One of each set that is allowed, too: services ask that of passwords.
    needed += [each for name, each in sets.items() if name not in off and not least[name]]
    pools = [*needed[:length], *[allowed] * (length - len(needed))]
    drawn = zip(pools, _bytes(length, seed, "characters"), strict=False)
    return "".join(pool[byte % len(pool)] for pool, byte in drawn if pool)


def _uuid(version: int, seed: str) -> str:
    drawn = bytearray(_bytes(16, seed))
    drawn[6] = version << 4 | drawn[6] & 0x0F
    drawn[8] = 0x80 | drawn[8] & 0x3F  # RFC 9562, 4.1: the variant
    return str(uuid.UUID(bytes=bytes(drawn)))


def _pet(inputs: Inputs, seed: str) -> str:
    words = [_bytes(3, seed, str(n)).hex() for n in range(int(inputs.number("length") or 2) - 1)]
    parts = [inputs.string("prefix"), "sandbox", *words]
    return (inputs.optional_string("separator") or "-").join(part for part in parts if part)


def _number(inputs: Inputs, seed: str) -> int:
    least, most = int(inputs.number("min") or 0), int(inputs.number("max") or 0)
    return least + int.from_bytes(_bytes(8, seed), "big") % max(most - least + 1, 1)


def _shuffled(inputs: Inputs, seed: str) -> list[Any]:
    items = sorted(as_list(inputs.at("inputs")), key=lambda item: _bytes(8, seed, str(item)))
    count = inputs.number("resultCount")
    if count is None or not items:
        return items
    return list(itertools.islice(itertools.cycle(items), int(count)))


class RandomModel(GenericModel):
    """The provider ``random``."""

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """The value itself where that is the id; else the sandbox makes one."""
        asked, kind = Inputs(inputs), token.rpartition(":")[2]
        if kind == "RandomPet":
            return _pet(asked, urn)
        if kind == "RandomString":
            return _text(asked, urn)
        if kind.startswith("RandomUuid"):
            return _uuid(7 if kind.endswith("7") else 4, urn)
        if kind == "RandomId":
            return _url(_bytes(int(asked.number("byteLength") or 1), urn))
        return super().identity(token, name, inputs, config, urn)

    def outputs(
        self, token: str, id: str, inputs: Properties, config: Properties, world: World
    ) -> Properties:
        """The inputs and the values."""
        kind = token.rpartition(":")[2]
        return {**_UNSET.get(kind, {}), **inputs, **dict(_values(kind, Inputs(inputs), id))}

    def replacements(self, token: str) -> frozenset[str]:
        """Whatever is asked for otherwise is another value."""
        return _REPLACING


def _values(kind: str, asked: Inputs, id: str) -> Iterator[tuple[str, Any]]:
    if kind == "RandomString" or kind.startswith("RandomUuid"):
        yield "result", id
    elif kind == "RandomPassword":
        yield "result", _text(asked, id)
        yield "bcryptHash", "$2a$10$" + _url(_bytes(39, id))[:53]
    elif kind == "RandomInteger":
        yield "result", _number(asked, id)
    elif kind == "RandomShuffle":
        yield "results", _shuffled(asked, id)
    elif kind == "RandomBytes":
        drawn = _bytes(int(asked.number("length") or 1), id)
        yield "base64", base64.b64encode(drawn).decode()
        yield "hex", drawn.hex()
    elif kind == "RandomId":
        drawn = base64.urlsafe_b64decode(id + "=" * (-len(id) % 4))
        prefix = asked.string("prefix")
        yield "hex", prefix + drawn.hex()
        yield "dec", prefix + str(int.from_bytes(drawn, "big"))
        yield "b64Std", prefix + base64.b64encode(drawn).decode()
        yield "b64Url", prefix + id


def _url(drawn: bytes) -> str:
    return base64.urlsafe_b64encode(drawn).decode().rstrip("=")


class TlsModel(GenericModel):
    """The provider ``tls``: keys have their public form, and PEM that says that it is none."""

    def outputs(
        self, token: str, id: str, inputs: Properties, config: Properties, world: World
    ) -> Properties:
        """The inputs, and texts of the right form."""
        known = dict(_key(Inputs(inputs), id)) if token.endswith(":PrivateKey") else {}
        certificate = {"certPem": _pem("CERTIFICATE"), "certRequestPem": _pem("REQUEST")}
        return {**inputs, **(known or certificate)}


def _key(asked: Inputs, id: str) -> Iterator[tuple[str, Any]]:
    if asked.string("algorithm") == "RSA":
        size = int(asked.number("rsaBits") or 2048) // 8
        # The first byte is 0 and the next has its highest bit: a positive number of all bits.
        modulus = b"\0" + bytes([0x80 | _bytes(1, id)[0]]) + _bytes(size - 1, id, "modulus")
        parts: tuple[bytes, ...] = (b"ssh-rsa", b"\1\0\1", modulus)
    else:
        parts = (b"ssh-ed25519", _bytes(32, id, "point"))
    wire = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    digest = base64.b64encode(hashlib.sha256(wire).digest()).decode().rstrip("=")
    yield "publicKeyOpenssh", f"{parts[0].decode()} {base64.b64encode(wire).decode()}\n"
    yield "publicKeyFingerprintSha256", f"SHA256:{digest}"
    yield "publicKeyFingerprintMd5", ":".join(f"{byte:02x}" for byte in _bytes(16, id, "md5"))
    yield "publicKeyPem", _pem("PUBLIC KEY")
    yield "privateKeyPem", _pem("PRIVATE KEY")
    yield "privateKeyPemPkcs8", _pem("PRIVATE KEY")
    yield "privateKeyOpenssh", _pem("OPENSSH PRIVATE KEY")


def _pem(kind: str) -> str:
    return f"-----BEGIN {kind}-----\nnone: made by the sandbox\n-----END {kind}-----\n"


RANDOM: Final = RandomModel("random")
TLS: Final = TlsModel("tls")
