"""What every kind of layer is: a record that tells its tensors, and the shape that it puts out."""

from __future__ import annotations

import msgspec

Shape = tuple[int, ...]


class LayerBase(msgspec.Struct, frozen=True):
    """A layer without tensors that keeps its input's shape; the others say what is different."""

    def weight_shapes(self) -> dict[str, Shape]:
        """Part -> shape of what is trained, in canonical layout."""
        return {}

    def state_shapes(self) -> dict[str, Shape]:
        """Part -> shape of what changes in training without a gradient."""
        return {}

    def output_shape(self, shape: Shape) -> Shape:
        """The shape for one image or sequence of `shape`; raises ValueError where that does not fit."""
        return shape
