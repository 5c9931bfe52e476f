"""Suggests further measurements for a finished study, as studies and as command lines."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from polybench.engines import ENGINES
from polybench.errors import BadInput
from polybench.networks.model import Model
from polybench.networks.network_file import FINGERPRINT_MARK
from polybench.planning.study_file import NETWORK_SUFFIX, stored_study
from polybench.schema.options import EngineName, Study, environments_of, is_program, program_paths
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

OWN_DATA = "own data"
"""The data set of such a study: `OWN_DATA` in `julia/src/document.jl`."""
_DEFAULTS = msgspec.structs.asdict(Study())
_OPTION_NAMES = {"injected_delays": "inject_delay", "prices": "price"}

_NOT_FOR_LAYERS = (
    "input", "loader_workers", "augment", "epochs", "accuracy", "target_accuracy", "target_loss", "metrics", "prices",
    "replicas", "cold_starts",
)  # fmt: skip
_NOT_FOR_SWEEP = ("epochs", "accuracy", "target_accuracy", "target_loss", "prices", "loader_workers", "replicas")
_NOT_FOR_PARITY = (
    "processes", "rounds_per_process", "steps_per_round", "margin", "tolerance", "epochs", "accuracy",
    "target_accuracy", "target_loss", "budget", "wait_idle", "parity", "cold_starts", "metrics", "prices",
)  # fmt: skip
"""Fields of a study that are not options of `layers`, of `sweep` and `overhead`, of `parity`."""


def measured_study(document: StudyDocument) -> Study:
    """Return the study as measured, with explicit threads.

    Raises BadInput if another version of polybench wrote it, with unknown settings, or if `check_repeatable` does.
    """
    check_repeatable(document)
    study = stored_study(document.study, str(document.id))
    return msgspec.structs.replace(study, threads=document.settings.threads)


def check_repeatable(document: StudyDocument) -> None:
    """Raise BadInput for a study that `write_study` in Julia saved of a user's own model."""
    if document.settings.dataset == OWN_DATA:
        raise BadInput(
            f"cannot measure {document.id} again: its model {document.settings.model!r} is known only to the Julia"
            " session that measured it: call bench there again"
        )


def for_layers(study: Study, configurations: Sequence[Result]) -> Study | None:
    """Return the study of these configurations' layers, including repeats;
    None for bf16, which has no layer timing."""
    precisions = tuple(name for name in study.precisions if name != "bf16")
    if study.precisions[0] == "bf16":
        return None
    # An engine has one configuration per mention on each device and at each precision.
    named = Counter(
        (engine_of(configuration), configuration.device, configuration.workload.precision)
        for configuration in configurations
    )
    engines = [
        name
        for name in dict.fromkeys(map(engine_of, configurations))
        for _ in range(max(number for (engine, *_), number in named.items() if engine == name))
    ]
    alone = _only(study, engines, _NOT_FOR_LAYERS)
    return msgspec.structs.replace(alone, precision=precisions[0] if len(precisions) == 1 else precisions)


def for_sweep(study: Study, engines: Iterable[str], axis: str) -> Study:
    """Return the settings for a sweep over this field."""
    return _only(study, dict.fromkeys(engines), (*_NOT_FOR_SWEEP, axis))


def for_parity(study: Study, engine: str) -> Study:
    """Return the settings for the parity check of this engine."""
    return _only(study, [engine], _NOT_FOR_PARITY)


def for_comparison(study: Study, engines: Iterable[str], **changes: Any) -> Study:
    """Return the study with other engines and changed fields."""
    return msgspec.structs.replace(_only(study, dict.fromkeys(engines), ()), **changes)


def _only(study: Study, engines: Iterable[str], without: Iterable[str]) -> Study:
    """Reset these fields, and those that name configurations, which may be gone."""
    defaults = {name: _DEFAULTS[name] for name in (*without, "baseline", "injected_delays")}
    paths = program_paths(study.engines)
    named = [text.replace(name := EngineName.parse(text).engine, paths.get(name, name), 1) for text in engines]
    alone = msgspec.structs.replace(study, engines=tuple(named), **defaults)
    return msgspec.structs.replace(alone, env=environments_of(alone.engines, study.env))


def engine_of(result: Result) -> str:
    """Return the name that selects it: `torch+compile@nightly`."""
    return result.engine_name


def has_layers(result: Result) -> bool:
    """True if this configuration supports layer timing."""
    if is_program(result.engine):
        return False
    row = ENGINES.get(result.engine)
    whole = row is not None and not row.supports_layer_timing((result.variant or "").split("+"))
    return not whole and result.workload.precision != "bf16" and result.workload.replicas == 1


def other_variants(result: Result) -> list[str]:
    """Return the plain engine and each single variant for this configuration's device, without itself.

    Includes only the first variant that changes thread pools; a sweep compares the others.
    """
    row = ENGINES.get(result.engine)
    if row is None or not row.computes:
        return []
    sizes = [name for name, variant in row.variants.items() if variant.changes_thread_pools]
    variants = [
        (name,)
        for name, variant in row.variants.items()
        if (result.device != "cpu" or not variant.cuda_only)
        and name not in sizes[1:]
        and not (result.workload.is_forward_pass and variant.training_only)
        and not (variant.caveat or variant.diagnostic_only or variant.needs_extra_package)
    ]
    names = [str(EngineName(result.engine, variant, result.environment)) for variant in ((), *variants)]
    return [name for name in names if name != engine_of(result)]


def command_line(command: str, study: Study, *more: str) -> str:
    """Return the command line that measures this study; `more` are further words."""
    words = [word for field in Study.__struct_fields__ for word in _words(field, getattr(study, field))]
    return shlex.join(["polybench", command, *words, *more])


def _words(field: str, value: Any) -> Iterator[str]:
    if value == _DEFAULTS[field] and field != "engines":  # engines are always explicit
        return
    option = f"--{_OPTION_NAMES.get(field, field).replace('_', '-')}"
    if isinstance(value, Model):  # a study does not store the file's path
        yield from (option, value.name.partition(FINGERPRINT_MARK)[0] + NETWORK_SUFFIX)
    elif isinstance(value, bool):
        yield option if value else option.replace("--", "--no-", 1)
    elif isinstance(value, dict) or field == "lr_schedule":
        for name, number in value.items() if isinstance(value, dict) else value:
            yield from (option, f"{name}={number}")
    else:
        yield from (option, ",".join(map(str, value)) if isinstance(value, tuple) else str(value))
