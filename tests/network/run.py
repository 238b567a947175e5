"""A federation on machines that are namespaces, or on loopback: `python -m tests.network.run OUT
[net] NAME=VALUE…`.

Coordinator and silos are forked from one warm process, as in a simulation, and each moves to its
machine before it begins. Prints the model's hash.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import torch

from bench.simulation.launch import fork
from config.load import load
from coordinator import process as coordinator_process
from coordinator.rundir import coordinator_home, make_keys, shared_secret
from methods.base import silo_name
from silo import process as silo_process
from silo.home import Home
from study.agreement import study_hash
from study.prepare import Study, prepare, warm
from tests.network.lines import Line, Net, why_not
from wire.keyring import Keyring

__all__ = ["federate"]

_LIMIT = 900.0


def federate(run: Path, study: Study, net: Net | None) -> str:
    """All rounds; the model's hash."""
    run.mkdir(parents=True)
    settings = study.settings
    make_keys(coordinator_home(run), run / "silos", settings.silos, shared_secret(settings))
    hub = net.address("hub") if net is not None else "127.0.0.1"
    hash, port = study_hash(settings, study.task.agreement(), study.task.name), run / "port"

    def coordinate() -> int:
        if net is not None:
            net.enter("hub")
        return coordinator_process.serve(
            run,
            Keyring.load(coordinator_home(run)),
            settings=settings,
            task=study.task,
            method=study.method,
            study=hash,
            slots=settings.silos,
            host=hub,
            bound=bound,
            grace=30.0,
            patience=600.0,
            simulated=True,
        )

    def bound(at: int) -> None:
        port.write_text(f"{at}\n")

    def take_part(i: int) -> int:
        if net is not None:
            net.enter(silo_name(i))
        home, data = (
            Home(run / "silos" / silo_name(i)),
            study.task.subset(study.partition.indices[i]),
        )
        address = f"tcp://{hub}:{int(port.read_text())}"
        return silo_process.serve(
            home,
            address=address,
            settings=settings,
            task=study.task,
            data=data,
            method=study.method,
            simulated=True,
        )

    pids = {fork(os.getpid(), run / "coordinator.log", coordinate): "coordinator"}
    coordinator, until = next(iter(pids)), time.monotonic() + _LIMIT
    try:
        while not (port.exists() and port.read_text().endswith("\n")) and time.monotonic() < until:
            time.sleep(0.02)
        for i in range(settings.silos):
            pids[fork(os.getpid(), run / f"{silo_name(i)}.log", partial(take_part, i))] = silo_name(
                i
            )
        while time.monotonic() < until:
            pid, code = os.waitpid(coordinator, os.WNOHANG)
            if pid:
                del pids[coordinator]
                if os.waitstatus_to_exitcode(code) != 0:
                    raise SystemExit((run / "coordinator.log").read_text())
                return str(json.loads((run / "summary.json").read_text())["model_sha256"])
            time.sleep(0.05)
        raise SystemExit(f"not finished after {_LIMIT:.0f} s")
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main(words: list[str]) -> int:
    out, net, words = Path(words[0]), "net" in words, [w for w in words[1:] if w != "net"]
    if net and (why := why_not()):
        print(f"skipped: {why}")
        return 0
    torch.set_num_threads(1)
    study = prepare(load(None, {k.lower(): v for k, _, v in (w.partition("=") for w in words)}))
    warm(study)
    if not net:
        print(federate(out, study, None), "loopback")
        return 0
    with Net(["hub", *(silo_name(i) for i in range(study.settings.silos))], Line()) as lines:
        began = time.monotonic()
        print(federate(out, study, lines), f"in {time.monotonic() - began:.1f} s over {lines.how}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
