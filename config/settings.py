"""Every setting, its type, its default and one line of why. The only place where defaults live.

Order of authority: these defaults, the task's defaults below, a TOML file, then flags and make
variables. A method's own knobs (a temperature, a contrast weight) stand in its file as `Options`
and are set in the `[options]` table or with `--set name=value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["MACHINE_SETTINGS", "RECORD_DEFAULTS", "TASK_DEFAULTS", "Settings"]

#: Settings that belong to one machine and to no study: a study file may not name them, and a
#: study's hash leaves them out. (The corpus is not among them: a study file may name a built-in
#: one, for a trial.)
MACHINE_SETTINGS: frozenset[str] = frozenset(
    {
        "encoder",
        "hosts",
        "launcher",
        "ledger",
        "metrics",
        "out",
        "physical",
        "port",
        "runner",
        "seq2seq",
        "slots",
        "target",
        "vectors",
    }
)


@dataclass(frozen=True)
class Settings:
    # What is trained, on what
    method: str = "lazymil"
    # empty: the built-in corpus that fits the method; else a built-in name, folder or hub name
    corpus: str = ""
    # iid, pair, dirichlet:ALPHA, entropy[:released], domain; empty: the task's own, mostly iid
    partition: str = ""
    silos: int = 0  # 0: ten, or as many as the corpus has domains where it has any
    seed: int = 0  # decides data, partition, cohorts, batches, dropout: the whole run

    # The rounds
    rounds: int = 0  # 0 in this table means: the task's own default, below
    fraction: float = 1.0  # C: the share of silos that take part in a round
    epochs: int = 0  # E
    batch: int = 0  # B
    lr: float = 0.0
    decay: float = -1.0  # learning-rate decay per round; -1 means the task's own

    # Privacy
    # off, record (DP-SGD: one record hides) or silo (noisy sums: one whole silo hides)
    dp: str = "off"
    epsilon: float = 0.0  # a silo's budget, over all it ever sent about its data; 0 means none
    delta: float = 1e-5
    # the most that one record's gradient, or one silo's update, may weigh (L2 norm)
    clip: float = 1.0
    noise: float = 0.0  # standard deviation in clips; 0 means solved from epsilon
    physical: int = 64  # DP=record: records whose gradients are in memory at once
    # folder of the silos' privacy ledgers, to go on with; empty: in each silo's own folder
    ledger: str = ""

    # How it runs
    runner: str = "processes"  # processes (real ones, over ZeroMQ) or inprocess (a plain loop)
    # least silos in a run, and least survivors of a sum; 0 means what the protocol needs
    minimum: int = 0
    launcher: str = "local"  # where a simulation's silos run: local, ssh (on HOSTS) or ray
    # for ssh: names of machines, with spaces between; for ray: the cluster's address
    hosts: str = ""
    secagg: bool = True  # off exists for studies a sum cannot protect; the run then says so, loudly
    bits: int = 32  # lane width of the secure sum: 32, 21 or 16
    # clip range of an update's coordinates; 0 means adapted from the last aggregate
    range: float = 0.0
    slots: int = 0  # silos computing at once in a simulation; 0 means one per core
    deadline: float = 600.0  # seconds an exchange may take before it closes without the stragglers
    # share of the cohort whose answers close an exchange without waiting for the rest
    quorum: float = 1.0
    out: str = "runs"  # where run folders are made
    # a value of the dev metric: the report names the first round that reaches it; 0 means none
    target: float = 0.0
    port: int = 0  # the coordinator's port; 0 means any free one
    metrics: str = ""  # PORT (on the loopback address) or HOST:PORT for Prometheus; empty: off

    # Files a user may name
    vectors: str = ""  # word vectors in text or word2vec format; empty: trained from scratch
    encoder: str = ""  # a BERT-type checkpoint: folder or hub name; empty: the small built-in one
    seq2seq: str = ""  # a BART-type checkpoint, likewise

    options: Mapping[str, Any] = field(default_factory=dict)  # the method's own knobs

    @property
    def method_name(self) -> str:
        """The method in a word: a method from outside is called as its file is."""
        return Path(self.method).stem if self.method.endswith(".py") else self.method

    @property
    def cohort_size(self) -> int:
        """m = max(floor(C K), 1): how many silos a round asks."""
        return max(int(self.fraction * self.silos), 1)


#: What a task wants where the user said nothing.
TASK_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "distant": {"rounds": 20, "epochs": 3, "batch": 16, "lr": 0.2, "decay": 0.01},
    # For the small built-in BART; a full-size one wants 3e-5.
    "ner": {"rounds": 25, "epochs": 1, "batch": 8, "lr": 5e-3, "decay": 0.0, "partition": "domain"},
    # For the small built-in encoder; a full-size one wants 2.5e-5 (FedED) to 5e-5 (FedCMC).
    "sentence": {"rounds": 15, "epochs": 1, "batch": 8, "lr": 1e-3, "decay": 0.0},
    # Likewise; SciBERT wants 2.5e-5 and fifty rounds (FedLCC).
    "document": {"rounds": 16, "epochs": 4, "batch": 3, "lr": 6e-4, "decay": 0.01},
}

#: The same with DP=record, where it differs. Noise is added once a step, whatever the batch: so
#: batches are large, rates high (gradients are clipped) and steps few. Found on the built-in
#: corpora at epsilon 8, seed 10.
RECORD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "distant": {"rounds": 12, "epochs": 2, "batch": 300, "lr": 3.0},
    "ner": {"rounds": 8, "epochs": 1, "batch": 128, "lr": 1e-2},
    "sentence": {"rounds": 8, "epochs": 1, "batch": 256, "lr": 1e-2},
    "document": {"rounds": 4, "epochs": 1, "batch": 64, "lr": 1e-2},
}
