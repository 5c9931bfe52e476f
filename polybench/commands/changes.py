"""A study of what was given on the command line, or one that exists already with what was given."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import msgspec

from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.core.spec import Study, environments_of, refuse_unused_environments


def make_study(**fields: Any) -> Study:
    """The study with these fields; a value outside its range is bad input that names the option."""
    try:
        study = _with_network(msgspec.convert(fields, Study))
        refuse_unused_environments(study)
        return study
    except msgspec.ValidationError as error:
        text = str(error)
        found = re.search(r"\$\.(\w+)", text)
        field = found[1] if found else ""
        words = get_args(get_type_hints(Study).get(field))
        given = fields.get(field)
        if isinstance(given, dict):  # its keys are words
            words, given = (
                get_args(words[0]),
                next((key for key in given if key not in get_args(words[0])), ""),
            )
        if "enum" in text and given not in words:  # a word that is not one of a few
            pick(str(given), dict.fromkeys(words), field)
        option = f"--{field.replace('_', '-')}" if field else "the study"
        raise BadInput(f"{option}: {text.partition(' - at')[0]}") from error
    except UnicodeEncodeError as error:
        raise BadInput(f"{error.object!r} is no text; give names in UTF-8") from error


def _with_network(study: Study) -> Study:
    """The same with the network itself where a file was named, without loading NumPy where none was."""
    if not isinstance(study.model, str) or not study.model.endswith(".toml"):
        return study
    from polybench.planning.network_file import with_network

    return with_network(study)


class Changes:
    """The fields of a study that were given on the command line."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def applied_to(self, study: Study) -> Study:
        """This study with the given fields instead of its own; raises BadInput where they do not fit.

        Environments of the study's own engines go with them.
        """
        fields = msgspec.structs.asdict(study) | self._fields
        if "engines" in self._fields and "env" not in self._fields:
            fields["env"] = environments_of(fields["engines"], study.env)
        return make_study(**fields)
