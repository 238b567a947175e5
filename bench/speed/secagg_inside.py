"""One sum with Flower's SecAgg+, measured. Run by bench/speed/secagg_peer.py in the peer's own
environment, where nothing of ours is installed: this file imports nothing of ours.

From SAMPLED_FROM silos on, most silos do only a part of the work, and are counted at the price of
those that did all; see secagg_peer.py.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

__all__ = ["SAMPLED_FROM", "measure"]

SAMPLED_FROM = 50  #: silos
_SAMPLE = 2
_STAGES = ("setup", "share keys", "mask", "unmask")


def measure(n: int, d: int, dropped: int) -> dict[str, Any]:
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

    # where it lives has moved
    from flwr.server.workflow.secure_aggregation.secaggplus_workflow import compat

    try:  # newer versions ask who is speaking
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        pass
    else:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
    sampled = n >= SAMPLED_FROM
    sharing = _Sharing(n) if sampled else None
    vector = np.random.default_rng(0).normal(0, 0.5, d).astype(np.float32)
    spent: dict[str, float] = defaultdict(float)
    #: what the silos that were measured took, and sent
    masked: list[tuple[float, list[bytes]]] = []
    credit, full, upload = 0.0, True, 0

    class Proxy(ClientProxy):
        get_properties = get_parameters = fit = evaluate = reconnect = None

        def __init__(self, node: int) -> None:
            super().__init__(str(node))
            self.node_id = node

    Proxy.__abstractmethods__ = frozenset()

    def train(message: Message, _context: Context) -> Message:
        result = FitRes(
            Status(Code.OK, ""), ndarrays_to_parameters([vector if full else vector[:1]]), 1, {}
        )
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)

    class Grid:
        """Hands each message to its client at once, and counts the clients' time by stage."""

        def __init__(self) -> None:
            self.contexts = {
                node: Context(
                    run_id=1,
                    node_id=node,
                    node_config={},
                    state=RecordDict(),
                    run_config={},
                    **_extra(),
                )
                for node in range(1, n + 1)
            }
            self.stage = -1

        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> list[Message]:
            nonlocal credit, full, upload
            self.stage += 1
            replies = []
            for message in messages:
                node = message.metadata.dst_node_id
                if self.stage >= 2 and node > n - dropped:
                    continue
                # A real grid serialises: each client has its own copy, and takes the stage's name
                # out of it.
                message.content = copy.deepcopy(message.content)
                full = not sampled or len(masked) < _SAMPLE
                start = time.process_time()
                reply = secaggplus_mod(message, self.contexts[node], train)
                took = time.process_time() - start
                spent[f"clients: {_STAGES[self.stage]}"] += took
                if self.stage == 2:
                    record = reply.content.config_records["secaggplus_configs"]
                    if full:
                        masked.append((took, record["masked_params"] if sampled else [b""]))
                        upload = sum(len(part) for part in record["masked_params"])
                    else:
                        credit += sum(time for time, _ in masked) / len(masked) - took
                        record["masked_params"] = masked[0][1]
                replies.append(reply)
            return replies

    def _extra() -> dict[str, Any]:
        import inspect

        return (
            {"series_id": ""}
            if "series_id" in inspect.signature(Context.__init__).parameters
            else {}
        )

    class Strategy(FedAvg):
        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
            from flwr.common import FitIns

            return [(Proxy(node), FitIns(parameters, {})) for node in range(1, n + 1)]

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            # The sum is already made; what a strategy does with it is not part of the comparison.
            return results[0][1].parameters, {}

    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}, **_extra()),
        strategy=Strategy(),
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        ndarrays_to_parameters([np.zeros(1, np.float32)]), True
    )
    workflow = SecAggPlusWorkflow(
        num_shares=1.0, reconstruction_threshold=2 / 3, clipping_range=2.0, max_weight=1.0
    )
    start = time.process_time()
    workflow(Grid(), context)
    total = time.process_time() - start
    spent["server"] = total - sum(spent.values())
    spent["clients: mask"] += credit
    for stage, seconds in (sharing.credit() if sharing else {}).items():
        spent[stage] += seconds
    record = context.state.array_records[MAIN_PARAMS_RECORD]
    result = parameters_to_ndarrays(compat.arrayrecord_to_parameters(record, True))
    error = (
        float(np.abs(result[0] - vector.clip(-2, 2)).max()) if result[0].size == d else float("nan")
    )
    return {
        "version": version("flwr"),
        "seconds": dict(spent),
        "total": sum(spent.values()),
        "upload": upload,
        "error": None if sampled else error,
        "scaled": sampled,
    }


class _Sharing:
    """The peer's secret sharing, of which only the first and the last silo's is really done; the
    rest is on credit.

    A share that was not made holds the secret itself: as long as a real one, and known again when
    it comes back.
    """

    def __init__(self, n: int) -> None:
        client: Any = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
        server: Any = importlib.import_module(
            "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
        )
        self._real, self._calls = (0, n - 1), 0
        self._split, self._combine = client.create_shares, server.combine_shares
        client.create_shares, server.combine_shares = self.create, self.combine
        self._price: dict[tuple[str, int], float] = {}
        self._owed: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def _timed(self, name: str, size: int, function: Any, *arguments: Any) -> Any:
        start = time.process_time()
        result = function(*arguments)
        self._price[name, size] = time.process_time() - start
        return result

    def create(self, secret: bytes, threshold: int, num: int) -> list[bytes]:
        silo, self._calls = self._calls // 2, self._calls + 1  # two secrets each
        if silo in self._real:
            return self._timed("split", len(secret), self._split, secret, threshold, num)
        self._owed["clients: share keys"].append(("split", len(secret)))
        room = 16 - len(secret) % 16
        return [
            index.to_bytes(4, "little") + secret + bytes([room]) * room
            for index in range(1, num + 1)
        ]

    def combine(self, shares: list[bytes]) -> bytes:
        inside = {share[4:] for share in shares}
        if len(inside) > 1:
            return self._timed("combine", len(shares[0]), self._combine, shares)
        self._owed["server"].append(("combine", len(shares[0])))
        (padded,) = inside
        return padded[: -padded[-1]]

    def credit(self) -> dict[str, float]:
        return {
            stage: sum(self._price[step] for step in owed) for stage, owed in self._owed.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--d", type=int, required=True)
    parser.add_argument("--dropped", type=int, default=0)
    asked = parser.parse_args()
    print(json.dumps(measure(asked.n, asked.d, asked.dropped)))


if __name__ == "__main__":
    main()
