"""Machine groups: on which machines a study is measured, each for itself, as `[[machines]]` says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from polybench.core.errors import BadInput
from polybench.core.prices import device_of
from polybench.core.spec import PositiveFloat, PositiveInt, Study

Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\n)", max_length=60)]


class MachineGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A class of machines, one of which measures all cells of a study.

    A group gets a whole machine: all its cores, and all its GPUs. What is None asks for nothing.
    """

    label: Label = "local"
    """What the table calls the machine; unique."""
    accelerator: str | None = None
    """A kind of GPU: Ray's accelerator type ("V100"), the type of a SLURM gres."""
    resource: str | None = None
    """A resource that Ray's nodes of this class were started with (`ray start --resources`)."""
    partition: str | None = None
    """SLURM's; several, with commas between them, are whichever is free first."""
    constraint: str | None = None
    """SLURM's, on features of nodes."""
    minutes: PositiveInt | None = None
    """After which SLURM ends a job, which then begins again and goes on; None is two hours, or as many as the
    partition allows."""
    devices: tuple[str, ...] | None = None
    """Those of the study that are measured there; None is all that the machine has, or the study says."""
    price: PositiveFloat | None = None
    """Dollars an hour for the machine, or for one GPU where cells with replicas use several of its GPUs; None
    is what the study says of its devices."""

    def study(self, study: Study) -> Study:
        """What is measured there: the study with this machine's devices and price.

        A baseline of another machine is none here, where its cell may not be.
        """
        devices = self.devices or study.devices
        prices = study.prices
        if self.price is not None:
            prices = dict.fromkeys(devices or ("cpu", "cuda"), self.price)
        elif self.devices is not None:
            prices = {name: price for name, price in prices.items() if device_of(name) in self.devices}
        machine, cell = split_baseline(study.baseline)
        baseline = cell if machine in (None, self.label) else None
        return msgspec.structs.replace(study, devices=devices, prices=prices, baseline=baseline)


ONE_MACHINE = (MachineGroup(),)
"""Where a study file names no machines."""


def split_baseline(baseline: str | None) -> tuple[str | None, str | None]:
    """`MACHINE:CELL` as machine and cell; of a cell alone the machine is None. Cells may have colons, too."""
    machine, colon, cell = (baseline or "").partition(":")
    if not colon or "/" in machine:
        return None, baseline
    return machine, cell


def check_machines(study: Study, groups: Sequence[MachineGroup]) -> None:
    """Refuse groups that a study cannot be measured on.

    Raises:
        BadInput: two have one label, the baseline names another machine, a device is unknown, or cells have
            environments, which are of one machine.
    """
    if study.env:
        names = ", ".join(study.env)
        raise BadInput(f"env {names}: environments are this machine's; a study of others (--on) has none")
    labels = [group.label for group in groups]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"two [[machines]] are called {label!r}; give each a label of its own")
    machine, _ = split_baseline(study.baseline)
    if machine is not None and machine not in labels:
        raise BadInput(
            f"baseline {study.baseline}: no machine is called {machine!r}; {', '.join(labels)} are"
        )
    for group in groups:
        group.study(study)
