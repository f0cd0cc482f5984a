# Copyright (c) 2026, dgx_spark.vllm contributors
# SPDX-License-Identifier: BSD-2-Clause
"""Shapes of the fabric's plain data, for the type checker only: nothing imports this at run time."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Problem(TypedDict):
    """One error or warning. `fault` is the word programs compare; the rest is for people."""

    host: str
    subject: str
    found: str
    expected: str
    cure: str
    fault: str


class Row(TypedDict):
    """A GID slot that holds something. `address` is the IPv4 address the GID maps, or empty."""

    index: int
    type: str
    gid: str
    address: str
    netdev: str


class Port(TypedDict):
    """A port of an RDMA device. `netdevs` are the interfaces the device's PCIe function carries."""

    device: str
    port: int
    state: str
    phys_state: str
    link_layer: str
    rate_mbps: int | None
    netdevs: list[str]
    pcie_width: int | None
    pcie_max_width: int | None
    rows: list[Row]


class Address(TypedDict):
    """An IPv4 address of an interface; `prefix` is None where only the GID table tells of it."""

    address: str
    prefix: int | None
    secondary: bool
    dynamic: bool


class Netdev(TypedDict):
    """A network interface. None means that the kernel (or the captured tree) does not say."""

    kind: str
    lower: list[str]
    mtu: int | None
    carrier: bool | None
    operstate: str
    speed_mbps: int | None
    addresses: list[Address]


class Facts(TypedDict):
    """What `read` finds on one host."""

    root: str
    hostname: str
    ports: list[Port]
    netdevs: dict[str, Netdev]
    address_source: str
    nccl_conf: dict[str, str]
    pins: NotRequired[dict[str, object]]


class Rail(TypedDict):
    """One way over the fabric: an address, its interface, and the RDMA port and GID row behind it."""

    address: str
    prefix: int | None
    subnet: str
    netdev: str
    device: str
    port: int
    state: str
    carrier: bool | None
    mtu: int | None
    speed_mbps: int | None
    pcie_width: int | None
    pcie_max_width: int | None
    gid_index: int
    indices: list[int]
    rows: list[Row]


class Resolution(TypedDict):
    """What `resolve` answers; `environment` is empty where there are errors."""

    rails: list[Rail]
    environment: dict[str, str]
    warnings: list[Problem]
    errors: list[Problem]


class Pins(TypedDict):
    """A host's pins, normalised."""

    interfaces: list[str]
    devices: list[str]
    addresses: list[str]
    index: int | None


class HostsReport(TypedDict):
    """What `check_hosts` answers."""

    errors: list[Problem]
    warnings: list[Problem]
    rails: dict[str, list[Rail]]
    environment: dict[str, dict[str, str]]
    subnets: list[str]
