"""`polybench parity`: only the identity check, tensor by tensor."""

from __future__ import annotations

from polybench.commands.execute import execute
from polybench.commands.options import WHAT, TableOrJson
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.core.spec import Study


@takes(*WHAT, "parity_steps", "timeout", "strict", "output", "anonymous", "quiet", "verbose")
def parity(study: Study, how: Presentation, strict: bool, format: TableOrJson = "table") -> None:
    """Check that engines compute what the float64 reference computes; measure nothing.

    Example: polybench parity --engines torch,tf --data cifar10
    """
    execute(study, how._replace(save=False, format=format), strict=strict, parity_only=True)
