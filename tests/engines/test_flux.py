import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux import FluxEngine


def test_flux_is_unavailable_with_a_reason_and_a_remedy() -> None:
    with pytest.raises(Unavailable, match="next version") as caught:
        FluxEngine().load_framework()
    assert caught.value.remedy == "use --engines torch,tf until then"
