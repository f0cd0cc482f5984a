# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror's tests on the bed of this scenario: Molecule looks for tests below the scenario only."""

from tests.mirror.test_actions import *  # noqa: F403
from tests.mirror.test_cuts import *  # noqa: F403
