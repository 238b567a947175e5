"""What a consortium agrees on before a run, as one hash; and the words in which a silo's operator
is asked for consent.

The hash is over the study's settings, the roster, what every machine must have alike (encoder,
classes, the model before the first round) and the disclosures themselves, word for word. It is the
one that coordinator and silo compare when a silo enrols, so what was agreed to is what runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from config.settings import (
    FOLDER,
    LATER_SETTINGS,
    MACHINE_SETTINGS,
    OWN,
    TASK_DEFAULTS,
    Settings,
)
from config.study import StudyFile
from crypto.identity.roster import Roster
from crypto.sum.params import assumption, least_survivors, policy_for
from methods import describe
from methods.base import Method, derived_seed
from methods.common.arrays import model_sha256
from methods.tasks.load import is_built_in
from methods.tasks.words import training_line
from study.prepare import Study

__all__ = [
    "Agreed",
    "agreed",
    "cohort_source",
    "disclosed",
    "page",
    "rounding_seed",
    "study_hash",
    "sum_assumption",
]


def study_hash(settings: Settings, content: Mapping[str, str], task: str = "") -> bytes:
    """What silo and coordinator must agree on before the first round. What belongs to one machine
    is not in it. `task`: whose defaults go without saying.

    `content` (methods.tasks.base.Task.agreement) stands for what the settings only name: corpus,
    encoder and vectors are compared by what is in them, wherever their folders are.
    """
    private = MACHINE_SETTINGS | {"corpus"}
    if settings.dp == "record":  # a silo may hold itself to a smaller budget than the others do
        private |= {"epsilon", "noise"}
    few = {"distant": "top:1"}.get(task, "bias") if settings.dp == "record" else "all"
    usual = {"train": "prompts" if task == "ner" else few, "precision": "float32"}
    usual |= TASK_DEFAULTS.get(task, {})
    open_ = vars(Settings())
    private |= {k for k in LATER_SETTINGS if getattr(settings, k) in (open_[k], usual.get(k))}
    agreed = {k: v for k, v in vars(settings).items() if k not in private}
    agreed["method"] = settings.method_name  # where its file is, is a machine's own business
    if settings.public and settings.public != OWN and not is_built_in(settings.public):
        agreed["public"] = FOLDER  # so is where the coordinator's public text is
    agreed["content"] = dict(content)
    return hashlib.sha256(json.dumps(agreed, sort_keys=True, default=dict).encode()).digest()


def rounding_seed(settings: Settings, index: int, round: int, exchange: int) -> bytes:
    """Decides stochastic rounding. From the run's seed, so that both runners round alike; masks
    never are.
    """
    return derived_seed(settings.seed, "rounding", index, round, exchange).to_bytes(8, "little")


def cohort_source(settings: Settings) -> bytes:
    """What a simulation draws small cohorts from, in place of the silos' nonces: both runners, and
    a run that is gone on with, then draw alike.
    """
    return hashlib.sha256(f"{settings.seed}/cohorts".encode()).digest()


def sum_assumption(settings: Settings) -> str:
    """What has to be true for this run's sums to hide their parts, in words: the one home of that
    sentence.
    """
    return assumption(
        settings.cohort_size, policy_for(settings.fraction, settings.silos), settings.silos
    )


def _least(s: Settings) -> int:
    """How many silos every sum is over, at least."""
    return max(s.minimum, least_survivors(s.cohort_size, policy_for(s.fraction, s.silos), s.silos))


@dataclass(frozen=True)
class Agreed:
    study: StudyFile
    roster: Roster
    prepared: Study
    #: beside the task's own: what else must be the same everywhere, by name
    content: Mapping[str, str]

    @property
    def everything(self) -> dict[str, str]:
        return {**self.prepared.agreement, **self.content}

    @property
    def hash(self) -> bytes:
        return study_hash(self.prepared.settings, self.everything, self.prepared.task.name)


def agreed(study: StudyFile, roster: Roster, prepared: Study) -> Agreed:
    settings = prepared.settings
    model = model_sha256(prepared.method.init(derived_seed(settings.seed, "init")).model)
    pinned = {**prepared.agreement, "model": model}
    study.compare(pinned)
    content = {
        "study file": study.digest,
        "roster": roster.digest.hex(),
        "common secret": roster.group.digest(roster.digest).hex()
        if roster.group is not None
        else "",
        "model": model,
        "disclosures": hashlib.sha256(json.dumps(disclosed(prepared.method)).encode()).hexdigest(),
    }
    return Agreed(study, roster, prepared, content)


def disclosed(method: Method) -> list[dict[str, str]]:
    """What a silo may send, in the words that its operator agreed to."""
    return [
        {"exchange": e.name, **vars(d), "readable_by": d.readable_by}
        for e in method.exchanges
        for d in e.disclosures
    ]


def _data_lines(study: StudyFile) -> list[str]:
    data = study.data
    if data is None:
        return []
    lines = [f"Classes      {', '.join(data.classes)}"]
    lines += [f"             {data.none} says that there is none"] if data.none else []
    return lines + [f"             {s} annotates {', '.join(t)}" for s, t in data.tags.items()]


def _public_lines(of: Agreed) -> list[str]:
    if not of.prepared.settings.public:
        return []
    numbers = sum(a.size for a in of.prepared.task.not_trained().values())
    sent = (
        f"what silos do not train of that model, {numbers:,} numbers, is sent to each silo once, which keeps it"
        if numbers
        else "the first round's model is what came of it"
    )
    return [
        "Public text  the coordinator trains on public text before the first round;",
        f"             {sent}. Nothing leaves a silo by it.",
    ]


def page(of: Agreed) -> str:
    """For whoever has to decide: who takes part, what leaves, who can read it, what it costs."""
    s, about = of.prepared.settings, describe(of.prepared.settings.method)
    budget = f"epsilon {s.epsilon:g} at delta {s.delta:g}" if s.epsilon else f"noise {s.noise:g}"
    privacy = (
        "no noise is added: epsilon is infinite, and whoever has the model can ask it what it remembers"
        if s.dp == "off"
        else f"DP={s.dp}, {budget}, clip {s.clip:g}"
    )
    lines = [
        f"Study        {of.study.title}",
        f"Consortium   {of.roster.consortium}, roster version {of.roster.version} ({of.roster.fingerprint})",
        f"Coordinator  {of.roster.coordinator.name}",
        f"Silos        {', '.join(c.name for c in of.roster.silos)}",
        f"Method       {s.method_name}: {about.summary}",
        f"             {about.citation}",
        *(
            [f"             from outside: its file has the SHA-256 {about.digest}"]
            if about.digest
            else []
        ),
        f"Training     {training_line(s, of.prepared.task)}",
        f"Rounds       {s.rounds}, of which each asks {s.fraction:.0%} of the silos; "
        f"at least {_least(s)} in every sum",
        f"Privacy      {privacy}",
        *_public_lines(of),
        *_data_lines(of.study),
        "",
        "What a silo may send when it takes part in a round:",
    ]
    for i, d in enumerate(disclosed(of.prepared.method), 1):
        lines += [
            f"  {i}. {d['name']} ({d['exchange']}, {d['channel']}): {d['shape']}",
            f"     readable by: {d['readable_by']}",
            f"     reveals:     {d['reveals']}",
            f"     charged:     {d['privacy']}",
        ]
    lines += [
        "",
        f"Masks hide a silo's part of a sum as long as {sum_assumption(s)}.",
        "Sentences, words and labels are not sent. What can be concluded from what is sent stands under reveals.",
        "",
        f"Study hash   {of.hash.hex()}",
    ]
    return "\n".join(lines)
