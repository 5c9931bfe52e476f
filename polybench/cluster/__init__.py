"""Studies on other machines: machine groups, executors that run them, and the driver that stores the results.

ADD AN EXECUTOR: a file with a class that follows `executor.Executor`, and its row in `EXECUTORS`.
"""
