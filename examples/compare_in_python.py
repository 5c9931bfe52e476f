"""Compare engines from Python and use the numbers.

python examples/compare_in_python.py                     # torch and tf on synthetic images
python examples/compare_in_python.py /data/cifar-10-batches-bin
python examples/compare_in_python.py synthetic fake fake+slow
"""

from __future__ import annotations

import sys

import polybench

data, *engines = sys.argv[1:] or ["synthetic"]
result = polybench.compare(engines=engines or ["torch", "tf"], devices=["cpu"], data=data, quick=True)

print(result)
for row in result.rows(["throughput", "speedup"]):
    if row["status"] == "ok":
        print(
            f"{row['configuration']:<16} {row['throughput']:>8,.0f} images/s, {row['speedup']:.2f} times the baseline"
        )
