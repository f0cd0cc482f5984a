#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the rails of the fabric; the thinking is in module_utils/_fabric_bench.py and _fabric_verdict.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_test
short_description: Measure bandwidth and latency of each rail
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Measures with perftest (RDMA) or iperf3 (TCP), and judges the numbers by what link and PCIe should give.
  - One host serves, another measures. Servers end after their one client, or by themselves after five minutes.
options:
  phase:
    description:
      - V(tools) says what the host has.
      - V(serve) starts the servers for O(rails).
      - V(measure) measures to O(peers), whose hosts serve.
    type: str
    choices: [tools, serve, measure]
    required: true
  rails:
    description: This host's rails, as M(dgx_spark.vllm.roce_gid_info) returns them.
    type: list
    elements: dict
    default: []
  tools:
    description: The RV(tools) of all hosts by name; the best method that all of them have is used.
    type: dict
    default: {}
  peers:
    description: Addresses of one serving host, one for each rail.
    type: list
    elements: str
    default: []
  port:
    description: First of the TCP ports used, two for each rail.
    type: int
    default: 18515
  seconds:
    description: How long the bandwidth of a rail is measured.
    type: int
    default: 5
  floor_mbps:
    description: Slowest bandwidth that is sound; 0 to derive it from link, PCIe width and method.
    type: int
    default: 0
  latency_us:
    description: Longest latency that is sound, in microseconds; 0 for that of the method.
    type: float
    default: 0
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: partial
    details: V(serve) and V(measure) do nothing.
  diff_mode:
    support: none
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: See what measures
  dgx_spark.vllm.fabric_test:
    phase: tools
  register: have

- name: Serve
  dgx_spark.vllm.fabric_test:
    phase: serve
    rails: "{{ fabric.rails }}"
    tools: "{{ {inventory_hostname: have.tools} }}"
"""

RETURN = r"""
tools:
  description: Whether perftest and iperf3 can be used here.
  returned: V(tools)
  type: dict
  sample: {perftest: false, iperf3: true}
method:
  description: What is measured with.
  returned: V(serve), V(measure)
  type: str
results:
  description: One entry for each rail and peer.
  returned: V(measure)
  type: list
  elements: dict
  sample:
    - peer: 192.168.100.2
      address: 192.168.100.1
      netdev: enp1s0f1np1
      device: rocep1s0f1
      method: perftest
      mbps: 97500.0
      latency_us: 1.87
      expected_mbps: 100000
      floor_mbps: 90000
      most_us: 10.0
      sound: true
      reason: ""
table:
  description: The same as a person reads it.
  returned: V(measure)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_bench, _fabric_verdict


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "phase": {"type": "str", "choices": ["tools", "serve", "measure"], "required": True},
            "rails": {"type": "list", "elements": "dict", "default": []},
            "tools": {"type": "dict", "default": {}},
            "peers": {"type": "list", "elements": "str", "default": []},
            "port": {"type": "int", "default": 18515},
            "seconds": {"type": "int", "default": 5},
            "floor_mbps": {"type": "int", "default": 0},
            "latency_us": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["phase"] == "tools":
        module.exit_json(changed=False, tools=_fabric_bench.tools())
    method, why = _fabric_verdict.choose(params["tools"])
    if not method:
        module.fail_json(msg=f"{why}; install them with -e fabric_test_install=true")
    if module.check_mode:
        module.exit_json(changed=False, method=method, results=[], table=[])
    rails, port = params["rails"], params["port"]
    try:
        if params["phase"] == "serve":
            _fabric_bench.serve(method, rails, port)
            module.exit_json(changed=False, method=method)
        bounds = (params["floor_mbps"], params["latency_us"])
        results = _fabric_bench.measure(method, rails, params["peers"], port, params["seconds"], bounds)
    except (_fabric_verdict.VerdictError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, method=method, results=results, table=_fabric_verdict.table(results))


if __name__ == "__main__":
    main()
