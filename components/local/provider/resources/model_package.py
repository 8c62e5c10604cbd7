"""ModelPackage: a trained model, optimised, signed, encrypted and published in the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from falaj.components.local import machine
from falaj.components.local.arguments.model_package import ENGINE, ModelPackageArgs
from falaj.components.local.provider import workloads
from falaj.components.local.provider.fields import (
    flag,
    optional,
    text,
    whole,
)
from falaj.components.local.provider.handler import Change, Context, Handler, Site
from falaj.components.local.provider.service import promoted
from falaj.wire.values import Values

_OPTIMIZATION: Final = "falaj.workloads.optimization"
#: The model, and the page that says what it is worth.
_FILES: Final = ("model.onnx", "card.html")


class ModelPackageHandler(Handler):
    """Publishes a version; another run is another version, and older ones stay for a rollback."""

    type_name: ClassVar[str] = "ModelPackage"
    summary: ClassVar[str] = "A model in the registry, with all versions that are kept of it."
    arguments: ClassVar[type] = ModelPackageArgs
    outputs: ClassVar[Mapping[str, str]] = {
        "version": "The version that was published from these inputs.",
        "path": "Folder of the version.",
        "digest": "Digest of the version's manifest.",
        "registry": "Folder of the registry.",
        "accepted": "int8, int4 or float: which of them is packaged.",
        "reason": "Why.",
        "metricName": "accuracy; rmse for regression; nats_per_character for a text.",
        "accuracyFloat": "The metric of the float model on held-out rows.",
        "accuracyInt8": "The same of the 8-bit model, where there is one.",
        "accuracyInt4": "The same of the model with weights of 4 bits, where there is one.",
        "sizeFloat": "Size of the float model in bytes.",
        "sizeInt8": "Size of the 8-bit model in bytes.",
        "sizeInt4": "Size of the model with weights of 4 bits in bytes.",
        "latencyFloat": "Latency of the float model in microseconds.",
        "latencyInt8": "Latency of the 8-bit model in microseconds.",
        "latencyInt4": "Latency of the model with weights of 4 bits in microseconds.",
    }

    def drift(self, state: Values) -> dict[str, Change]:
        """A version that someone has removed is published again."""
        if (Path(text(state, "path")) / "manifest.json").is_file():
            return {}
        return {"version": Change(is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """The version is known only when something else than its making changed."""
        expected = super().preview(inputs, state)
        if isinstance(inputs.get("site"), str):
            expected["registry"] = str(self.site_of(inputs).registry)
        if state is not None and not self._makes_version(state, inputs):
            expected.update(self.outputs_of(state))
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Optimise and publish; the same content published before keeps its version."""
        return text(inputs, "model"), self._publish(context, inputs)

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when the version is."""
        return dict(state) if not self.drift(state) else None

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Publish a new version, or only prune old ones."""
        if self._makes_version(state, inputs):
            return self._publish(context, inputs)
        self._prune(context, inputs, whole(state, "version"))
        return {**inputs, **self.outputs_of(state)}

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Remove all versions of the model, unless they are retained."""
        del context
        if not flag(state, "retain"):
            machine.remove_tree(self.site_of(state).registry / resource_id)

    def _makes_version(self, state: Values, inputs: Values) -> bool:
        changes = self.diff(state, inputs)
        return bool(changes.keys() - {"accept", "keepVersions", "keyring", "retain"})

    def _publish(self, context: Context, inputs: Values) -> Values:
        site, model = self.site_of(inputs), text(inputs, "model")
        run = Path(text(inputs, "run"))
        keyring = workloads.options({"keyring": optional(inputs, "keyring")})
        folder = run / "optimization" / _variant(inputs)
        machine.make_folder(folder)
        context.status("exporting, quantising and comparing with the float model")
        values = {
            "max-accuracy-drop": optional(inputs, "maxAccuracyDrop"),
            "quantise": optional(inputs, "quantise"),
            "engine": optional(inputs, "engine"),
            "threads": optional(inputs, "threads"),
            "data-class": optional(inputs, "dataClass"),
            "accept": optional(inputs, "accept"),
            **served_version(site, model),
        }
        arguments = [
            "--run", str(run), "--dataset", text(inputs, "dataset"), "--output", str(folder),
            *keyring, *workloads.options(values), "--json",
        ]  # fmt: skip
        measured = workloads.run(context, _OPTIMIZATION, arguments, what="the optimisation")
        worth: Mapping[str, Any] = measured.get("worth") or {}
        for line in (*worth.get("refusals", ()), *worth.get("notes", ())):
            context.say(str(line))
        context.say(str(measured["reason"]))
        context.status("signing, encrypting and publishing")
        machine.make_folder(site.registry)
        arguments = [
            "publish", "--registry", str(site.registry), "--model", model, *keyring,
            "--from", str(folder), "--fields", str(measured["fields"]),
            *(part for name in _FILES for part in ("--file", name)), "--json",
        ]  # fmt: skip
        published = workloads.run(context, workloads.REGISTRY, arguments, what="the publication")
        self._prune(context, inputs, int(published["version"]))
        return {
            **inputs,
            **_measurements(measured),
            "version": int(published["version"]),
            "path": str(published["path"]),
            "digest": str(published["digest"]),
            "registry": str(site.registry),
        }

    def _prune(self, context: Context, inputs: Values, published: int) -> None:
        arguments = [
            "prune", "--registry", str(self.site_of(inputs).registry),
            "--model", text(inputs, "model"), "--keep", str(whole(inputs, "keepVersions")),
            "--protect", str(published), "--json",
        ]  # fmt: skip
        workloads.run(context, workloads.REGISTRY, arguments, what="the pruning of old versions")


def served_version(site: Site, model: str) -> dict[str, str]:
    """Options that name the version that serves and, if it is there, what it learned from."""
    version = promoted({"registry": str(site.registry), "model": model})
    if version is None:
        return {}
    folder = site.registry / model / "versions" / str(version)
    manifest = machine.read_json(folder / "manifest.json")
    if manifest is None:
        return {}
    found = {"served": str(folder)}
    # A package that was published by hand need not say it.
    dataset = site.datasets / str(manifest["dataset"].get("digest", "unknown"))[:16]
    if (dataset / "dataset.json").is_file():
        found["served-dataset"] = str(dataset)
    return found


def _variant(inputs: Values) -> str:
    """A folder name for one way of optimising, so that another way doesn't overwrite it."""
    drop, threads = optional(inputs, "maxAccuracyDrop"), whole(inputs, "threads")
    named = f"{text(inputs, 'quantise')}-{drop}-{threads}-{text(inputs, 'dataClass')}"
    engine = optional(inputs, "engine") or ENGINE.default
    return named if engine == ENGINE.default else f"{named}-{engine}"


def _measurements(measured: Mapping[str, Any]) -> Values:
    metric = str(measured["metric_name"])
    outputs: Values = {
        "accepted": str(measured["accepted"]),
        "reason": str(measured["reason"]),
        "metricName": metric,
    }
    for kind, suffix in (("float", "Float"), ("int8", "Int8"), ("int4", "Int4")):
        figures: Mapping[str, Any] = measured.get(kind) or {}
        outputs[f"accuracy{suffix}"] = figures.get(metric)
        outputs[f"size{suffix}"] = figures.get("size_bytes")
        outputs[f"latency{suffix}"] = figures.get("latency_us")
    return outputs
