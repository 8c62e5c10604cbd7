"""From an image's short name to the reference that a pod carries, in the in-country registry."""

import difflib
from collections.abc import Mapping, Sequence

from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes.bill_of_materials import DIGEST, images
from falaj.components.specification.refusals import Refusals

_HEX = "sha256: and 64 of 0-9 and a-f, as `falaj images pin` writes them"


def resolve(
    placed: InCluster,
    names: Sequence[str],
    given: Mapping[str, str] | None,
    refusals: Refusals,
) -> dict[str, str]:
    """References of images in the in-country registry, each with its digest.

    Args:
        placed: the component's shared arguments; its registry serves the images.
        names: short names of the images that are wanted, as in the bill of materials. A name that
            isn't there is a mistake in the component, not in its arguments.
        given: digests by short name, before the bill of materials' own; the argument ``images`` of
            a component. Names of images that this component doesn't use are fine, so that all
            components can be given the same lock.
        refusals: gets names that no image has, digests that aren't any, and wanted images of which
            no digest is known.

    Returns:
        ``registry/repository:tag@sha256:…`` by short name; those that were refused are left out.

    Raises:
        KeyError: the bill of materials has no image of a wanted name.
    """
    known = images()
    digests: dict[str, str] = {}
    for name, digest in (refusals.mapping("images", given) if given is not None else {}).items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            refusals.say(
                f"images.{name}",
                "is not the name of an image; "
                + (f"did you mean {near[0]!r}?" if near else "`falaj images list` shows them all"),
            )
        elif not DIGEST.fullmatch(digest):
            refusals.add(f"images.{name}", digest, _HEX)
        else:
            digests[name] = digest
    found: dict[str, str] = {}
    for name in names:
        image = known[name]
        digest = digests.get(name) or image.digest
        if digest:
            found[name] = image.mirrored(placed.registry, digest)
        elif not given or name not in given:
            make = "build it with `falaj images build --push`" if image.is_ours else "mirror it"
            refusals.say(
                f"images.{name}",
                f"no digest of {image.mirror}:{image.tag} is known, and a tag alone can be moved "
                f"to another image: {make}, then let `falaj images pin` write the digest to a "
                "lock file and give it here",
            )
    return found
