"""A line in software, packet by packet: `python -m tests.network.carry DELAY RATE LOSS NAMESPACE…`,
the first the hub.

Each namespace gets a TUN device; a packet read from one is paced (towards the hub), held back,
perhaps dropped, and then written to the device of whoever it is addressed to. TCP above it sees
what it would see on such a line: late packets, a queue that fills, and losses it has to repair.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import selectors
import struct
import sys
import time

from tests.network.lines import enter

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_QUEUE_SECONDS = 1.0  #: a queue longer than this drops what comes


def _device(namespace: str) -> int:
    enter(namespace)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", b"tun0", _IFF_TUN | _IFF_NO_PI))
    return fd


def main(delay: float, rate: float, loss: float, namespaces: list[str]) -> None:
    devices = [_device(name) for name in namespaces]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    rng, waiting, count = random.Random(0), list[tuple[float, int, int, bytes]](), 0
    free = [0.0] * len(devices)  # when each line has sent what it holds
    selector = selectors.DefaultSelector()
    for i, fd in enumerate(devices):
        selector.register(fd, selectors.EVENT_READ, i)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in selector.select(timeout):
            source: int = key.data
            for _ in range(64):
                try:
                    packet = os.read(devices[source], 65536)
                except BlockingIOError:
                    break
                target = packet[19] - 1 if len(packet) >= 20 and packet[0] >> 4 == 4 else -1
                if not 0 <= target < len(devices) or packet[16:19] != bytes([10, 77, 0]):
                    continue
                now = time.monotonic()
                due = now
                for line in {source, target} - {0}:
                    if rng.random() < loss:
                        break
                    if line == source:
                        if free[line] - now > _QUEUE_SECONDS:
                            break
                        due = free[line] = max(free[line], due) + len(packet) * 8 / rate
                    due += delay
                else:
                    count += 1
                    heapq.heappush(waiting, (due, count, target, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(waiting)
            try:
                os.write(devices[target], packet)
            except OSError:
                pass  # the device is down, or full: a loss like any other


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
