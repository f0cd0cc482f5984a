# SPDX-License-Identifier: BSD-2-Clause
"""Plugins of vLLM for its CPU build, found through vLLM's own entry points."""


def register() -> str:
    """The platform class to use, by name: vLLM imports it when it has chosen."""
    return "dgx_spark_vllm_cpu.ray_platform.RayCpuPlatform"
