# SPDX-License-Identifier: GPL-3.0-or-later
"""Random tests judge results, not speed: a loaded machine must not fail them. Figures are in benchmarks/."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
