"""Conversion of rows to pandas and Parquet, whose packages are imported only if needed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from polybench.errors import BadInput, PolybenchError, install_command


class DataFrameMixin:
    """Conversions for results that have rows."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary per row."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame; requires pandas (extra `pandas`)."""
        return to_data_frame(self.rows())

    def to_parquet(self, path: str | Path) -> Path:
        """Write the rows to a Parquet file; requires pyarrow (extra `parquet`)."""
        return write_parquet(self.rows(), path)


def to_data_frame(rows: list[dict[str, Any]]) -> Any:
    """Return a pandas DataFrame; raises BadInput without pandas."""
    try:
        return import_module("pandas").DataFrame(rows)
    except ImportError as error:
        raise BadInput(f"pandas is not installed; {install_command('pandas')}, or use rows()") from error


def write_parquet(rows: list[dict[str, Any]], path: str | Path) -> Path:
    """Write a column for each name of the rows, with its type; nested values become JSON text.

    Raises:
        BadInput: pyarrow is not installed.
        PolybenchError: the file cannot be written.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise BadInput(f"pyarrow is not installed; {install_command('parquet')}") from error
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = arrow.table({name: [_scalar(row.get(name)) for row in rows] for name in names})
    try:
        parquet.write_table(table, path)
    except OSError as error:
        raise PolybenchError(f"cannot write {path}: {error.strerror or error}") from error
    return Path(path)


def _scalar(value: Any) -> Any:
    """Return a scalar, or JSON text of a nested value: its structure may vary by row, which a column
    cannot."""
    return value if value is None or isinstance(value, str | int | float) else msgspec.json.encode(value).decode()
