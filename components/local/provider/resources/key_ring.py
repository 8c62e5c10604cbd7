"""KeyRing: the keys that seal and sign everything of a site."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from falaj.components.local import machine
from falaj.components.local.arguments.key_ring import KeyRingArgs
from falaj.components.local.machine import InvalidInput, InvalidInputsError, LocalError
from falaj.components.local.provider import workloads
from falaj.components.local.provider.fields import flag, whole
from falaj.components.local.provider.handler import Change, Context, Handler, Site
from falaj.wire.values import Values


class KeyRingHandler(Handler):
    """Makes the key ring, rotates its keys, shreds it."""

    type_name: ClassVar[str] = "KeyRing"
    summary: ClassVar[str] = "Keys of a site: key-encryption keys, signing key, token key."
    arguments: ClassVar[type] = KeyRingArgs
    outputs: ClassVar[Mapping[str, str]] = {
        "path": "Folder of the key ring.",
        "primary": "Version of the key that new data keys are wrapped with.",
        "versions": "Versions that are still there.",
        "signingKeyId": "Id of the key that signs packages.",
        "tokenKeyId": "Id of the key that signs access tokens.",
        "tokenKeyPath": "File of the key that signs access tokens.",
        "jwksPath": "File of the public keys that access tokens are verified with.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """Rotation only goes up: an old key can't come back."""
        checked = super().check(given, old)
        before, now = old.get("rotation"), checked.get("rotation")
        same_site = old.get("site") == checked.get("site")
        if same_site and isinstance(before, int) and isinstance(now, int) and now < before:
            reason = (
                f"given {now}; allowed: {before} or more, because shredded keys don't come back"
            )
            raise InvalidInputsError([InvalidInput("rotation", reason)])
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """A key ring that is gone is an update, which refuses to hide the loss of sealed data."""
        if (self.site_of(state).keyring / "keyring.json").is_file():
            return {}
        return {"path": Change(is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """Paths follow from the site; key ids stay the same but in a rotation."""
        expected = super().preview(inputs, state)
        if isinstance(inputs.get("site"), str):
            expected.update(_paths(self.site_of(inputs)))
        if state is not None and inputs.get("rotation") == state.get("rotation"):
            kept = ("signingKeyId", "tokenKeyId")
            expected.update({key: state[key] for key in kept if key in state})
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Make the key ring; one that is there already is adopted."""
        site = self.site_of(inputs)
        shown = _keyring(context, "create", site)
        return str(site.keyring), {**inputs, **_outputs(site, shown)}

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when its folder is."""
        if not (Path(resource_id) / "keyring.json").is_file():
            return None
        site = self.site_of(state)
        return {**state, **_outputs(site, _keyring(Context("refresh"), "show", site))}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Rotate when asked to."""
        site = self.site_of(inputs)
        if not (Path(resource_id) / "keyring.json").is_file():
            _require_nothing_sealed(site)
            return {**inputs, **_outputs(site, _keyring(context, "create", site))}
        if whole(inputs, "rotation") == whole(state, "rotation"):
            return {**inputs, **_outputs(site, _keyring(context, "show", site))}
        # A damaged job must not keep everything else from new keys.
        rewrap = [
            part
            for f in _sealed_folders(site)
            if f.is_dir()
            for part in ("--rewrap-expiring" if f == site.services else "--rewrap", str(f))
        ]
        context.status("wrapping everything with a new key")
        shown = _keyring(context, "rotate", site, *rewrap)
        context.say(
            f"rotated: key {shown['primary']} wraps everything now, key "
            f"{shown['signing_key_id']} signs packages, and {shown['token_key_id']} tokens"
        )
        for each in shown["damaged"]:
            context.say(
                f"warning: a service's file can't be read any more, and goes in its time: {each}"
            )
        return {**inputs, **_outputs(site, shown)}

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Shred every key, unless it is retained."""
        del context
        if not flag(state, "retain"):
            for file in _key_files(Path(resource_id)):
                machine.shred(file)
            machine.remove_tree(Path(resource_id))


def _keyring(context: Context, command: str, site: Site, *more: str) -> dict[str, Any]:
    arguments = ["keyring", command, "--path", str(site.keyring), *more, "--json"]
    return workloads.run(
        context, workloads.REGISTRY, arguments, what=f"the key ring's command {command!r}"
    )


def _key_files(folder: Path) -> list[Path]:
    return [file for file in folder.glob("*") if file.is_file() and not file.is_symlink()]


def _sealed_folders(site: Site) -> tuple[Path, ...]:
    """Where the key ring's sealed files lie; those of services are their jobs."""
    return (site.datasets, site.runs, site.registry, site.batches, site.services)


def _require_nothing_sealed(site: Site) -> None:
    sealed = [
        file
        for folder in _sealed_folders(site)
        for pattern in ("*.sealed", "keys.json")
        for file in folder.rglob(pattern)
    ]
    if sealed:
        raise LocalError(
            f"the key ring {site.keyring} is gone, but {len(sealed)} sealed files of this stack "
            "can only be read with it\nput the folder back from a backup; or, when it is lost for "
            "good, run `pulumi destroy` and `pulumi up` to begin anew"
        )


def _paths(site: Site) -> Values:
    return {
        "path": str(site.keyring),
        "tokenKeyPath": str(site.keyring / "tokens.pem"),
        "jwksPath": str(site.keyring / "tokens.jwks.json"),
    }


def _outputs(site: Site, shown: Mapping[str, Any]) -> Values:
    return {
        **_paths(site),
        "primary": str(shown["primary"]),
        "versions": [str(version) for version in shown["versions"]],
        "signingKeyId": str(shown["signing_key_id"]),
        "tokenKeyId": str(shown["token_key_id"]),
    }
