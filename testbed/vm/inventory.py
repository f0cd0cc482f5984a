#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory script of the pair of VMs (VM_DIR): `ansible-playbook -i testbed/vm/inventory.py …`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from testbed.vm.cli import main

sys.exit(main(["inventory", *sys.argv[1:]]))
