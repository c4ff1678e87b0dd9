"""One hypothesis profile for the whole suite: no deadlines, because time is measured in benchmarks/, not here."""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("refusals")

settings.register_profile("suite", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("suite")
