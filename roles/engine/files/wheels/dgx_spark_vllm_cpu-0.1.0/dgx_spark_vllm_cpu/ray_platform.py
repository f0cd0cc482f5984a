# SPDX-License-Identifier: BSD-2-Clause
"""The CPU as a device that Ray can place a rank on."""

from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):
    """Ray counts a node that was started with --num-gpus=1 as one device, whatever the device is."""

    ray_device_key: str = "GPU"
