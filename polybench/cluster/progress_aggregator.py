"""Combined progress of several machines."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.cluster.messages import ProgressLine
from polybench.runner.progress import ConfigurationProgress, Progress


class ProgressAggregator:
    """Prefixes each machine's progress with its label; with a single machine it adds no prefix.

    Args:
        progress: receives the combined progress.
        has_several_machines: True if there are several machines.
    """

    def __init__(self, progress: Progress, *, has_several_machines: bool) -> None:
        self._progress, self._has_several_machines = progress, has_several_machines
        self._configurations: dict[str, list[ConfigurationProgress]] = {}
        self._seconds: dict[str, float] = {}

    def on_stage(self, text: str) -> None:
        """Report a stage of the driver itself."""
        self._progress.on_stage(text)

    def on_warning(self, text: str) -> None:
        """Report a warning of the driver itself."""
        self._progress.on_warning(text)

    def machine(self, label: str) -> MachineProgress:
        """Return the progress of this machine."""
        return MachineProgress(self, label)

    def label_text(self, label: str, text: str) -> str:
        """Prefix the text with its machine, if there are several."""
        return f"{label}: {text}" if self._has_several_machines else text

    def report_configurations(self, label: str, configurations: Sequence[ProgressLine]) -> None:
        """Report the progress of this machine's configurations together with all others'."""
        self._configurations[label] = [
            ConfigurationProgress(
                f"{label}:{one.name}" if self._has_several_machines else one.name,
                one.parity,
                one.status,
                one.rounds,
                one.median_step_seconds,
            )
            for one in configurations
        ]
        self._progress.on_configurations(
            [configuration for machine in self._configurations.values() for configuration in machine]
        )

    def report_time_left(self, label: str, seconds: float) -> None:
        """Report the maximum of all machines' remaining times, since machines run in parallel."""
        self._seconds[label] = seconds
        self._progress.on_time_left(max(self._seconds.values()))


class MachineProgress:
    """Progress of one machine."""

    def __init__(self, aggregator: ProgressAggregator, label: str) -> None:
        self._aggregator, self._label = aggregator, label

    def on_stage(self, text: str) -> None:
        """Report a stage with the machine's label."""
        self._aggregator.on_stage(self._aggregator.label_text(self._label, text))

    def on_time_left(self, seconds: float) -> None:
        """Report the remaining time."""
        self._aggregator.report_time_left(self._label, seconds)

    def on_configurations(self, configurations: Sequence[ProgressLine]) -> None:
        """Report the progress of configurations."""
        self._aggregator.report_configurations(self._label, configurations)

    def on_warning(self, text: str) -> None:
        """Report a warning with the machine's label."""
        self._aggregator.on_warning(self._aggregator.label_text(self._label, text))
