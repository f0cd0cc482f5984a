#!/usr/bin/python
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric of a host; the thinking is in module_utils/_roce.py, _fabric_checks.py and _fabric_reach.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_gid_info
short_description: Rails, GID rows and NCCL environment of a host's RoCE fabric
version_added: "0.1.0"
author: dgx_spark.vllm contributors (@dgx-spark)
description:
  - Reads RDMA ports, GID tables, network interfaces and addresses, chooses the rails and the GID index of each, and
    derives the environment of NCCL, Gloo and vLLM. It is the resolver that the units run at every start.
  - Given the facts of all hosts (O(hosts)), it checks the fabric across them as well.
  - Given O(peers), it reaches each of them over its rail with packets of the full MTU that must not be fragmented.
  - Needs no privilege, except to read firewall rules (see O(ports)). Writes nothing.
options:
  host:
    description: Name of this host in errors and warnings, such as its name in the inventory. By default its host name.
    type: str
  root:
    description:
      - Directory that stands for C(/).
      - Under another root than C(/), addresses are those in C(ip-address.json) (the output of C(ip -j address)), or,
        where that file is missing, those in the GID tables.
    type: path
    default: /
  addresses:
    description: This host's fabric addresses, one for each rail.
    type: list
    elements: str
  subnets:
    description:
      - The rails' subnets; this host's address in each is used. Ignored where O(addresses) is given.
      - With neither, every RDMA port that has a link and an IPv4 address is a rail.
    type: list
    elements: str
  gid_mode:
    description:
      - V(auto) sets NCCL_IB_GID_INDEX where all rails share an index, and address family, RoCE version and address
        range where they do not.
      - V(pin) demands the one index and fails without.
      - V(none) never sets the index.
    type: str
    choices: [auto, pin, none]
    default: auto
  pins:
    description: What the inventory fixes for this host. Each pin is checked against the live table.
    type: dict
    suboptions:
      interface:
        description: Names of the rails' network interfaces.
        type: list
        elements: str
      device:
        description: Names of the rails' RDMA devices.
        type: list
        elements: str
      address:
        description: The rails' addresses.
        type: list
        elements: str
      index:
        description: GID index for all rails, a plain decimal number.
        type: raw
  peers:
    description: Addresses of other hosts; each is reached over the rail in whose subnet it lies.
    type: list
    elements: str
    default: []
  ports:
    description:
      - TCP ports that the peers must be able to reach on this host.
      - This host's firewall (ufw, nftables) is judged against them; its rules are readable only with C(become).
      - With O(peers), a connection to each port of each peer is tried as well; a refusal counts as passed.
    type: list
    elements: int
    default: []
  hosts:
    description: The RV(facts) of all hosts by inventory name, to check the fabric across them.
    type: dict
    default: {}
  host_pins:
    description: The pins of all hosts by inventory name, for O(hosts).
    type: dict
    default: {}
  min_speed_mbps:
    description: With O(hosts), a rail that is slower is an error.
    type: int
    default: 0
extends_documentation_fragment: [ansible.builtin.action_common_attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: posix
"""

EXAMPLES = r"""
- name: See a host's fabric
  dgx_spark.vllm.roce_gid_info:
    host: "{{ inventory_hostname }}"
  register: fabric

- name: Resolve the rails of two subnets
  dgx_spark.vllm.roce_gid_info:
    subnets: [192.168.100.0/24, 192.168.101.0/24]

- name: Check the fabric across all hosts
  dgx_spark.vllm.roce_gid_info:
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, ['fabric', 'facts']))) }}"
  run_once: true

- name: Reach the other host over the fabric
  dgx_spark.vllm.roce_gid_info:
    subnets: [192.168.100.0/24]
    peers: [192.168.100.2]
    ports: [6379]
"""

RETURN = r"""
rails:
  description: The rails in order. The first one's address is VLLM_HOST_IP.
  returned: always
  type: list
  elements: dict
  sample:
    - address: 192.168.100.1
      prefix: 24
      subnet: 192.168.100.0/24
      netdev: enp1s0f1np1
      device: rocep1s0f1
      port: 1
      state: ACTIVE
      carrier: true
      mtu: 9000
      speed_mbps: 200000
      pcie_width: 4
      pcie_max_width: 4
      gid_index: 3
      indices: [3]
      rows:
        - {index: 1, type: RoCE v2, gid: "fe80:0000:0000:0000:4ebb:47ff:fe2d:7bd7", address: "", netdev: enp1s0f1np1}
        - index: 3
          type: RoCE v2
          gid: "0000:0000:0000:0000:0000:ffff:c0a8:6401"
          address: 192.168.100.1
          netdev: enp1s0f1np1
environment:
  description: The variables for every process of the engine on this host.
  returned: always
  type: dict
  sample:
    NCCL_NET: IB
    NCCL_IB_DISABLE: "0"
    NCCL_IB_HCA: "=rocep1s0f1:1"
    NCCL_IB_GID_INDEX: "3"
    NCCL_SOCKET_IFNAME: "=enp1s0f1np1"
    GLOO_SOCKET_IFNAME: enp1s0f1np1
    VLLM_HOST_IP: 192.168.100.1
warnings:
  description: What works, but slower or less surely than it could.
  returned: when there are any
  type: list
  elements: str
warning_details:
  description: The same by part, with the keys of RV(errors).
  returned: always
  type: list
  elements: dict
errors:
  description: What keeps the fabric from working, all of it.
  returned: failure
  type: list
  elements: dict
  contains:
    host: {description: The host., type: str, returned: always}
    subject: {description: What is wrong., type: str, returned: always}
    found: {description: How it was found; often the table., type: str, returned: always}
    expected: {description: How it should be., type: str, returned: always}
    cure: {description: What to do., type: str, returned: always}
    fault: {description: A word for programs., type: str, returned: always}
table:
  description: The GID tables as a person reads them, the chosen rows marked.
  returned: always
  type: str
facts:
  description: All that was read, for O(hosts).
  returned: always
  type: dict
reach:
  description: One entry for each peer and rail, with how it was tested.
  returned: always
  type: list
  elements: dict
  sample:
    - peer: 192.168.100.2
      address: 192.168.100.1
      netdev: enp1s0f1np1
      mtu: 9000
      method: ping -M do -s 8972
      reached: true
      sent: 3
      received: 3
      rtt_ms: 0.041
      too_long: false
      reason: ""
port_reach:
  description: One entry for each peer and port - peer, port, answer (open, refused, silent or an error), passes.
  returned: always
  type: list
  elements: dict
firewall:
  description: What ufw and nftables of this host would do with the peers' connections.
  returned: when O(ports) is given
  type: dict
hosts:
  description: The checks across hosts - errors, warnings, rails, environment, subnets.
  returned: when O(hosts) is given
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.dgx_spark.vllm.plugins.module_utils import _fabric_module
from ansible_collections.dgx_spark.vllm.plugins.module_utils._roce_problem import as_text

PIN_SPEC = {
    "interface": {"type": "list", "elements": "str"},
    "device": {"type": "list", "elements": "str"},
    "address": {"type": "list", "elements": "str"},
    "index": {"type": "raw"},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "host": {"type": "str"},
    "root": {"type": "path", "default": "/"},
    "addresses": {"type": "list", "elements": "str"},
    "subnets": {"type": "list", "elements": "str"},
    "gid_mode": {"type": "str", "choices": ["auto", "pin", "none"], "default": "auto"},
    "pins": {"type": "dict", "options": PIN_SPEC},
    "peers": {"type": "list", "elements": "str", "default": []},
    "ports": {"type": "list", "elements": "int", "default": []},
    "hosts": {"type": "dict", "default": {}},
    "host_pins": {"type": "dict", "default": {}},
    "min_speed_mbps": {"type": "int", "default": 0},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    result, failure = _fabric_module.gather(module.params)
    for warning in result["warning_details"]:
        module.warn(as_text(warning))
    if failure:
        module.fail_json(msg=failure, **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
