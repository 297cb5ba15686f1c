"""Laws run on the same examples each time, however busy the machine is; `--hypothesis-seed` tries others."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "laws",
    deadline=None,
    derandomize=True,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("laws")
