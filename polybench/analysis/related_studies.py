"""Finds saved documents with equal settings, machine and versions as a study. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from polybench.schema.measurements import ConfigurationLayers, LayersDocument
from polybench.schema.metadata import Settings
from polybench.schema.result import Result, library_versions
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import is_anonymized

Axis = Literal["batch_size", "threads", "malloc"]
"""Setting in which a related study may differ."""

_MAX_DIFFERENCE = 0.2
"""Fraction by which the step next to the layers may differ from the study's."""

_EQUAL_SETTINGS = ("model", "pass_", "data_sha256", "batch_size", "optimizer", "threads", "malloc")


class Variation(NamedTuple):
    """Result of a configuration in another study, and that study's value of an axis."""

    value: int | str
    study: StudyDocument
    result: Result


def find_layers(
    study: StudyDocument, documents: Iterable[LayersDocument], configurations: Sequence[str]
) -> LayersDocument | None:
    """Return the first related document with the layers of all these configurations.

    The study's input may differ, because layers are always timed with preloaded batches. Layers of a step whose time
    is more than 20 % away from the study's come from another state of the machine, so they do not count.
    """
    for document in documents:
        if not (_same_settings(study.settings, document.settings) and _same_machine(study, document)):
            continue
        found = [document.configuration(configuration) for configuration in configurations]
        if all(
            layers
            and layers.rows
            and _same_versions(layers.versions, study.result(configuration).versions)
            and _same_step_time(layers, study.result(configuration))
            for configuration, layers in zip(configurations, found, strict=True)
        ):
            return document
    return None


def find_variations(
    study: StudyDocument, configurations: Sequence[str], axis: Axis, studies: Iterable[StudyDocument]
) -> list[list[Variation]]:
    """Find these configurations in studies that differ only in `axis`, in the first study with each value.

    Returns a list for each value, with a variation for each configuration.
    """
    found: dict[int | str, list[Variation]] = {}
    for other in studies:
        value = getattr(other.settings, axis)
        if value == getattr(study.settings, axis) or value in found or not _differ_only_in(study, other, axis):
            continue
        results = {result.configuration: result for result in other.results if result.is_ranked}
        if all(
            configuration in results
            and _same_versions(results[configuration].versions, study.result(configuration).versions)
            for configuration in configurations
        ):
            found[value] = [Variation(value, other, results[configuration]) for configuration in configurations]
    return list(found.values())


def _same_step_time(layers: ConfigurationLayers, result: Result) -> bool:
    if layers.step_seconds is None or result.step_time is None:
        return False
    waiting = (result.pipeline and result.pipeline.data_wait_seconds_per_step) or 0.0
    return abs(layers.step_seconds / (result.step_time.mean - waiting) - 1) <= _MAX_DIFFERENCE


def _differ_only_in(study: StudyDocument, other: StudyDocument, axis: Axis) -> bool:
    one, two = study.settings, other.settings
    same_input = (one.input, one.augment) == (two.input, two.augment)
    # By default, there are as many loader workers as threads.
    same_workers = one.loader_workers == two.loader_workers or axis == "threads"
    return _same_settings(one, two, axis) and same_input and same_workers and _same_machine(study, other)


def _same_settings(one: Settings, two: Settings, ignored: str = "") -> bool:
    """Compare settings. If there are several precisions, only the first one counts, because the name of a
    configuration contains any other."""
    same = all(getattr(one, name) == getattr(two, name) for name in _EQUAL_SETTINGS if name != ignored)
    precisions = {settings.precision.partition(",")[0] for settings in (one, two)}
    return same and len(precisions) == 1 and bool(one.pinned_cpus) == bool(two.pinned_cpus)


_MACHINE = ("hostname", "cpu", "cores", "gpus")
_ANONYMOUS_MACHINE = (*_MACHINE, "os", "threads", "memory_bytes", "cpu_governor")
"""Fields that must be equal for an anonymous study, which may still be from another machine of this kind."""


def _same_machine(one: StudyDocument | LayersDocument, two: StudyDocument | LayersDocument) -> bool:
    fields = _ANONYMOUS_MACHINE if is_anonymized(one.host) else _MACHINE
    return all(getattr(one.host, name) == getattr(two.host, name) for name in fields)


def _same_versions(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Compare frameworks and libraries; these and the settings determine how engines are built and started."""
    return library_versions(one) == library_versions(two)
