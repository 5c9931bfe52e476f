"""NNlib's own table of convolutions against PyTorch, measured here, beside what its authors printed.

python examples/nnlib_conv.py                 # flux and torch, 4 threads, batch 2, as they did
python examples/nnlib_conv.py fake fake+slow

Source: FluxML/NNlib.jl, benchmark/conv_vs_pytorch, 2026: forward, float32; on the authors' hardware.
"""

from __future__ import annotations

import sys

import polybench

PUBLISHED = {
    "conv 7x7 3->64 stride 2 pad 3 on 224x224": (5.0, 10.5),
    "conv 3x3 64->64 pad 1 on 56x56": (2.5, 8.4),
    "conv 3x3 128->128 pad 1 on 28x28": (2.5, 6.9),
    "conv 1x1 256->256 on 14x14": (0.48, 0.61),
}
"""Milliseconds of PyTorch and of NNlib."""

engines = sys.argv[1:] or ["torch", "flux"]
print(f"{'layer':<42} {'published':>22} {'here':>22}")
for layer, (pytorch, nnlib) in PUBLISHED.items():
    result = polybench.layers(
        layer=layer, engines=engines, devices=["cpu"], data="synthetic", batch_size=2, threads=4, quick=True
    )
    ms = [1e3 * row["seconds_per_step"] for row in result.rows() if row["operation"] == "forward"]
    ratio = f"{ms[1] / ms[0]:.1f}" if len(ms) == 2 else "not measured"
    here = f"{' '.join(f'{one:.2f}' for one in ms)}  ratio {ratio}"
    print(f"{layer:<42} {f'{pytorch} {nnlib}  ratio {nnlib / pytorch:.1f}':>22} {here:>22}")
