#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible inventory of the test bed in BED_DIR (default: .bed in the checkout)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from testbed.bedlib.inventory import main

if __name__ == "__main__":
    sys.exit(main())
