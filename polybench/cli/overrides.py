"""Studies from options: a new study, or a saved one with some fields overridden."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import msgspec

from polybench.errors import BadInput, lookup_or_suggest
from polybench.schema.options import Study, environments_of, reject_unused_environments


def make_study(**fields: Any) -> Study:
    """Make a study of fields; raise BadInput that names the option for a value outside its range."""
    try:
        study = _with_network(msgspec.convert(fields, Study))
        reject_unused_environments(study)
        return study
    except msgspec.ValidationError as error:
        text = str(error)
        match = re.search(r"\$\.(\w+)", text)
        field = match[1] if match else ""
        words = get_args(get_type_hints(Study).get(field))
        given = fields.get(field)
        if "enum" in text and given not in words:  # the field accepts a few words only
            lookup_or_suggest(str(given), dict.fromkeys(words), field)
        option = f"--{field.replace('_', '-')}" if field else "the study"
        raise BadInput(f"{option}: {text.partition(' - at')[0]}") from error
    except UnicodeEncodeError as error:
        raise BadInput(f"invalid name {error.object!r}: expected UTF-8 text") from error


def _with_network(study: Study) -> Study:
    """Replace a network file's name with the network; does not load NumPy without a network file."""
    if not isinstance(study.model, str) or not study.model.endswith(".toml"):
        return study
    from polybench.planning.network_file import with_network

    return with_network(study)


class Overrides:
    """Fields of a study that were given on the command line."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def apply(self, study: Study) -> Study:
        """Return the study with these fields; raise BadInput if they do not fit together.

        If `engines` are overridden, environments that no engine uses any more are removed.
        """
        fields = msgspec.structs.asdict(study) | self._fields
        if "engines" in self._fields and "env" not in self._fields:
            fields["env"] = environments_of(fields["engines"], study.env)
        return make_study(**fields)
