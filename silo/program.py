"""A silo as a program of its own: it reads its file, shows what would leave, asks for consent,
waits for its hours, then takes part.

This is the same silo that a simulation forks (silo.process). Consent, hours and limits are asked
for here alone: in a simulation all silos are one person's.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pwd
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from config.errors import UserError
from config.logs import log_to
from config.site import OwnLimits, Site, read_site
from config.study import read_study
from methods import describe
from methods.dp.coverage import large_delta, records_in, unit_of
from methods.tasks.words import data_lines
from privacy.second_opinion import Disagreement
from silo import process
from silo.cost import cost_of
from silo.forecast import planned_for
from silo.home import Home
from silo.record import Record, record_folder
from silo.rules import Hours, Rules
from study.agreement import Agreed, agreed, disclosed, page, sum_assumption
from study.machine import Machine, guarded, local_settings, one_thread, own_holding
from study.prepare import prepare
from wire.messages import VERSION
from wire.passphrase import passphrase_for

__all__ = ["look_at", "rules_of", "run_silo", "silo_study"]

log = logging.getLogger("silo")


def run_silo(
    config: Path,
    accept: str,
    console: Console,
    finished: Callable[[Home, bytes], None] = lambda home, study: None,
) -> int:
    """Take part in the study that the silo's own file names. Returns an exit status. `finished` is
    called with the study's hash once it is over.
    """
    one_thread()
    log_to(sys.stderr)
    site = read_site(config)
    rules = rules_of(site.limits)
    home = Home(site.home, passphrase_for(site.home))
    log_to(sys.stderr, home.names)
    of = silo_study(site, home, rules)
    console.print(_own_page(of, home.index), soft_wrap=True, highlight=False, markup=False)
    if warning := _delta_warning(of, home.index):
        log.warning("%s", warning)
        console.print(f"Warning: {warning}", soft_wrap=True, highlight=False, markup=False)
    _consent(home, of, accept, console)
    _wait_for_hours(rules, console)
    study = of.prepared
    try:
        status = guarded(process.serve, log)(
            home,
            address=",".join(f"tcp://{place}" for place in site.addresses),
            settings=study.settings,
            task=study.task,
            data=study.task.subset(study.partition.indices[home.index]),
            method=study.method,
            rules=rules,
            agreed=of.content,
            record=_record(home, of, rules),
            work=home.work(of.hash),
        )
    except Disagreement:  # after its end: what left stands in the documents all the same
        finished(home, of.hash)
        raise
    if status == 0:
        finished(home, of.hash)
    return status


def _record(home: Home, of: Agreed, rules: Rules) -> Record:
    """With what was agreed to, before anything leaves."""
    folder, roster, s = record_folder(home.path, of.hash), of.roster, of.prepared.settings
    record = Record(folder, home.name, of.prepared.method, home.names)
    about = {
        "title": of.study.title,
        "consortium": roster.consortium,
        "coordinator": roster.coordinator.name,
        "silo": home.called,
        "number": home.name,
        "silos": [card.name for card in roster.silos],
        "roster_version": roster.version,
        "roster_fingerprint": roster.fingerprint,
        "study_hash": of.hash.hex(),
        "program": VERSION,
        "method": s.method_name,
        "method_summary": describe(s.method).summary,
        "rounds": s.rounds,
        "dp": s.dp,
        "epsilon_budget": s.epsilon or None,
        "own_limit": None if math.isinf(rules.maximum_epsilon) else rules.maximum_epsilon,
        "delta": s.delta,
        "unit": unit_of(s, of.prepared.task, of.prepared.method),
        "records": len(of.prepared.partition.indices[home.index]),
        "masks_hold_if": sum_assumption(s),
        "each_silo_sends": disclosed(of.prepared.method),
    }
    beside = folder / "about.json.new"
    beside.write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    beside.replace(folder / "about.json")
    return record


def look_at(config: Path, answer: Path) -> int:
    """What the study that this file names would disclose, written to `answer` for a serving silo:
    its hash and its page, or the sentence that stands against it. Nothing is sent.
    """
    one_thread()
    log_to(sys.stderr)
    look: dict[str, Any] = {}
    try:
        site = read_site(config)
        if site.study is not None:
            look["title"] = read_study(site.study).title
        home = Home(site.home, passphrase_for(site.home))
        of = silo_study(site, home, rules_of(site.limits))
        s = of.prepared.settings
        facts = {k: getattr(s, k) for k in ("rounds", "dp", "epsilon", "delta", "fraction")}
        planned = planned_for(of, home.index, site.limits.maximum_epsilon)
        if why := cost_of(planned, site.home / "ledger.jsonl", of.hash.hex()).unpayable:
            raise UserError(f"{why[0].upper()}{why[1:]}.")
        look = {
            "title": of.study.title,
            "hash": of.hash.hex(),
            "page": _own_page(of, home.index),
            "warning": _delta_warning(of, home.index),
            "facts": {"method": s.method_name, **facts},
            "planned": planned.to_record(),
        }
    except UserError as e:
        look["refused"] = str(e)
    except PermissionError as e:
        look["refused"] = _unreadable(e)
    answer.write_text(json.dumps(look), "utf-8")
    return 0


def _unreadable(e: PermissionError) -> str:
    try:
        who = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user need not have a name
        who = str(os.geteuid())
    return (
        f"{e.filename} cannot be read by the user {who}, who serves ({e.strerror}). The folder and all "
        "files in it must be readable to that user."
    )


def _own_page(of: Agreed, index: int) -> str:
    """What the study is, and what this silo would bring into it: for its operator alone."""
    if of.study.data is None:
        return page(of)
    task, own = of.prepared.task, of.prepared.partition.indices[index]
    counts = ", ".join(
        f"{name} {n}" for name, n in zip(task.labels, task.label_counts(own).tolist())
    )
    lines = [f"{len(own)} {task.record_unit}s; {counts}", *data_lines(task)]
    return "\n".join([page(of), "", "This silo's data:", *(f"  {line}" for line in lines)])


def silo_study(site: Site, home: Home, rules: Rules) -> Agreed:
    """The study as this silo would run it; a sentence where one of its own rules forbids it."""
    if site.study is None:
        raise UserError(
            f'{site.path} names no study; add `study = "study.toml"`, or run "sottovoce silo serve".'
        )
    study = read_study(site.study)
    machine = Machine(
        site.home,
        corpus=site.corpus,
        encoder=site.encoder,
        seq2seq=site.seq2seq,
        vectors=site.vectors,
        metrics=site.metrics,
        device=site.device,
        mapping=site.mapping,
    )
    settings = local_settings(study, home.roster, machine)
    holding = own_holding(study, machine, home.called)
    rules.check(settings, len(home.roster.silos))  # before a corpus is read
    prepared = prepare(rules.applied(settings), None if holding is None else home.index, holding)
    # again: now what the study left open is known
    rules.check(prepared.settings, len(home.roster.silos))
    return agreed(study, home.roster, prepared)


def rules_of(limits: OwnLimits) -> Rules:
    hours = Hours.parse(limits.hours) if limits.hours else None
    values = {k: v for k, v in vars(limits).items() if k != "hours"}
    return Rules(**values, hours=hours)


def _delta_warning(of: Agreed, index: int) -> str:
    """Whether delta is so large that the guarantee would allow a record to be given away."""
    study = of.prepared
    if study.settings.dp != "record":
        return ""
    data = study.task.subset(study.partition.indices[index])
    return large_delta(study.settings, records_in(study.method, study.task, data))


def _consent(home: Home, of: Agreed, accept: str, console: Console) -> None:
    """Nothing is sent before the operator has agreed to this very study; what was agreed to is
    kept.
    """
    wanted = of.hash.hex()
    if accept and accept != wanted:
        raise UserError(
            f"--accept names another study than this one, whose hash is {wanted}; nothing was sent."
        )
    if home.agreed_to(wanted):
        console.print("this silo agreed to it before (consents.jsonl)", highlight=False)
    elif accept:
        home.agree(wanted, of.study.title, "--accept")
    elif not sys.stdin.isatty():
        raise UserError(f"This silo has not agreed to this study. To agree: --accept {wanted}")
    elif console.input('Take part? Type "yes" to agree: ').strip().lower() == "yes":
        home.agree(wanted, of.study.title, "asked")
    else:
        raise UserError("Not agreed; nothing was sent.")


def _wait_for_hours(rules: Rules, console: Console) -> None:
    if not (seconds := rules.closed_for(time.localtime())):
        return
    console.print(
        f"outside this silo's hours ({rules.hours}); it dials when they begin", highlight=False
    )
    log.info("waits %d s for its hours (%s)", seconds, rules.hours)
    while seconds := rules.closed_for(time.localtime()):
        time.sleep(min(30.0, seconds))
