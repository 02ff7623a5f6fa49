"""The model card: what a person reads about a cost model before promoting it."""

from collections.abc import Mapping
from typing import Any


def model_card(
    name: str, tags: Mapping[str, str], metrics: Mapping[str, float], params: Mapping[str, Any]
) -> str:
    """Return a model card in Markdown.

    Parameters
    ----------
    name
        The registered model.
    tags
        Lineage of the version.
    metrics
        Its evaluation on held-out tasks.
    params
        Options of its training.
    """
    return "\n".join(
        [
            f"# {name}",
            "",
            "A cost model of tensor programs: it ranks schedules of one task by predicted speed; a higher"
            " score is faster. Scores of different tasks, devices or versions cannot be compared.",
            "",
            "`top_k` is the weighted best latency of the held-out tasks over the best latency among the k"
            " candidates that the model ranks first; 1 is perfect.",
            "",
            *_table("Evaluation", "metric", {key: f"{value:.4g}" for key, value in metrics.items()}),
            *_table("Lineage", "what", tags),
            *_table("Training", "option", params),
        ]
    )


def _table(title: str, header: str, rows: Mapping[str, Any]) -> list[str]:
    if not rows:
        return []
    cells = [f"| {key} | {str(value).replace('|', '&#124;')} |" for key, value in rows.items()]
    return [f"## {title}", "", f"| {header} | value |", "|---|---|", *cells, ""]
