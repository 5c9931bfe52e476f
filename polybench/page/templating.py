"""Templates to pages: every text is escaped, and what a page may load is said before anything of it is."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from polybench.core.errors import BadInput
from polybench.core.version import __version__


def filled(template: str, **values: Any) -> str:
    """The page.

    Raises:
        BadInput: jinja2 is not installed.
    """
    text: str = _environment().get_template(template).render(version=__version__, **values)
    return text


def text_of(name: str) -> str:
    """A file of the folder of templates."""
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError as error:
        raise BadInput("jinja2 is not installed; pip install 'polybench[report]'") from error
    environment = Environment(
        loader=PackageLoader("polybench.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def breakable(name: str) -> Markup:
        """A line may end within `torch+channels_last/cpu`, where it is read as several words."""
        return Markup(re.sub(r"([+/])", r"\1<wbr>", str(escape(name))))

    environment.filters["breakable"] = breakable
    return environment
