"""The card of a model, for a terminal and as a page, from the fields of its package."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.workloads.bounds import ENGINES
from falaj.workloads.chat import described_template
from falaj.workloads.documents import mapping
from falaj.workloads.errors import printable
from falaj.workloads.training.record import LANGUAGE

FILE: Final = "card.html"
"""The page's name in the package."""

_FEW: Final = 3
"""Of so many classes the calibration stands among the figures, of more in a table of the page."""

_LEAST_CHANCE: Final = 1e-4
"""What is less isn't told: it comes from a distribution that isn't so exact."""

_MODELS: Final = {
    "linear": "linear model: logistic regression of classes, ridge regression of a number",
    "network": "neural network",
    "trees": "gradient-boosted trees",
    "mobilenet": "neural network in the form of MobileNetV3-Small",
    "efficientnet": "neural network in the form of EfficientNet-B0",
    "own": "{class}, a team's own, of the code with the digest {code:.16}",
}
_STYLE: Final = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{border:1px solid #999;padding:.3rem .6rem;text-align:start;vertical-align:top}"
    "td{overflow-wrap:anywhere}"
)


def lines(
    fields: Mapping[str, Any], most: int = 1_000, *, measured: bool = True
) -> list[tuple[str, str]]:
    """Return the card as pairs of what and how much.

    Args:
        fields: what the package's manifest says of the model; one that an earlier version of the
            software published has no card, and gives no lines.
        most: columns that are listed, used ones and left out ones each. Default: all.
        measured: say how fast each engine was. Default: it does.
    """
    metrics = fields.get("metrics", {})
    worth, card = metrics.get("worth"), metrics.get("card")
    if not worth or not card:
        return []
    dataset = fields["dataset"]
    found = [
        (
            f"held-out {name.replace('_', ' ')}",
            f"{_figure(name, value)} (guessing: {_figure(name, worth['baseline'][name])}, "
            f"{worth['guess'].rstrip(',')})",
        )
        for name, value in worth["model"].items()
    ]
    for refusal in worth["refusals"]:
        found.append(("not worth serving", refusal))
    served = worth.get("served")
    if served:
        compared = ", ".join(
            f"{name.replace('_', ' ')} {_figure(name, served['model'][name])} after "
            f"{_figure(name, value)}"
            for name, value in served["served"].items()
        )
        found.append(
            (f"against version {served['version']}", f"{compared} on {served['rows']:,} new rows")
        )
    found += [("not compared", note) for note in worth["notes"]]
    found += candidates(fields.get("quantisation") or {}, measured=measured)
    if card.get("auc") is not None:
        found.append(("AUC", f"{card['auc']:.3f}"))
    if "calibration_error" in card:
        found.append(("calibration error", f"{100 * card['calibration_error']:.1f} points"))
    if len(card.get("calibration", {})) <= _FEW:
        found += [(f"mean probability of {name}", text) for name, text in _calibration(card)]
    if "r2" in card:
        low, high = (card["residuals"]["quantiles"][share] for share in ("0.05", "0.95"))
        found.append(("R²", f"{card['r2']:.3f}"))
        found.append(("errors, 5 % to 95 %", f"{low:.5g} to {high:.5g}"))
    is_text = _is_text(fields)
    if is_text:
        found.append(("perplexity", f"{card['perplexity']:.4g}"))
        # A package of before says nothing of them: they are characters.
        unit = card.get("unit", "characters")
        found.append(("vocabulary", f"{card['vocabulary']:,} {unit}"))
        found.append(("looks back on", f"{fields['inputs'][0]['context']} {unit}"))
    else:
        used = [f"{each['name']} ({each['kind']})" for each in dataset["features"]]
        found.append(("columns used", ", ".join([*used[:most], *_more(used, most)])))
    left_out = [(f"left out: {each['name']}", each["reason"]) for each in dataset["excluded"]]
    found += [*left_out[:most], *(("left out", text) for text in _more(left_out, most))]
    rows = dataset["rows"]
    what = "windows of text" if is_text else "rows"
    if described_template(dataset) is not None:
        what = "conversations"
        found.append(("judged by", "what the assistant says in held-out conversations"))
    found.append((what, f"{rows['train']:,} for training, {rows['held_out']:,} held out"))
    found.append(("dataset", f"{dataset['source']['name']}, digest {dataset['digest'][:16]}"))
    found.append(("model", _MODELS[card["model"]].format_map(card)))
    found += _chosen(card)
    found += _began_with(fields.get("lineage") or {})
    engine = mapping(fields.get("quantisation")).get("engine")
    if engine:
        named = f"OpenVINO ({engine['precision']})" if engine["precision"] else "ONNX Runtime"
        found.append(("runs in", named))
    found.append(("trained", f"{card['trained']}, on {card['machine']}"))
    found += gpus(card)
    return [(printable(what), printable(text)) for what, text in found]


def _chosen(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the model was compared with and why it was kept, and what its calibration did."""
    found: list[tuple[str, str]] = []
    if judged := card.get("judged"):
        folds, rows = judged["folds"], f"{judged['rows']:,} rows"
        # Where somebody left, there are folds, if only one that was done.
        are_folds = folds > 1 or any("chance" in each for each in judged["losses"].values())
        what = "fold" if folds == 1 else "folds"
        by = f"{folds} {what} of {rows}" if are_folds else f"{rows} for validation"
        for name, each in judged["losses"].items():
            text = f"{judged['figure']} {each['mean']:.4g}"
            if each["spread"] is not None:
                of_folds = ", ".join(f"{mean:.4g}" for mean in each["folds"])
                text += f" ± {each['spread']:.2g} between folds ({of_folds})"
            text += f", on {by}"
            if "chance" in each:
                done, chance = len(each["folds"]), 100 * max(each["chance"], _LEAST_CHANCE)
                text += f"; left after {done} of them: at most {chance:.2g} % likely to be kept"
            found.append((f"compared: {name}", text))
        found.append(("kept", judged["reason"]))
    if calibrated := card.get("calibrated"):
        found.append((
            "calibrated",
            f"on {calibrated['rows']:,} training rows that it hadn't learned from, whose log loss "
            f"went from {calibrated['before']:.4g} to {calibrated['after']:.4g}",
        ))  # fmt: skip
    return found


def gpus(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how busy each GPU of the machine that trained was, and what was wrong with it."""
    found: list[tuple[str, str]] = []
    for index, each in enumerate(card.get("gpus", [])):
        if "idle_share" in each:
            found.append((f"GPU {index}", f"idle for {each['idle_share']:.0%} of the training"))
        found += [("of the training", text) for text in each.get("anomalies", [])]
    return found


def _began_with(lineage: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which weights a training went on from, and what of them it learned."""
    found: list[tuple[str, str]] = []
    if "start" in lineage:
        run = lineage.get("start_run")
        of = f"of the run {run[:16]}" if run else "given in Llama's form"
        found.append(("began with", f"weights with the digest {lineage['start'][:16]}, {of}"))
    if added := lineage.get("lora"):
        text = f"{added['parameters']:,} numbers, {added['share']:.2%} of the model's"
        found.append(("learned", f"{text}, by low ranks of {added['rank']} (LoRA)"))
    return found


def candidates(quantisation: Mapping[str, Any], *, measured: bool = True) -> list[tuple[str, str]]:
    """What could have been served: score, size and time of each, to choose from.

    Args:
        quantisation: of a package's manifest, or the content of optimization.json.
        measured: say times as well, and which candidate another one is better than in all.
    """
    name, threads = str(quantisation.get("metric_name")), quantisation.get("threads")
    engine: Mapping[str, Any] = quantisation.get("engine") or {}
    every = {label: quantisation.get(label) for label in ("float", "int8", "int4")}
    every |= {_elsewhere(label): each for label, each in engine.get("candidates", {}).items()}
    known = {label: each for label, each in every.items() if each and name in each}
    elsewhere = engine.get("precision")
    served = _elsewhere(elsewhere) if elsewhere else quantisation.get("accepted")
    # Not all of an engine: not installed, or not asked for.
    refused = {
        label: why for label, why in engine.get("left_out", {}).items() if label not in ENGINES
    }
    why_not = {_elsewhere(label): why for label, why in refused.items()}
    found: list[tuple[str, str]] = []
    for label, each in known.items():
        score = f"{name.replace('_', ' ')} {_figure(name, each[name])}"
        text = f"{score}, {each['size_bytes']:,} bytes"
        notes = ["served"] if label == served else []
        if measured:
            text += f", {each['latency_us']:,.1f} µs a row with {threads} thread(s)"
            better = [other for other in known if dominates(name, known[other], each)]
            notes += [f"{other} is better in all" for other in better]
            notes += [f"not chosen: {why_not[label]}"] if label in why_not else []
        found.append((f"candidate {label}", f"{text} ({'; '.join(notes)})" if notes else text))
    if measured:
        found += [
            (f"no candidate {_elsewhere(label)}", why)
            for label, why in refused.items()
            # What was measured has its row. Of 4 bits: no language model.
            if _elsewhere(label) not in known and not (label == "int4" and not every[label])
        ]
    return found


def _elsewhere(precision: str) -> str:
    return f"{precision} in OpenVINO"


def dominates(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether one candidate is no worse than another in score, size and time, and not alike.

    Args:
        name: of the score, of which more is better where it is an accuracy.
        one: its score by that name, ``size_bytes`` and ``latency_us``.
        other: another's.
    """
    sign = -1 if name == "accuracy" else 1
    first, second = (
        (sign * each[name], each["size_bytes"], each["latency_us"]) for each in (one, other)
    )
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))


def page(fields: Mapping[str, Any]) -> str:
    """Return the card as an HTML page of its own, which loads nothing."""
    dataset = fields["dataset"]
    title = f"Model of {dataset['source']['name'] if _is_text(fields) else dataset['target']}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head><body>",
        f'<h1 dir="auto">{_safe(title)}</h1>',
        # Times differ with each measurement: the page of the same model would be another one.
        _table([*lines(fields, measured=False)]),
    ]
    card = fields["metrics"]["card"]
    if len(card.get("calibration", {})) > _FEW:
        parts += ["<h2>Mean probability</h2>", _table([("", ""), *_calibration(card)])]
    confusion = card.get("confusion")
    if confusion:
        classes = [str(name) for name in fields["classes"]]
        parts.append("<h2>Confusion</h2><p>Row: truth. Column: prediction.</p>")
        numbers = [
            (name, *(str(count) for count in row))
            for name, row in zip(classes, confusion, strict=True)
        ]
        parts.append(_table([("", *classes), *numbers]))
    return "\n".join([*parts, "</body></html>\n"])


def _calibration(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (repr(name), f"{each['mean_probability']:.3f} (its share: {each['share']:.3f})")
        for name, each in card.get("calibration", {}).items()
    ]


def _is_text(fields: Mapping[str, Any]) -> bool:
    return fields.get("task") == LANGUAGE


def _more(items: Sequence[object], most: int) -> list[str]:
    return [f"{len(items) - most:,} more"] if len(items) > most else []


def _table(rows: list[tuple[str, ...]]) -> str:
    drawn = [
        "<tr>" + "".join(
            f'<{"td" if place else "th"} dir="auto">{_safe(cell)}</{"td" if place else "th"}>'
            for place, cell in enumerate(row)
        ) + "</tr>"
        for row in rows
    ]  # fmt: skip
    return "<table>" + "".join(drawn) + "</table>"


def _safe(text: str) -> str:
    return html.escape(text, quote=True)


def _figure(name: str, value: float) -> str:
    if name == "accuracy":
        return f"{100 * value:.2f} %"
    return f"{value:.5g}" if name == "rmse" else f"{value:.4f}"
