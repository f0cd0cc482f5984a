# SPDX-License-Identifier: GPL-3.0-or-later
"""Real systemd nodes for tests: systemd-nspawn over one cached tree, with hardware as data. See docs/testbed.md."""
