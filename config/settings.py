"""Every setting, its type, its default and one line of why. The only place where defaults live.

Order of authority: these defaults, the task's defaults below, a TOML file, then flags and make
variables. A method's own knobs (a temperature, a contrast weight) stand in its file as `Options`
and are set in the `[options]` table or with `--set name=value`.

`sottovoce simulate --help` and `make help` are made from this record (config/describe.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "DEVICES",
    "FOLDER",
    "FULL_SIZE",
    "FULL_SIZE_DEFAULTS",
    "FULL_SIZE_PART_LR",
    "FULL_SIZE_RECORD_LR",
    "LATER_SETTINGS",
    "MACHINE_SETTINGS",
    "OPTIMIZERS",
    "OWN",
    "PRECISIONS",
    "RECORD_DEFAULTS",
    "RECORD_HEAD_DEFAULTS",
    "SCHEDULES",
    "TASK_DEFAULTS",
    "Settings",
]

OWN, FOLDER = "own", "folder"  #: PUBLIC: the corpus's public set; a folder that the coordinator has
OPTIMIZERS = ("adamw", "adam", "sgd", "momentum")
DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("auto", "float32", "bfloat16")
SCHEDULES = ("constant", "linear", "cosine")

#: Settings that belong to one machine and to no study: a study file may not name them, and a
#: study's hash leaves them out. (The corpus is not among them: a study file may name a built-in
#: one, for a trial.)
MACHINE_SETTINGS: frozenset[str] = frozenset(
    {
        "device",
        "encoder",
        "features",
        "hosts",
        "launcher",
        "ledger",
        "metrics",
        "out",
        "physical",
        "port",
        "runner",
        "seq2seq",
        "silos_per_process",
        "slots",
        "target",
        "vectors",
    }
)

#: Settings that studies were agreed on without. A study's hash names them only where they are
#: neither left open nor the task's defaults, so that it is the hash that silos' disks have.
LATER_SETTINGS: frozenset[str] = frozenset(
    {
        "clip_norm",
        "evaluate",
        "keep_optimizer",
        "optimizer",
        "partition_seed",
        "precision",
        "public",
        "public_epochs",
        "schedule",
        "train",
        "warmup",
        "weight_decay",
    }
)


def _setting(default: Any, why: str, shown: str = "") -> Any:
    """`why`: the line that the help shows. `shown`: what it says in place of the bare default."""
    return field(default=default, metadata={"why": why, "shown": shown})


_TASK = "the task's"


@dataclass(frozen=True, kw_only=True)
class Settings:
    # What is trained, on what
    method: str = _setting("lazymil", "which method; `sottovoce methods` lists them")
    corpus: str = _setting(
        "", "a built-in corpus, a folder or a hub name", "the built-in one of the method's task"
    )
    partition: str = _setting(
        "",
        "iid, pair, dirichlet:ALPHA, entropy[:released] or domain; ,sample=N behind it cuts N drawn "
        "examples",
        "the task's, mostly iid",
    )
    silos: int = _setting(0, "how many silos", "10, or one for each domain of the corpus")
    seed: int = _setting(0, "decides data, partition, cohorts, batches, dropout: the whole run")

    partition_seed: int = _setting(
        -1, "decides the partition apart from SEED, so that a study can vary one alone", "SEED"
    )

    # The rounds. Zero means the task's own default, below.
    rounds: int = _setting(0, "how many rounds", _TASK)
    fraction: float = _setting(1.0, "C: the share of the silos that take part in a round")
    epochs: int = _setting(0, "E: local epochs in a round", _TASK)
    batch: int = _setting(0, "B: local batch size", _TASK)
    lr: float = _setting(0.0, "learning rate", _TASK)
    train: str = _setting(
        "",
        "which part of the network: all, top:K, head, lora:R, bias or prompts",
        "all; NER prompts; with DP=record few parameters",
    )
    decay: float = _setting(-1.0, "decay of the learning rate per round", _TASK)
    optimizer: str = _setting("", "adamw, adam, sgd or momentum (sgd with momentum 0.9)", _TASK)
    weight_decay: float = _setting(-1.0, "the optimizer's weight decay", _TASK)
    warmup: float = _setting(
        -1.0, "share of the run's steps, from the start, over which the rate rises", _TASK
    )
    schedule: str = _setting(
        "", "constant, linear or cosine: how the rate falls over the run's steps", _TASK
    )
    clip_norm: float = _setting(
        -1.0, "the largest L2 norm of a step's gradient; 0: not clipped", _TASK
    )
    keep_optimizer: bool = _setting(
        False, "on: a silo keeps its optimizer's state on its disk from round to round", "off"
    )
    precision: str = _setting(
        "auto", "of an encoder's products: float32, bfloat16, or auto (the faster, if full-size)"
    )
    evaluate: int = _setting(1, "score on the development split every so many rounds")

    # Privacy
    dp: str = _setting(
        "off", "off, record (DP-SGD: hides one record) or silo (noisy sums: hides a whole silo)"
    )
    epsilon: float = _setting(0.0, "a silo's budget, over all it ever sent about its data", "none")
    delta: float = _setting(1e-5, "the probability that the budget's promise may fail")
    clip: float = _setting(
        1.0, "the largest L2 norm of a record's gradient (record) or a silo's update (silo)"
    )
    noise: float = _setting(0.0, "standard deviation of the noise, in clips", "solved from EPSILON")
    physical: int = _setting(64, "DP=record: records whose gradients are in memory at once")
    ledger: str = _setting(
        "", "folder of the silos' privacy ledgers, to go on with", "in each silo's own folder"
    )

    # How it runs
    runner: str = _setting(
        "processes", "processes (real ones, over ZeroMQ) or inprocess (a plain loop)"
    )
    minimum: int = _setting(
        0, "least silos in a run, and least survivors of a sum", "what the protocol needs"
    )
    launcher: str = _setting("local", "where a simulation's silos run: local, ssh or ray")
    hosts: str = _setting(
        "", "ssh: names of machines, spaces between; ray: the cluster's address", "none"
    )
    secagg: bool = _setting(True, "on or off; off masks nothing, and the run says so", "on")
    bits: int = _setting(32, "bits per number in the secure sum: 32, 21 or 16")
    range: float = _setting(
        0.0, "clip range of an update's coordinates", "adapted from the last aggregate"
    )
    slots: int = _setting(
        0, "silos computing at once in a simulation", "one per core, or per accelerator"
    )
    device: str = _setting("auto", "what this machine computes on: auto, cpu, cuda or mps")
    silos_per_process: int = _setting(
        1, "silos that share a process of a simulation, for more than fit as processes"
    )
    deadline: float = _setting(
        600.0, "seconds after which an exchange closes without the stragglers"
    )
    quorum: float = _setting(
        1.0, "share of the cohort whose answers close an exchange without the rest"
    )
    out: str = _setting("runs", "where run folders are made")
    features: str = _setting(
        "",
        "a folder that keeps what a frozen encoder made of texts, for many runs (RUNNER=inprocess)",
        "the run's own, removed when it ends",
    )
    target: float = _setting(
        0.0, "a dev metric; the report names the first round that reaches it", "none"
    )
    port: int = _setting(0, "the coordinator's port", "any free one")
    metrics: str = _setting("", "PORT (on the loopback address) or HOST:PORT for Prometheus", "off")

    # Files a user may name
    public: str = _setting(
        "",
        "public text that the coordinator trains on before the first round: a folder, a built-in "
        "corpus, or own (the corpus's public set)",
        "none",
    )
    public_epochs: int = _setting(
        0, "passes over the public text", "the task's rounds times epochs"
    )
    vectors: str = _setting("", "word vectors in text or word2vec format", "trained from scratch")
    encoder: str = _setting(
        "", "a BERT-type checkpoint: folder or hub name", "the small built-in one"
    )
    seq2seq: str = _setting(
        "", "a BART, Marian or T5 checkpoint: folder or hub name", "the small built-in one"
    )

    options: Mapping[str, Any] = field(default_factory=dict)  # the method's own knobs

    @property
    def method_name(self) -> str:
        """The method in a word: a method from outside is called as its file is."""
        return Path(self.method).stem if self.method.endswith(".py") else self.method

    @property
    def cohort_size(self) -> int:
        """m = max(floor(C K), 1): how many silos a round asks."""
        return max(int(self.fraction * self.silos), 1)


_PLAIN = {"warmup": 0.0, "schedule": "constant", "clip_norm": 0.0}
#: What a task wants where the user said nothing: for the networks that are built in.
TASK_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "distant": {
        "rounds": 20,
        "epochs": 3,
        "batch": 16,
        "lr": 0.2,
        "decay": 0.01,
        "optimizer": "sgd",
        "weight_decay": 1e-5,
        **_PLAIN,
    },
    "ner": {
        "rounds": 25,
        "epochs": 1,
        "batch": 8,
        "lr": 5e-3,
        "decay": 0.0,
        "partition": "domain",
        "optimizer": "adamw",
        "weight_decay": 0.01,
        **_PLAIN,
    },
    "sentence": {
        "rounds": 15,
        "epochs": 1,
        "batch": 8,
        "lr": 1e-3,
        "decay": 0.0,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        **_PLAIN,
    },
    "document": {
        "rounds": 16,
        "epochs": 4,
        "batch": 3,
        "lr": 6e-4,
        "decay": 0.01,
        "optimizer": "adam",
        "weight_decay": 5e-8,
        **_PLAIN,
    },
}

#: From how many parameters on an encoder (or a language model) that the user names is full-size.
#: The built-in ones have less than a million; the smallest that people call MiniLM has 17.
FULL_SIZE = 5_000_000
_FINE_TUNING = {"lr": 5e-5, "warmup": 0.1, "schedule": "linear", "clip_norm": 1.0}
#: The same with a full-size encoder, where it differs. A method whose paper trains one says in its
#: own file what that paper sets, and that wins over this.
FULL_SIZE_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sentence": _FINE_TUNING,
    "document": {**_FINE_TUNING, "optimizer": "adamw", "epochs": 1, "rounds": 50, "decay": 0.0},
    "ner": _FINE_TUNING,
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
#: The same where only a head is trained, of any size of encoder: a step over all records in each
#: round, of plain SGD, on features of like size. Adam would divide noise by its own size. Found at
#: epsilon 1 on the dev split of seeds 10 and 11.
RECORD_HEAD_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sentence": {
        "rounds": 8,
        "epochs": 1,
        "batch": 4096,
        "lr": 8.0,
        "optimizer": "sgd",
        "weight_decay": 0.0,
        **_PLAIN,
    },
    "distant": {
        "rounds": 4,
        "epochs": 10,
        "batch": 100_000,
        "lr": 3.0,
        "optimizer": "momentum",
        "weight_decay": 0.0,
        **_PLAIN,
    },
    "ner": {
        "rounds": 4,
        "epochs": 10,
        "batch": 100_000,
        "lr": 8.0,
        "optimizer": "momentum",
        "weight_decay": 0.0,
        **_PLAIN,
    },
    "document": {
        "rounds": 4,
        "epochs": 10,
        "batch": 100_000,
        "lr": 1.0,
        "optimizer": "momentum",
        "weight_decay": 0.0,
        **_PLAIN,
    },
}
#: A small part of a full-size encoder takes a larger rate than all of it, where the optimizer is of
#: Adam's kind: kind of TRAIN -> rate.
FULL_SIZE_PART_LR: Mapping[str, float] = {"head": 1e-3, "bias": 1e-3, "lora": 5e-4}
#: And with both: biases of a full-size encoder take a smaller rate than those of a small one.
FULL_SIZE_RECORD_LR = 5e-3
