"""The same sums with Flower's SecAgg+, in an environment of its own: `python -m bench.secagg --peer flower`.

The peer is run as its authors wrote it: its server workflow (`SecAggPlusWorkflow`) talks to its client half
(`secaggplus_mod`) through a grid that hands messages over within one process, so that neither sockets nor
processes nor training count. What is measured is CPU time, by stage, and the bytes of the masked upload.
The environment is made once, in a cache folder, by pip; this file is then run there with `--inside`, and
imports nothing of ours.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import time
import venv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["PeerFailed", "measure_peer"]

_STAGES = ("setup", "share keys", "mask", "unmask")


class PeerFailed(Exception):
    """The peer could not be installed or run; the message is one sentence and what it last said."""


def _environment(cache: Path) -> Path:
    """The peer's own interpreter, installed if it is not there yet."""
    home = cache / "flwr"
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        venv.create(home, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "flwr"], "flwr could not be installed")
        (home / "installed").touch()
    return python


def _run(command: list[str], sentence: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    if done.returncode:
        raise PeerFailed(f"{sentence}: {done.stderr.strip()[-400:]}")
    return done.stdout


def measure_peer(n: int, d: int, dropped: int, cache: Path) -> dict[str, Any]:
    """CPU seconds of one SecAgg+ sum by stage, its upload in bytes, the error of its result and its version."""
    python = _environment(cache)
    command = [str(python), __file__, "--inside", "--n", str(n), "--d", str(d), "--dropped", str(dropped)]
    return json.loads(_run(command, "flwr did not finish").splitlines()[-1])


# Everything below runs in the peer's environment.


def _inside(n: int, d: int, dropped: int) -> dict[str, Any]:
    from importlib.metadata import version

    import numpy as np
    from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
    from flwr.common import (
        Code,
        ConfigRecord,
        Context,
        FitRes,
        Message,
        RecordDict,
        Status,
        ndarrays_to_parameters,
        parameters_to_ndarrays,
    )
    from flwr.server.client_proxy import ClientProxy
    from flwr.server.compat.legacy_context import LegacyContext
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
    from flwr.server.workflow.secure_aggregation.secaggplus_workflow import compat  # where it lives has moved

    try:  # newer versions ask who is speaking
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        pass
    else:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
    vector = np.random.default_rng(0).normal(0, 0.5, d).astype(np.float32)
    spent: dict[str, float] = defaultdict(float)
    sent: list[int] = []

    class Proxy(ClientProxy):
        get_properties = get_parameters = fit = evaluate = reconnect = None

        def __init__(self, node: int) -> None:
            super().__init__(str(node))
            self.node_id = node

    Proxy.__abstractmethods__ = frozenset()

    def train(message: Message, _context: Context) -> Message:
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), 1, {})
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)

    class Grid:
        """Hands each message to its client at once, and counts the clients' time by stage."""

        def __init__(self) -> None:
            self.contexts = {
                node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}, **_extra())
                for node in range(1, n + 1)
            }
            self.stage = -1

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            self.stage += 1
            replies = []
            for message in messages:
                node = message.metadata.dst_node_id
                if self.stage >= 2 and node > n - dropped:
                    continue
                # A real grid serialises: each client has its own copy, and takes the stage's name out of it.
                message.content = copy.deepcopy(message.content)
                start = time.process_time()
                reply = secaggplus_mod(message, self.contexts[node], train)
                spent[f"clients: {_STAGES[self.stage]}"] += time.process_time() - start
                if self.stage == 2:
                    record = reply.content.config_records["secaggplus_configs"]
                    sent.append(sum(len(part) for part in record["masked_params"]))
                replies.append(reply)
            return replies

    def _extra() -> dict[str, Any]:
        import inspect

        return {"series_id": ""} if "series_id" in inspect.signature(Context.__init__).parameters else {}

    class Strategy(FedAvg):
        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
            from flwr.common import FitIns

            return [(Proxy(node), FitIns(parameters, {})) for node in range(1, n + 1)]

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            # The sum is already made; what a strategy does with it is not part of the comparison.
            return results[0][1].parameters, {}

    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}, **_extra()), strategy=Strategy()
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        ndarrays_to_parameters([np.zeros(1, np.float32)]), True
    )
    workflow = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=2 / 3, clipping_range=2.0, max_weight=1.0)
    start = time.process_time()
    workflow(Grid(), context)
    total = time.process_time() - start
    spent["server"] = total - sum(spent.values())
    record = context.state.array_records[MAIN_PARAMS_RECORD]
    result = parameters_to_ndarrays(compat.arrayrecord_to_parameters(record, True))
    error = float(np.abs(result[0] - vector.clip(-2, 2)).max()) if result[0].size == d else float("nan")
    return {
        "version": version("flwr"),
        "seconds": dict(spent),
        "total": total,
        "upload": max(sent) if sent else 0,
        "error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--d", type=int, default=100_000)
    parser.add_argument("--dropped", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "sottovoce")
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(_inside(asked.n, asked.d, asked.dropped)))
    else:
        print(json.dumps(measure_peer(asked.n, asked.d, asked.dropped, asked.cache), indent=1))


if __name__ == "__main__":
    main()
    sys.exit(0)
