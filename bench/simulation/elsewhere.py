"""Where a simulation's silos run: LAUNCHER=local (forked here), ssh (HOSTS="a b", plain machines)
or ray (a cluster).

Coordinator, messages and keys are the same everywhere, and so is the model. Elsewhere, silos are
started by bench.simulation.worker: HOSTS need this program installed (SOTTOVOCE_REMOTE: the Python
that has it; SOTTOVOCE_SSH: how to call ssh), and so do a Ray cluster's nodes. They dial the
coordinator here, which then listens on all addresses.
"""

from __future__ import annotations

import functools
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import msgpack

from bench.simulation.worker import request, unpack_homes
from config.errors import UserError
from config.parent import forks
from config.settings import Settings
from coordinator.rundir import silo_home

__all__ = ["check_launcher", "places"]

#: Sends the request, keeps standard input open until the answer is there, and returns the answer.
Send = Callable[[bytes], bytes]


def check_launcher(settings: Settings) -> None:
    """Before anything is prepared or started: whether this machine has what the launcher needs."""
    if settings.launcher != "local" and not forks():
        raise UserError(
            f"LAUNCHER={settings.launcher} needs a system where fork is safe (Linux); leave it out."
        )
    if settings.launcher == "ray" and find_spec("ray") is None:
        raise UserError(
            "LAUNCHER=ray needs Ray, which is not installed here: pip install 'sottovoce[ray]'."
        )


def _settings(settings: Settings) -> dict[str, object]:
    return asdict(settings) | {"options": dict(settings.options), "launcher": "local", "hosts": ""}


def places(run: Path, settings: Settings, port: int) -> list[tuple[str, Callable[[], int]]]:
    """(name, program) of each process to fork here, which sees to the silos of one place until they
    have ended.
    """
    if settings.launcher == "ssh":
        hosts = settings.hosts.split()
        at = functools.partial(_take_part, run, settings, f"tcp://@:{port}")
        shares = [_share(settings, k, len(hosts)) for k in range(len(hosts))]
        return [
            (host, functools.partial(at, share, _ssh(host))) for host, share in zip(hosts, shares)
        ]
    return [("ray", lambda: _ray(run, settings, port))]


def _share(settings: Settings, k: int, of: int) -> list[int]:
    return list(range(k, settings.silos, of))


def _take_part(run: Path, settings: Settings, address: str, silos: list[int], send: Send) -> int:
    if silos:
        answer = send(request(_settings(settings), address, {i: silo_home(run, i) for i in silos}))
        unpack_homes(
            msgpack.unpackb(answer, raw=False, max_bin_len=1 << 31), lambda i: silo_home(run, i)
        )
    return 0


def _exchange(words: list[str], sent: bytes) -> bytes:
    """Our end of a worker: its standard input stays open until it has answered, since its end
    means: stop.
    """
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(sent)
        process.stdin.flush()
        answer = process.stdout.read()
    except BrokenPipeError:
        answer = b""
    finally:
        process.stdin.close()
        process.wait()
    if not answer:
        raise UserError(
            f"No silo could be run by {shlex.join(words[:4])} …; its own words are in this log."
        )
    return answer


def _ssh(host: str) -> Send:
    command = os.environ.get("SOTTOVOCE_REMOTE", "python3")
    options = shlex.split(os.environ.get("SOTTOVOCE_SSH", "ssh -o BatchMode=yes"))
    return lambda sent: _exchange([*options, host, f"{command} -m bench.simulation.worker"], sent)


def _ray(run: Path, settings: Settings, port: int) -> int:
    """One worker on every node of the cluster that HOSTS names (nothing: the one that is running
    here).
    """
    import ray  # optional; check_launcher has seen that it is there

    ray.init(address=settings.hosts or "auto", log_to_driver=False, logging_level=logging.ERROR)
    nodes = [n["NodeID"] for n in ray.nodes() if n["Alive"]]
    here = ray.util.get_node_ip_address()

    @ray.remote(num_cpus=1, max_retries=0)
    def work(sent: bytes) -> bytes:
        return _exchange([sys.executable, "-m", "bench.simulation.worker"], sent)

    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = []
    for k, node in enumerate(sorted(nodes)):
        if silos := _share(settings, k, len(nodes)):
            sent = request(
                _settings(settings), f"tcp://{here}:{port}", {i: silo_home(run, i) for i in silos}
            )
            where = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            asked.append(work.options(scheduling_strategy=where).remote(sent))
    for answer in ray.get(asked):
        unpack_homes(
            msgpack.unpackb(answer, raw=False, max_bin_len=1 << 31), lambda i: silo_home(run, i)
        )
    ray.shutdown()
    return 0
