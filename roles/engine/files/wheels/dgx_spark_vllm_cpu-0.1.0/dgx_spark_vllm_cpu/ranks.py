# SPDX-License-Identifier: BSD-2-Clause
"""Ranks on different nodes exchange over the network, never through /dev/shm."""

import os
from typing import Any


def register() -> None:
    """Make the name of the shared-memory group the node's own.

    Ranks use /dev/shm whenever they share a group name, also where they do not share a /dev/shm. With the node's
    address in the name they differ, and the traffic goes over the fabric.
    """
    from vllm.distributed.device_communicators import cpu_communicator as module

    shared = module._CPUSHMDistributed
    original = shared.make_group_name
    if getattr(original, "_dgx_spark", False):
        return

    def make_group_name(communicator: Any) -> str:
        return os.environ.get("VLLM_HOST_IP", "") + original(communicator)

    make_group_name._dgx_spark = True
    shared.make_group_name = staticmethod(make_group_name)
