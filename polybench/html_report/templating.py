"""Rendering of templates; all texts are escaped."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from polybench.errors import BadInput, __version__, install_command


def render_template(template: str, **values: Any) -> str:
    """Render a template.

    Raises:
        BadInput: jinja2 is not installed.
    """
    text: str = _environment().get_template(template).render(version=__version__, **values)
    return text


def read_template(name: str) -> str:
    """Read a file of the folder of templates."""
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError as error:
        raise BadInput(f"jinja2 is not installed; {install_command('report')}") from error
    environment = Environment(
        loader=PackageLoader("polybench.html_report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def soft_break(name: str) -> Markup:
        """Allow line breaks after `+` and `/`, as in `torch+channels_last/cpu`."""
        return Markup(re.sub(r"([+/])", r"\1<wbr>", str(escape(name))))

    environment.filters["soft_break"] = soft_break
    return environment
