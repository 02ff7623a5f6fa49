"""The model card: what a person reads about a cost model before promoting it. The decision comes first."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tcl.registry.versions import COMPARED_WITH, KNOWLEDGE_BASE, THEIRS, ModelVersion

LONGEST = 5000
"""Characters of MLflow's descriptions."""
_FORGETTING = "forgetting_"
_NAMES = {"top_1": "top-1", "top_5": "top-5"}
_MOST_KINDS = 12
_GAP = "\u00a0" * 3  # MLflow sets tables without any space between their columns
_HASH = 12  # characters of a hash that people compare; the tags hold it whole
_PLOTS = (
    "top_1_by_kind",
    "top_k",
    "predicted_against_measured",
    "learning_curve_top_1",
    "learning_curve_loss",
)


def model_card(
    name: str,
    tags: Mapping[str, str],
    metrics: Mapping[str, float],
    params: Mapping[str, Any],
    champion: ModelVersion | None = None,
    plots: Mapping[str, str] | None = None,
) -> str:
    """Return a model card in Markdown.

    Parameters
    ----------
    name
        The registered model.
    tags
        Lineage of the version.
    metrics
        Its evaluation on held-out programs, and the champion's on the same programs (`THEIRS`); those of one kind of
        program only are named ``top_1/conv2d``.
    params
        Options of its training.
    champion
        The champion when the version was registered; None when there was none.
    plots
        Addresses of plots, by their names.

    Returns
    -------
    str
        Text of at most `LONGEST` characters: what does not fit is left out from the end, whole sections at a time.
    """
    sections = [
        _head(name, tags, metrics, champion),
        _comparison(tags, metrics, champion),
        _forgetting(metrics),
        _origin(tags, metrics, champion),
        _images(plots or {}),
        _explanation(tags, champion),
        _table(
            "Every metric", ("metric", "value"), ((key, _number(value)) for key, value in metrics.items())
        ),
        _table("Training", ("option", "value"), params.items()),
    ]
    text = ""
    for section in sections:
        longer = f"{text}\n{_GAP}\n\n{section}" if text else section
        if section and len(longer) <= LONGEST:
            text = longer
    return text


def model_note(owner: str) -> str:
    """Return what MLflow shows above the list of a model's versions; short, so that the list is in sight."""
    if owner == KNOWLEDGE_BASE:
        return "What all devices' cost models have in common. A new device's model starts from it."
    return (
        f"Cost models of the device **{owner}**. Each version's page compares it with the champion of its time."
        " Compiling uses the version with the alias `champion`; the newest one has the alias `challenger`."
    )


def _head(
    name: str, tags: Mapping[str, str], metrics: Mapping[str, float], champion: ModelVersion | None
) -> str:
    lines = [f"# {name}", ""]
    if champion is None:
        lines.append("**There is no champion to compare it with.**")
    elif "top_1" not in metrics:
        lines.append(
            f"**It was never evaluated, so it cannot be compared with champion {champion.version}.**"
        )
    else:
        its, same = _theirs("top_1", tags, metrics, champion)
        lines.append(_sentence(metrics["top_1"], its, same, champion.version))
    if reason := tags.get("reason"):
        lines += ["", f"Why this model: {reason}."]
    return "\n".join(lines) + "\n"


def _sentence(mine: float, its: float | None, same: bool, version: int) -> str:
    if its is None:
        return f"**Top-1 {mine:.3f}; champion {version} was never evaluated.**"
    word = "better than" if mine > its else "worse than" if mine < its else "as good as"
    where = "on the same held-out programs" if same else "each on the programs held out from its own training"
    return f"**Top-1 {mine:.3f}, {word} champion {version} with {its:.3f}** ({_signed(mine - its)}, {where})."


def _comparison(tags: Mapping[str, str], metrics: Mapping[str, float], champion: ModelVersion | None) -> str:
    """Top-1 and top-5, in all and by kind of program, each beside the champion's."""
    kinds = [key.partition("/")[2] for key in metrics if key.startswith("top_1/")]
    rows = []
    for kind in ["", *kinds[:_MOST_KINDS]]:
        row = [kind or "**all**"]
        for metric in _NAMES:
            key = f"{metric}/{kind}" if kind else metric
            row.append(f"{metrics[key]:.3f}" if key in metrics else "–")
            if champion is not None and key not in metrics:
                row += ["–", "–"]
            elif champion is not None:
                its, _ = _theirs(key, tags, metrics, champion)
                row += ["–", "–"] if its is None else [f"{its:.3f}", _signed(metrics[key] - its)]
        if set(row[1:]) != {"–"}:
            rows.append(row)
    header = ["held-out programs"]
    for name in _NAMES.values():
        header += [name, f"champion {champion.version}", "difference"] if champion else [name]
    text = _table("Challenger against champion" if champion else "Evaluation", header, rows)
    if len(kinds) > _MOST_KINDS:
        text += f"\n{len(kinds) - _MOST_KINDS} more kinds are among the metrics of the run.\n"
    return text


def _theirs(
    key: str, tags: Mapping[str, str], metrics: Mapping[str, float], champion: ModelVersion
) -> tuple[float | None, bool]:
    """The champion's value, and whether it is of the same programs."""
    if tags.get(COMPARED_WITH) == str(champion.version) and THEIRS + key in metrics:
        return metrics[THEIRS + key], True
    return champion.metrics.get(key), False


def _forgetting(metrics: Mapping[str, float]) -> str:
    lost = {
        key.removeprefix(_FORGETTING): value for key, value in metrics.items() if key.startswith(_FORGETTING)
    }
    rows = ((device, _signed(-value)) for device, value in lost.items())
    return _table(
        "What the knowledge base keeps of earlier devices", ("device", "top-1 since it was learnt"), rows
    )


def _origin(tags: Mapping[str, str], metrics: Mapping[str, float], champion: ModelVersion | None) -> str:
    """Data, parent and versions, beside the champion's."""
    mine = _facts(tags, metrics)
    its = _facts(champion.tags, champion.metrics) if champion else {}
    header, rows = ["", "this version"], [[label, value] for label, value in mine.items()]
    if champion is not None:
        header.append(f"champion {champion.version}")
        for row in rows:
            theirs = its.get(row[0], "–")
            row.append("the same" if theirs == row[1] else theirs)
    return _table("Where it comes from", header, rows)


def _facts(tags: Mapping[str, str], metrics: Mapping[str, float]) -> dict[str, str]:
    """What is known of a version's origin, by its label."""
    facts = {"data hash": tags.get("data_hash", "")[:_HASH]}
    for label, key in (("records", "records"), ("tensor programs", "tasks")):
        facts[label] = f"{metrics[key]:.0f}" if key in metrics else ""
    facts |= {
        "parent version": tags.get("parent_version", ""),
        "trained by": tags.get("chosen", ""),
        "target": _target(tags.get("target", "")),
        "git commit": tags.get("git_commit", "")[:_HASH],
        "TVM": tags.get("tvm_version", ""),
        "features": tags.get("feature_version", ""),
    }
    return {label: value for label, value in facts.items() if value}


def _target(text: str) -> str:
    """A TVM target as short text."""
    try:
        target = json.loads(text)
        return " ".join(f"{key}={value}" for key, value in target.items())
    except (ValueError, AttributeError):
        return text


def _images(plots: Mapping[str, str]) -> str:
    """One line, so that the browser sets as many beside each other as there is room for."""
    pictures = [f"![{name}]({plots[name]})" for name in _PLOTS if name in plots]
    return f"## Plots\n\n{' '.join(pictures)}\n" if pictures else ""


def _explanation(tags: Mapping[str, str], champion: ModelVersion | None) -> str:
    if tags.get("device") == KNOWLEDGE_BASE:
        promote = "The knowledge base needs no promotion: its gate is the forgetting bound."
    else:
        back = f" To go back, give the alias to version {champion.version} again." if champion else ""
        promote = (
            "To promote it, give this version the alias `champion`, by *Add* or the pencil beside *Aliases*; the"
            f" models subscribed to the device are then compiled again.{back}"
        )
    return (
        "\n".join(
            [
                "## How to read this",
                "",
                promote,
                "",
                "A cost model ranks schedules of one tensor program by predicted speed. Top-k is the weighted best"
                " latency of the held-out programs over the best latency among the k candidates ranked first; 1 is"
                " perfect.",
            ]
        )
        + "\n"
    )


def _table(title: str, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    cells = [[str(cell).replace("|", "&#124;") for cell in row] for row in (header, *rows)]
    if len(cells) == 1:
        return ""
    wide = [[f"{cell}{_GAP}" for cell in row] for row in cells]
    lines = [wide[0], ["---"] * len(wide[0]), *wide[1:]]
    return "\n".join([f"## {title}", "", *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _signed(value: float) -> str:
    return f"{value:+.3f}" if abs(value) >= 0.0005 else "±0"
