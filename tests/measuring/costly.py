"""An engine of which each call costs something, as a call of `model.fit` does."""

from polybench.engines.fake.engine import FakeEngine


class Costly(FakeEngine):
    """Otherwise the fake one."""

    calls_cost = True
