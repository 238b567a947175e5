"""`make audit METHOD=… DP=…`: attacks on a study of that method, and what they prove beside what is
promised.

The study is small and on a built-in corpus unless told otherwise; every setting of `simulate` can
be given. `make audit RUN=runs/x` attacks a finished simulation with its own settings. SHADOWS=8 is
how many shadow models the likelihood-ratio attack has, PLAYS=500 how often each noisy release is
played on either of two neighbouring inputs. The result is printed and kept as audit.json and
audit.md: in the folder of RUN, whose report is written again with the bounds in it; or in AUDITS
(audits/), with the run that was made for it and that run's report. An attack that fails proves
nothing: a better one may succeed. One that succeeds beyond the promise shows that the promise is
broken, and the exit status is 1.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.audit.attacked import (
    as_audited,
    keep,
    make_run,
    play_again,
    refuse_reference,
    study_of_run,
)
from bench.audit.distinguish import CONFIDENCE
from bench.audit.inversion import attack_update
from bench.audit.membership import CONFIDENCE as MEMBER_CONFIDENCE
from bench.audit.membership import attack_membership
from bench.audit.releases import attack_releases, played_records
from config.errors import UserError
from config.load import load
from methods import default_corpus
from methods.dp.coverage import unit_of
from methods.tasks.load import task_name
from report.audit import MODEL
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
    for knob in given.pop("set", "").split():
        name, equals, value = knob.partition("=")
        if not equals:
            raise UserError(f'SET must be NAME=VALUE, not "{knob}".')
        given[f"options.{name}"] = value
    method = given.get("method", "fedavg")
    refuse_reference(method)
    corpus = given.get("corpus") or default_corpus(method)
    task = task_name(load(None, {"method": method, "corpus": corpus}))
    small = dict(_SMALL[task])
    if "corpus" in given:
        small.pop("corpus")
    if given.get("dp", "off") != "off" and not given.get("epsilon") and not given.get("noise"):
        given["epsilon"] = "8"
    return prepare(as_audited(load(None, {**small, "method": method, **given})))


def audit(
    study: Study, shadows: int, plays: int = 0, attacked: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`plays`: of each release, on either input; 0: releases are not attacked. `attacked`:
    summary.json of the study's run, where it was made.
    """
    s = study.settings
    attacked = attacked or play_again(study)
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
        "epsilon_at_most": attacked["epsilon"],
        "confidence": {"membership": MEMBER_CONFIDENCE, "releases": CONFIDENCE},
        "shadows": shadows,
        "plays": plays,
        "records": len(played_records(study)) if releases else 0,
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
        "| attack | AUC | advantage | right guesses | epsilon is at least (95 %) | promised |",
        "|---|---|---|---|---|---|",
    ]
    for m in a["membership"]:
        right, most = f"{m['right']} of {m['guesses']}", float(m["epsilon_at_most"])
        figures = f"{m['auc']:.3f} | {m['advantage']:.3f} | {right} | {m['epsilon_at_least']:.3f}"
        lines.append(f"| {m['name']} | {figures} | {most:.3g} |")
    if a["dp"] == "silo":
        lines += [
            "",
            "This attack is on single records. DP=silo promises something else, which is about whole silos.",
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
        shadows, plays = int(counts["SHADOWS"]), int(counts["PLAYS"])
        command = f"make audit {shlex.join(words)}".rstrip()
        if "RUN" in given:
            found, report = _of_run(given, shadows, plays, command)
        else:
            found, report = _of_settings(given, shadows, plays, command)
    except UserError as e:
        print(e, file=sys.stderr)
        raise SystemExit(2) from None
    console = Console()
    console.print(_page(found), highlight=False, markup=False, soft_wrap=True)
    console.print(f"audit: {report.with_name('audit.md')}", highlight=False, soft_wrap=True)
    console.print(f"report: {report}", highlight=False, soft_wrap=True)
    broken = _broken(found)
    if broken:
        print(f"The promise is broken: {', '.join(broken)}.", file=sys.stderr)
        raise SystemExit(1)


def _broken(found: Mapping[str, Any]) -> list[str]:
    over = found["dp"] != "silo" and any(
        m["epsilon_at_least"] > float(m["epsilon_at_most"]) for m in found["membership"]
    )
    return [MODEL] * over + [r["release"] for r in found["releases"] if r["broken"]]


def _of_run(
    given: Mapping[str, str], shadows: int, plays: int, command: str
) -> tuple[dict[str, Any], Path]:
    """A finished simulation, as it was; what is found goes into its folder."""
    more = [name for name in given if name != "RUN"]
    if more:
        raise UserError(
            f"RUN is audited with its own settings; leave out {', '.join(more)}. SHADOWS and PLAYS can be given."
        )
    run = Path(given["RUN"]).resolve()
    study = study_of_run(run)
    attacked = play_again(study)
    found = {"command": command, **audit(study, shadows, plays, attacked)}
    return found, keep(run, found, _page(found), attacked)


def _of_settings(
    given: dict[str, str], shadows: int, plays: int, command: str
) -> tuple[dict[str, Any], Path]:
    """A run of the audit's own, which has its folder beside audit.md."""
    audits = Path(given.pop("AUDITS", "audits"))
    study = _study(given)
    s = study.settings
    folder = audits / f"{s.method_name}-{study.task.name}-{s.dp}"
    run = make_run(study, folder, command)
    attacked = json.loads((run / "summary.json").read_text("utf-8"))
    found = {"command": command, **audit(study, shadows, plays, attacked)}
    report = keep(run, found, _page(found), attacked)
    for name in ("audit.json", "audit.md"):
        shutil.copyfile(run / name, folder / name)
    return found, report


if __name__ == "__main__":
    main(sys.argv[1:])
