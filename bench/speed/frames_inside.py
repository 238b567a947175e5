"""FedAvg in another framework's own loop, measured. Run by bench/speed/frames.py in the peer's
environment: `python frames_inside.py PEER own|ours OUR_ROOT OUR_PACKAGES SETTING=VALUE …`.

Network, data, partition and scoring are ours, so that the work is the same. The loop around them,
how models are handed out and how updates are averaged are the peer's, as its authors wrote it: also
that it asks autograd for gradients, where our loop has those of this network written out
(models/pcnn_step.py). The peer's own packages come first; torch is the one that we use.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
from typing import Any

import numpy as np


def work(words: list[str]) -> tuple[Any, Any]:
    """Our study, and the network before the first round, on one thread."""
    import torch

    from config.load import load
    from methods.base import derived_seed
    from study.prepare import prepare, warm

    torch.set_num_threads(1)
    study = prepare(load(None, dict(w.split("=", 1) for w in (x.lower() for x in words))))
    warm(study)
    return study, study.task.new_model(derived_seed(study.settings.seed, "init"))


def score(study: Any, network: Any, split: str) -> float:
    import torch

    network.eval()
    with torch.no_grad():
        return float(study.task.evaluate(network, split).value)


def epoch(study: Any, silo: int, rng: np.random.Generator) -> Any:
    data = study.task.subset(study.partition.indices[silo])
    return study.task.batches(data, study.settings.batch, rng)


def pfl(study: Any, network: Any, own_data: bool) -> None:
    """Apple's pfl: FederatedAveraging on its SimulatedBackend. `own_data`: through its own Dataset,
    which cuts batches from arrays: they are padded to the silo's longest sentence. Else it gets our
    batches, of sentences that are alike in length.
    """
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    from methods.common.steps import optimizer_of

    s, task = study.settings, study.task
    kinds: list[Any] = []

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network

        def loss(self, *tensors: torch.Tensor) -> torch.Tensor:
            self.train()
            return task.loss(self.inner, kinds[0](*tensors))

        def metrics(self, *tensors: torch.Tensor) -> dict[str, Any]:
            return {}

    class Batches(Dataset):
        def __init__(self, silo: int) -> None:
            size = len(study.partition.indices[silo])
            super().__init__(raw_data=[np.zeros(size)], user_id=str(silo))
            self._silo, self._rng = silo, np.random.default_rng(silo)

        def iter(self, batch_size: Any) -> Any:
            if batch_size != s.batch:  # for figures about users, of which there are none to compute
                yield []
                return
            for batch in epoch(study, self._silo, self._rng):
                kinds[:] = [type(batch)]
                yield [getattr(batch, f.name) for f in dataclasses.fields(batch)]

    class Scoring(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> Any:
            score(study, network, "dev")
            return False, Metrics()

    def padded(silo: int) -> Any:
        indices = study.partition.indices[silo]
        whole = task.batch(task.subset(indices), np.arange(len(indices)))
        kinds[:] = [type(whole)]
        raw = [getattr(whole, f.name) for f in dataclasses.fields(whole)]
        return Dataset(raw_data=raw, user_id=str(silo))

    silos = list(range(s.silos))
    make = functools.cache(padded) if own_data else Batches
    held = FederatedDataset(make, get_user_sampler("minimize_reuse", silos))
    net = Net()
    sgd = torch.optim.SGD(net.parameters(), lr=1.0)
    model = PyTorchModel(net, lambda parameters, lr: optimizer_of(s, parameters, lr), sgd)
    FederatedAveraging().run(
        NNAlgorithmParams(s.rounds, s.rounds + 1, s.silos, None),
        SimulatedBackend(held, held, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=s.epochs, local_learning_rate=s.lr, local_batch_size=s.batch
        ),
        callbacks=[Scoring()],
        send_metrics_to_platform=False,
    )


def flower(study: Any, network: Any, own_data: bool) -> None:
    """Flower: its Server and FedAvg, with clients that it calls within this process. It has no data
    of its own: how a client makes batches is its user's affair.
    """
    import torch
    from flwr.common import (
        Code,
        FitRes,
        Status,
        ndarrays_to_parameters,
        parameters_to_ndarrays,
    )
    from flwr.server import Server, SimpleClientManager
    from flwr.server.client_proxy import ClientProxy
    from flwr.server.strategy import FedAvg

    from methods.common.steps import optimizer_of

    s, task = study.settings, study.task
    names = [n for n, p in network.named_parameters() if p.requires_grad]
    own = dict(network.named_parameters())

    def values() -> Any:
        return ndarrays_to_parameters([own[n].detach().numpy().copy() for n in names])

    def load(parameters: Any) -> None:
        with torch.no_grad():
            for name, value in zip(names, parameters_to_ndarrays(parameters)):
                own[name].copy_(torch.from_numpy(np.array(value)))

    class Silo(ClientProxy):
        def __init__(self, silo: int) -> None:
            super().__init__(str(silo))
            self._silo, self._rng = silo, np.random.default_rng(silo)

        def fit(self, ins: Any, timeout: Any, group_id: Any) -> Any:
            load(ins.parameters)
            optimizer = optimizer_of(s, [own[n] for n in names], s.lr)
            network.train()
            for _ in range(s.epochs):
                for batch in epoch(study, self._silo, self._rng):
                    optimizer.zero_grad(set_to_none=True)
                    task.loss(network, batch).backward()
                    optimizer.step()
            size = len(study.partition.indices[self._silo])
            return FitRes(Status(Code.OK, ""), values(), size, {})

        def get_properties(self, *_: Any) -> Any:
            raise NotImplementedError

        get_parameters = evaluate = reconnect = get_properties

    def scored(round: int, parameters: Any, config: Any) -> Any:
        load(parameters)
        return (score(study, network, "dev"), {}) if round else None

    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=s.silos,
        min_available_clients=s.silos,
        initial_parameters=values(),
        evaluate_fn=lambda round, arrays, config: scored(
            round, ndarrays_to_parameters(arrays), config
        ),
    )
    manager = SimpleClientManager()
    for silo in range(s.silos):
        manager.register(Silo(silo))
    server = Server(client_manager=manager, strategy=strategy)
    server.set_max_workers(1)
    server.fit(s.rounds, None)


def main() -> None:
    peer, data, root, packages, *words = sys.argv[1:]
    sys.path[0] = root
    sys.path.append(packages)
    study, network = work(words)
    began = time.process_time()
    before = score(study, network, "test")
    {"pfl": pfl, "flower": flower}[peer](study, network, data == "own")
    after = score(study, network, "test")
    print(json.dumps({"cpu": time.process_time() - began, "before": before, "after": after}))


if __name__ == "__main__":
    main()
