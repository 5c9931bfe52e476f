"""Entry point of `python -m polybench`, the same program as `polybench`."""

from polybench.cli import main

main()
