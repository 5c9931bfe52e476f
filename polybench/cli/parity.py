"""`polybench parity`: only the parity check, tensor by tensor."""

from __future__ import annotations

from polybench.cli.execute import execute
from polybench.cli.options import WORKLOAD, TableFormat, with_options
from polybench.cli.output import OutputOptions
from polybench.schema.options import Study


@with_options(*WORKLOAD, "parity_steps", "timeout", "strict", "output", "anonymous", "quiet", "verbose")
def parity(study: Study, options: OutputOptions, strict: bool, format: TableFormat = "table") -> None:
    """Example: polybench parity --engines torch,tf --data cifar10"""
    execute(study, options._replace(save=False, format=format), strict=strict, parity_only=True)
