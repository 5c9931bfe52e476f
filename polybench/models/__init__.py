"""The networks. ADD A MODEL: one file with one tuple of layers, and its row here."""

from polybench.core.layers import Model
from polybench.models.lenet import LENET

MODELS: dict[str, Model] = {model.name: model for model in (LENET,)}
