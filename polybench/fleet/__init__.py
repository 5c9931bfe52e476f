"""A study on other machines: groups of machines, what runs them, and the driver that stores what they send.

ADD AN EXECUTOR: a file with a class that follows `executor.Executor`, and its row in `EXECUTORS`.
"""
