"""Tests and measurements that need a GPU: `make gpu`, or `python -m tests.gpu`.

`__main__` runs everything in one command, and needs only Python to report a missing GPU. pytest skips the files
`test_on_*.py` without a GPU; the other files are tested on any machine.
"""
