"""`python -m polybench` is the same program as `polybench`."""

from polybench.cli import main

main()
