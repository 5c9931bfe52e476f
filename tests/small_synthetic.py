"""Makes synthetic images few in a process that imports this: each study reads all of them, to check their file."""

from __future__ import annotations

from polybench.data import synthetic
from tests.small_datasets import SYNTHETIC

synthetic.IMAGES.update(SYNTHETIC)
