"""`make audit METHOD=… DP=…`: attacks on a study of that method, and what they prove beside what is
promised.

The study is small and on a built-in corpus unless told otherwise; every setting of `simulate` can
be given. SHADOWS=8 is how many shadow models the likelihood-ratio attack has, PLAYS=500 how often
each noisy release is played on either of two neighbouring inputs. The result is printed and kept in
AUDITS (audits/): audit.json and audit.md. An attack that fails proves nothing: a better one may
succeed. One that succeeds beyond the promise shows that the promise is broken, and the exit status is 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.audit.distinguish import CONFIDENCE
from bench.audit.inversion import attack_update
from bench.audit.membership import attack_membership
from bench.audit.releases import attack_releases
from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load
from methods import default_corpus, describe
from methods.dp.coverage import unit_of
from methods.tasks.load import task_name
from study.prepare import Study, prepare

__all__ = ["audit", "main"]

#: Few records and many steps over them: where a model would remember if it can.
_SMALL: Mapping[str, Mapping[str, str]] = {
    "distant": {
        "corpus": "distant:sentences=300,dev=60,test=60",
        "rounds": "4",
        "epochs": "6",
        "silos": "3",
    },
    "sentence": {
        "corpus": "sentence:sentences=200,dev=60,test=60",
        "rounds": "4",
        "epochs": "3",
        "silos": "3",
    },
    "document": {
        "corpus": "document:documents=40,dev=10,test=10",
        "rounds": "4",
        "epochs": "3",
        "silos": "3",
    },
    "ner": {"corpus": "ner:sentences=60,dev=12,test=12", "rounds": "4", "epochs": "3"},
}


_COUNTS = {"SHADOWS": "8", "PLAYS": "500"}


def _study(words: Mapping[str, str]) -> Study:
    given = {k.lower(): v for k, v in words.items()}
    method = given.get("method", "fedavg")
    if describe(method).reference:
        raise UserError(f'"{method}" is a reference, not a federation; audit a method.')
    corpus = given.get("corpus") or default_corpus(method)
    task = task_name(load(None, {"method": method, "corpus": corpus}))
    small = dict(_SMALL[task])
    if "corpus" in given:
        small.pop("corpus")
    if given.get("dp", "off") != "off" and not given.get("epsilon") and not given.get("noise"):
        given["epsilon"] = "8"
    return prepare(load(None, {**small, "method": method, "runner": "inprocess", **given}))


def _promised(study: Study) -> float | str:
    """Epsilon as the ledgers of one run have it."""
    if study.settings.dp == "off":
        return "inf"
    with tempfile.TemporaryDirectory() as folder:
        if run_inprocess(Path(folder), study) != 0:
            raise UserError(
                "The study of this audit does not finish; raise EPSILON, or give more records."
            )
        said: float | str = json.loads((Path(folder) / "summary.json").read_text("utf-8"))[
            "epsilon"
        ]
    return said


def audit(study: Study, shadows: int, plays: int = 0) -> dict[str, Any]:
    """`plays`: of each release, on either input; 0: releases are not attacked."""
    s = study.settings
    views, why_not = attack_update(study)
    releases = attack_releases(study, plays) if plays else []
    return {
        "method": s.method_name,
        "corpus": study.task.corpus_name,
        "silos": s.silos,
        "rounds": s.rounds,
        "seed": s.seed,
        "dp": s.dp,
        "unit": unit_of(s, study.task, study.method) if s.dp != "off" else study.task.record_unit,
        "delta": s.delta if s.dp != "off" else 0.0,
        "epsilon_at_most": _promised(study),
        "membership": [asdict(a) for a in attack_membership(study, shadows)],
        "inversion": [asdict(v) for v in views],
        "inversion_why_not": why_not,
        "releases": [
            {**asdict(r), "epsilon_at_least": r.epsilon_at_least, "broken": r.broken}
            for r in releases
        ],
    }


def _releases(releases: list[dict[str, Any]]) -> list[str]:
    if not releases:
        return []
    lines = [
        "",
        "## Every release by itself",
        "",
        "Played with one known record and without it, everything else known to the adversary.",
        "",
        "| release (exchange) | what leaves | distinguisher | says yes, with / without | epsilon is at least "
        f"({CONFIDENCE:.0%}) | promised |",
        "|---|---|---|---|---|---|",
    ]
    for r in releases:
        what, sent = f"{r['release']} ({r['exchange']})", f"{r['numbers']} numbers"
        for f in r["found"]:
            said = f"{f['true_positives']:.1%} / {f['false_positives']:.1%} of {f['plays']}"
            bound = f"{f['epsilon_at_least']:.3f}"
            lines.append(
                f"| {what} | {sent} | {f['distinguisher']} | {said} | {bound} | {r['epsilon_at_most']:.3g} |"
            )
        if not r["moved"]:
            lines += [
                "",
                f"The record moves nothing in {what}, so that nothing could be found; try another SEED.",
                "",
            ]
        if r["broken"]:
            lines += ["", f"**BROKEN: {what} gives away more than its epsilon.** {r['event']}.", ""]
    return lines


def _page(a: Mapping[str, Any]) -> str:
    promise = (
        "infinite: no noise"
        if a["epsilon_at_most"] == "inf"
        else f"{a['epsilon_at_most']:.3g} at {a['delta']:g}"
    )
    lines = [
        f"# Audit: {a['method']}, DP={a['dp']}",
        "",
        f"{a['corpus']}, {a['silos']} silos, {a['rounds']} rounds, seed {a['seed']}. The unit is a {a['unit']}. "
        f"The accountant's upper bound of epsilon: {promise}.",
        "",
        "## Membership inference on the final model",
        "",
        "| attack | AUC | advantage | right guesses | epsilon is at least (95 %) |",
        "|---|---|---|---|---|",
    ]
    for m in a["membership"]:
        right = f"{m['right']} of {m['guesses']}"
        lines.append(
            f"| {m['name']} | {m['auc']:.3f} | {m['advantage']:.3f} | {right} | {m['epsilon_at_least']:.3f} |"
        )
    if a["dp"] == "silo":
        lines += [
            "",
            "DP=silo promises more than this attack tries: it is on records, and the promise is on silos.",
        ]
    lines += _releases(a["releases"])
    lines += ["", "## One silo's words from its first update", ""]
    if a["inversion"]:
        lines += ["| the coordinator sees | AUC of the silo's words |", "|---|---|"]
        lines += [f"| {v['view']} | {v['auc']:.3f} |" for v in a["inversion"]]
    else:
        lines.append(a["inversion_why_not"])
    lines += ["", "0.5 is a coin. An attack that fails proves nothing about a better one.", ""]
    return "\n".join(lines)


def main(words: list[str]) -> None:
    import torch

    torch.set_num_threads(1)
    given = dict(w.partition("=")[::2] for w in words)
    try:
        counts = {name: given.pop(name, default) for name, default in _COUNTS.items()}
        for name, text in counts.items():
            if not text.isdigit():
                raise UserError(f'{name} must be a whole number, not "{text}".')
        if 0 < int(counts["PLAYS"]) < 20:
            raise UserError("PLAYS must be 0 or at least 20; fewer prove nothing.")
        folder = Path(given.pop("AUDITS", "audits"))
        study = _study(given)
        found = audit(study, int(counts["SHADOWS"]), int(counts["PLAYS"]))
    except UserError as e:
        print(e, file=sys.stderr)
        raise SystemExit(2) from None
    folder = folder / f"{study.settings.method_name}-{study.task.name}-{study.settings.dp}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.json").write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    (folder / "audit.md").write_text(_page(found), "utf-8")
    console = Console()
    console.print(_page(found), highlight=False, markup=False, soft_wrap=True)
    console.print(f"audit: {folder / 'audit.md'}", highlight=False, soft_wrap=True)
    broken = [r["release"] for r in found["releases"] if r["broken"]]
    if broken:
        print(f"The promise is broken: {', '.join(broken)}.", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
