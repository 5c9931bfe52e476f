"""Padding of images: pixels that convolutions and pools add on each side."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

_Pixels = Annotated[int, Meta(ge=0, le=1 << 12)]
_TWO = Meta(min_length=2, max_length=2)
"""In place of `tuple[X, X]`: msgspec 0.22 reads the limits of an integer in a union with one from the wrong field."""

Padding = Literal["valid", "same"] | _Pixels | Annotated[tuple[Annotated[tuple[_Pixels, ...], _TWO], ...], _TWO]
"""The pixels on all four sides, or on each: [[top, bottom], [left, right]].

"valid" is 0; "same" keeps the size: (kernel - 1) / 2. "same" requires stride 1 and an odd kernel. Otherwise, TensorFlow
adds more pixels at the end than at the start, Flux more at the start, and PyTorch refuses strides. Numbers mean the
same in every framework.
"""


class Sides(NamedTuple):
    """The pixels on each side of an image."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def axes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Start and end of height and width, the order of NumPy, JAX and Keras."""
        return (self.top, self.bottom), (self.left, self.right)

    @property
    def width_first(self) -> tuple[int, int, int, int]:
        """Start and end of width and height, the order of PyTorch's `F.pad` and of Julia."""
        return self.left, self.right, self.top, self.bottom

    @property
    def symmetric(self) -> tuple[int, int] | None:
        """The pixels on both sides of height and width; None if two opposite sides differ."""
        return (self.top, self.left) if self.top == self.bottom and self.left == self.right else None

    def plus(self, other: Sides) -> Sides:
        """Return the sides of both paddings, one around the other."""
        return Sides(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def padding(self) -> Padding:
        """The shortest padding of a layer record with these sides."""
        return self.top if len(set(self)) == 1 else self.axes

    def __str__(self) -> str:
        """The padding as in network files."""
        return str(self.padding).translate({ord("("): "[", ord(")"): "]"})


NO_PADDING = Sides(0, 0, 0, 0)


def sides(padding: Padding, kernel: int) -> Sides:
    """Return the pixels on each side, for windows of kernel x kernel."""
    if isinstance(padding, tuple):
        (top, bottom), (left, right) = padding
        return Sides(top, bottom, left, right)
    pixels = {"valid": 0, "same": (kernel - 1) // 2}[padding] if isinstance(padding, str) else padding
    return Sides(pixels, pixels, pixels, pixels)


def check_padding(name: str, padding: Padding, kernel: int, stride: int) -> None:
    """Raise ValueError for "same" padding on which frameworks disagree."""
    if padding == "same" and (stride != 1 or kernel % 2 == 0):
        raise ValueError(
            f'{name}: padding "same" requires stride 1 and an odd kernel, got stride {stride} and kernel {kernel}; give'
            " the number of zeros instead, on all sides, or on each as [[top, bottom], [left, right]]"
        )


def same_in_tensorflow(shape: tuple[int, ...], kernel: int, stride: int) -> Sides:
    """Return the sides of TensorFlow's "same" for images of `shape`: as many windows as `stride` fits into the image.

    One pixel that remains is added at the end.
    https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2
    """
    totals = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in shape[1:]]
    height, width = ((total // 2, total - total // 2) for total in totals)
    return Sides(*height, *width)
