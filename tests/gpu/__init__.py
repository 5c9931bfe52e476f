"""What only a machine with a GPU can show: `make gpu`, or `python -m tests.gpu`, there.

`__main__` is the whole story in one command, and needs nothing but Python to say that there is no GPU. The
files `test_on_*.py` are its tests, which pytest skips elsewhere; the others are tested on any machine.
"""
