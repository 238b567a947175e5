"""Machines on one machine: network namespaces with a slow, lossy line each. Needs root and
iproute2.

    with Net(["hub", "north", "south"], Line(delay=0.1, rate=8e6, loss=0.01)) as net:
        net.run("north", ["sottovoce", "doctor", ...])      # a program on that machine
        net.enter("north")                                   # in a forked child: this process moves there

The first machine is the hub, whose line is perfect; the others see everybody through their own
line, both ways. Where the kernel has netem (veth, a bridge and `tc`), it makes the lines; else
packets go through TUN devices and a process of ours (tests.network.carry) that holds them back,
paces and drops them. `Net.how` says which.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Line", "Net", "why_not"]

_CLONE_NEWNET = 0x40000000
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Line:
    delay: float = 0.1  #: seconds, each way
    rate: float = 8e6  #: bits per second up, that is towards the hub
    loss: float = 0.01  #: share of packets, each way


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


def enter(namespace: str) -> None:
    """Move this process into the namespace; only before it has threads."""
    with Path(f"/run/netns/{namespace}").open() as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")


def why_not() -> str:
    """Why namespaces cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces need iproute2 (ip, tc)"
    name = f"sv-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except subprocess.CalledProcessError as e:
        return f"network namespaces are not permitted here ({e.stderr.strip()})"
    return ""


class Net:
    def __init__(self, machines: list[str], line: Line) -> None:
        self.machines, self.line, self.how = machines, line, ""
        self._carrier: subprocess.Popen[bytes] | None = None
        self._tag = f"sv{os.getpid() % 100000}"

    def address(self, machine: str) -> str:
        return f"10.77.0.{1 + self.machines.index(machine)}"

    def _name(self, machine: str) -> str:
        return f"{self._tag}-{self.machines.index(machine)}"

    def __enter__(self) -> Net:
        try:
            for machine in self.machines:
                _ip("netns", "add", self._name(machine))
                _ip("-n", self._name(machine), "link", "set", "lo", "up")
            try:
                self._netem()
                self.how = "veth and tc netem"
            except subprocess.CalledProcessError:
                self._remove_links()
                self._carry()
                self.how = "TUN devices and a packet carrier of ours (this kernel has no netem)"
        except BaseException:
            self.__exit__()
            raise
        return self

    def _netem(self) -> None:
        bridge, line = f"{self._tag}b", self.line
        hub = self._name(self.machines[0])
        _ip("-n", hub, "link", "add", bridge, "type", "bridge")
        _ip("-n", hub, "addr", "add", f"{self.address(self.machines[0])}/24", "dev", bridge)
        _ip("-n", hub, "link", "set", bridge, "up")
        for i, machine in enumerate(self.machines[1:], 1):
            near, far, name = "eth0", f"{self._tag}p{i}", self._name(machine)
            _ip("-n", name, "link", "add", near, "type", "veth", "peer", "name", far, "netns", hub)
            _ip("-n", hub, "link", "set", far, "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.address(machine)}/24", "dev", near)
            _ip("-n", name, "link", "set", near, "up")
            same = ["delay", f"{line.delay * 1000:.0f}ms", "loss", f"{line.loss * 100:g}%"]
            for where, device, more in (
                (name, near, ["rate", f"{line.rate:.0f}bit"]),
                (hub, far, []),
            ):
                words = [
                    "tc",
                    "-n",
                    where,
                    "qdisc",
                    "add",
                    "dev",
                    device,
                    "root",
                    "netem",
                    *same,
                    *more,
                ]
                subprocess.run(words, capture_output=True, check=True)

    def _remove_links(self) -> None:
        for machine in self.machines[1:]:
            subprocess.run(
                ["ip", "-n", self._name(machine), "link", "del", "eth0"], capture_output=True
            )
        hub = self._name(self.machines[0])
        subprocess.run(["ip", "-n", hub, "link", "del", f"{self._tag}b"], capture_output=True)

    def _carry(self) -> None:
        names, line = [self._name(m) for m in self.machines], self.line
        words = [
            sys.executable,
            "-m",
            "tests.network.carry",
            str(line.delay),
            str(line.rate),
            str(line.loss),
            *names,
        ]
        self._carrier = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._carrier.stdout is not None
        if self._carrier.stdout.readline() != b"ready\n":
            raise OSError("the packet carrier did not start")
        for machine in self.machines:
            name = self._name(machine)
            _ip("-n", name, "addr", "add", f"{self.address(machine)}/24", "dev", "tun0")
            _ip("-n", name, "link", "set", "tun0", "mtu", "1400", "up")

    def enter(self, machine: str) -> None:
        enter(self._name(machine))

    def run(self, machine: str, words: list[str], **options: Any) -> subprocess.Popen[Any]:
        """A program on that machine; the caller waits for it, or ends it."""
        return subprocess.Popen(["ip", "netns", "exec", self._name(machine), *words], **options)

    def __exit__(self, *_: object) -> None:
        if self._carrier is not None:
            self._carrier.kill()
            self._carrier.wait()
        for machine in self.machines:
            subprocess.run(["ip", "netns", "del", self._name(machine)], capture_output=True)
