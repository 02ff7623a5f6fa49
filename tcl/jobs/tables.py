"""A result table that the command line, Prefect and MLflow show alike."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table


@dataclass(frozen=True)
class Table:
    """Rows under named columns; cells are text, numbers or None."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def to_dicts(self) -> list[dict[str, Any]]:
        """One object a row, as Prefect's table artifacts want them."""
        return [dict(zip(self.columns, map(_cell, row), strict=True)) for row in self.rows]

    def render(self) -> "rich.table.Table":
        """The table for a terminal, without its title."""
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable()
        for index, column in enumerate(self.columns):
            numeric = any(isinstance(row[index], int | float) for row in self.rows)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(_cell(value)) for value in row))
        return table


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def duration(seconds: float | None) -> str | None:
    """Seconds as text in the unit that suits; None stays None."""
    if seconds is None:
        return None
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
