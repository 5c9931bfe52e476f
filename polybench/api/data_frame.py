"""Rows to pandas, which is imported where it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from polybench.core.errors import BadInput


def data_frame(rows: list[dict[str, Any]]) -> Any:
    """A pandas DataFrame; raises BadInput without pandas."""
    try:
        return import_module("pandas").DataFrame(rows)
    except ImportError as error:
        raise BadInput("pandas is not installed; pip install pandas, or use rows()") from error
