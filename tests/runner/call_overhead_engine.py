"""A fake engine with call overhead, like that of `model.fit`."""

from polybench.engines.fake.engine import FakeEngine


class CallOverheadEngine(FakeEngine):
    """The fake engine with call overhead."""

    has_call_overhead = True
