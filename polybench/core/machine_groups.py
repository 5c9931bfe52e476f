"""Machine groups: the machines on which a study is measured, each separately, as in `[[machines]]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from polybench.core.errors import BadInput
from polybench.core.prices import parse_price_key
from polybench.core.spec import PositiveFloat, PositiveInt, Study

Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\n)", max_length=60)]


class MachineGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A class of machines, one of which measures all configurations of a study.

    A group gets a whole machine: all of its cores and GPUs. Fields that are None request nothing.
    """

    label: Label = "local"
    """Name of the machine in the table; unique."""
    accelerator: str | None = None
    """GPU type: Ray's accelerator type ("V100"), or the type of a SLURM gres."""
    resources: str | None = None
    """A resource with which Ray's nodes of this class were started (`ray start --resources`)."""
    partition: str | None = None
    """SLURM partition; of several, separated by commas, SLURM chooses the first that is free."""
    constraint: str | None = None
    """SLURM constraint on node features."""
    minutes: PositiveInt | None = None
    """Time limit of a SLURM job; polybench resumes in a new job after it. None is two hours, or the
    partition's limit if that is shorter."""
    devices: tuple[str, ...] | None = None
    """The study's devices to measure on this machine; None is all that the machine has, or that the study
    names."""
    price: PositiveFloat | None = None
    """Dollars per hour for the machine, or per GPU if configurations with replicas use several GPUs. None
    uses the study's prices."""

    def study(self, study: Study) -> Study:
        """Return the study with this machine's devices and price.

        A baseline on another machine is dropped, because its configuration may not exist here.
        """
        devices = self.devices or study.devices
        prices = study.prices
        if self.price is not None:
            prices = dict.fromkeys(devices or ("cpu", "cuda"), self.price)
        elif self.devices is not None:
            prices = {name: price for name, price in prices.items() if parse_price_key(name) in self.devices}
        machine, configuration = split_baseline(study.baseline)
        baseline = configuration if machine in (None, self.label) else None
        return msgspec.structs.replace(study, devices=devices, prices=prices, baseline=baseline)


SINGLE_MACHINE = (MachineGroup(),)
"""The default for a study file without machines."""


def split_baseline(baseline: str | None) -> tuple[str | None, str | None]:
    """Split `MACHINE:CONFIGURATION`; the machine is None if absent. Configurations may contain colons."""
    machine, colon, configuration = (baseline or "").partition(":")
    if not colon or "/" in machine:
        return None, baseline
    return machine, configuration


def check_machine_groups(study: Study, groups: Sequence[MachineGroup]) -> None:
    """Reject groups on which a study cannot be measured.

    Raises:
        BadInput: labels are not unique, the baseline names another machine, a device is unknown, or
            configurations have environments, which exist on one machine only.
    """
    if study.env:
        names = ", ".join(study.env)
        raise BadInput(f"env {names}: environments exist on this machine only; drop them, or drop --on")
    labels = [group.label for group in groups]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"duplicate label {label!r} in [[machines]]: give each machine its own label")
    machine, _ = split_baseline(study.baseline)
    if machine is not None and machine not in labels:
        raise BadInput(f"baseline {study.baseline}: unknown machine {machine!r}; machines are: {', '.join(labels)}")
    for group in groups:
        group.study(study)
