"""Rows to pandas and to Parquet, whose packages are imported where they are asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from polybench.core.errors import BadInput, PolybenchError


class Records:
    """What has rows has these, too."""

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a row."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame; needs pandas (extra `pandas`)."""
        return data_frame(self.rows())

    def to_parquet(self, path: str | Path) -> Path:
        """Write the rows as a Parquet file; needs pyarrow (extra `parquet`)."""
        return write_parquet(self.rows(), path)


def data_frame(rows: list[dict[str, Any]]) -> Any:
    """A pandas DataFrame; raises BadInput without pandas."""
    try:
        return import_module("pandas").DataFrame(rows)
    except ImportError as error:
        raise BadInput("pandas is not installed; pip install 'polybench[pandas]', or use rows()") from error


def write_parquet(rows: list[dict[str, Any]], path: str | Path) -> Path:
    """A file with a column for each name of the rows, with their types; what has parts is JSON text.

    Raises:
        BadInput: pyarrow is not installed.
        PolybenchError: the file cannot be written.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise BadInput("pyarrow is not installed; pip install 'polybench[parquet]'") from error
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = arrow.table({name: [_scalar(row.get(name)) for row in rows] for name in names})
    try:
        parquet.write_table(table, path)
    except OSError as error:
        raise PolybenchError(f"cannot write {path}: {error.strerror or error}") from error
    return Path(path)


def _scalar(value: Any) -> Any:
    """Records and lists differ in their parts from row to row, which a column may not."""
    return (
        value
        if value is None or isinstance(value, str | int | float)
        else msgspec.json.encode(value).decode()
    )
