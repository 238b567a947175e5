"""summary.json: the figures of a finished run, each taken from what was measured or logged while it
ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from config.settings import Settings
from coordinator.runlog import RunLog
from methods import describe
from methods.base import Arrays, Method
from methods.common.arrays import model_sha256
from methods.common.training import parameters
from methods.dp.coverage import unit_of
from methods.tasks.base import Evaluation, Task
from methods.tasks.words import computing_line, file_line, full_size_line, training_line
from models.device import device_words
from privacy.accountant import total
from privacy.events import Unit, from_record
from privacy.second_opinion import Disagreement, compared
from report.files import read_lines, rounds_to

__all__ = ["Scored", "write_summary"]


@dataclass(frozen=True)
class Scored:
    """What the run ended with."""

    model: Arrays
    test: Evaluation
    before: float  #: the test metric of the model before the first round
    network: nn.Module


def _privacy(
    settings: Settings, task: Task, method: Method, lines: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The worst-off silo's total, as its ledger had it last; per silo beside it. Nothing said
    counts as infinite.
    """
    last: dict[str, Any] = {}
    rdp: dict[str, Any] = {}
    for line in lines:
        last[line["silo"]], rdp[line["silo"]] = line["epsilon_after"], line["rdp_epsilon_after"]

    def worst(by_silo: Mapping[str, Any]) -> float | str:
        return "inf" if not by_silo or "inf" in by_silo.values() else max(by_silo.values())

    epsilon, disagreement = worst(last), None
    try:
        opacus = _by_opacus(settings, last, lines)
    except Disagreement as e:  # the run's files are kept; whoever reads them must see this first
        opacus, disagreement = None, str(e)
    return {
        "dp": settings.dp,
        "privacy_unit": unit_of(settings, task, method) if settings.dp != "off" else None,
        "epsilon": epsilon,
        "delta": 0.0 if epsilon == "inf" else settings.delta,
        "epsilon_rdp": worst(rdp),
        "epsilon_opacus": opacus,
        "disagreement": disagreement,
        "epsilon_by_silo": dict(sorted(last.items())),
        "epsilon_budget": settings.epsilon or None,
    }


def _by_opacus(
    settings: Settings, last: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> float | None:
    """The upper figure of Opacus's accountant for the silo that is worst off, from what its ledger
    was charged in this run; another figure than ours is an error. None: there is noise of another
    kind, none at all, or the ledger holds charges of earlier runs.
    """
    if settings.dp == "off" or not last or "inf" in last.values():
        return None
    silo = max(last, key=lambda name: last[name])
    unit: Unit = "silo" if settings.dp == "silo" else "record"
    charged = [line.get("mechanism") for line in lines if line["silo"] == silo]
    if None in charged:  # written by an earlier version
        return None
    events = [from_record(m) for m in charged if m]
    theirs = compared(events, settings.delta, unit)
    ours = total(events, settings.delta, unit).epsilon
    return theirs.most if theirs is not None and ours == last[silo] else None


def write_summary(
    runlog: RunLog,
    method: Method,
    task: Task,
    settings: Settings,
    progress: Mapping[str, Any],
    scored: Scored,
) -> dict[str, Any]:
    model, test = scored.model, scored.test
    trained = sum(int(a.size) for a in parameters(scored.network).values())
    rounds = read_lines(runlog.path / "rounds.jsonl")
    traffic = read_lines(runlog.path / "traffic.jsonl")
    up = [t for t in traffic if t["direction"] == "up"]
    missed: dict[str, list[int]] = {}
    for line in rounds:
        for silo in line["missed"]:
            missed.setdefault(silo, []).append(line["round"])
    participations = max(1, sum(len(r["participants"]) for r in rounds))
    in_rounds = [t for t in traffic if t["round"] >= 0]
    up_in_rounds = sum(t["wire_bytes"] for t in in_rounds if t["direction"] == "up")
    down_in_rounds = sum(t["wire_bytes"] for t in in_rounds if t["direction"] == "down")
    about = describe(settings.method)
    summary: dict[str, Any] = {
        "method": method.name,
        "method_summary": about.summary,
        "citation": about.citation,
        "reference": about.reference,
        "task": task.name,
        "corpus": task.corpus_name,
        "corpus_sha256": task.corpus_hash,
        "corpus_note": task.corpus_note,
        "corpus_files": file_line(task),
        "warning": task.warning("test"),
        "partition": settings.partition,
        "silos": settings.silos,
        "rounds": settings.rounds,
        "seed": settings.seed,
        "runner": settings.runner,
        "masked": settings.secagg,
        "bits": settings.bits,
        "metric": task.metric,
        "value": test.value,
        "before_value": scored.before,
        "public": settings.public,
        "test_size": dict(task.held_out("test")),
        "network": task.network_words,
        "parameters": sum(p.numel() for p in scored.network.parameters()),
        "parameters_trained": trained,
        "training": training_line(settings, task),
        "precision": settings.precision,
        "computing": computing_line(settings, task),
        "device": device_words(),
        "training_defaults": full_size_line(settings, task),
        "figures": dict(test.figures),
        "per_class": dict(test.per_class),
        "selected_round": progress["best_round"],
        "dev_value": progress["best_value"],
        "target": settings.target or None,
        "rounds_to_target": rounds_to(settings.target, [r["dev"] for r in rounds])
        if settings.target
        else None,
        "bytes_up_total": sum(t["wire_bytes"] for t in up),
        "bytes_down_total": sum(t["wire_bytes"] for t in traffic if t["direction"] == "down"),
        "bytes_up_per_silo_round": up_in_rounds / participations,
        "bytes_down_per_silo_round": down_in_rounds / participations,
        # The arrays alone, as they were coded; measured in both runners.
        "arrays_up_per_silo_round": sum(r["arrays_up"] for r in rounds) / participations,
        "arrays_down_per_silo_round": sum(r["arrays_down"] for r in rounds) / participations,
        # What plain FedAvg would upload of this model per silo and round: the yardstick of the byte
        # pictures.
        "model_float32_bytes": 4 * trained,
        **_privacy(settings, task, method, read_lines(runlog.path / "privacy.jsonl")),
        "missed": missed,
        "wall_seconds": round(progress["wall"], 2),
        # Of the whole process tree: only the launcher of a simulation can measure these.
        "cpu_seconds": None,
        "peak_rss_mb": None,
        "model_sha256": model_sha256(model),
    }
    runlog.write_json(
        "curve.json", {"metric": task.metric, "points": [list(p) for p in test.curve]}
    )
    runlog.write_json("summary.json", summary)
    return summary
