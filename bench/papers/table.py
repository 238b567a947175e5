"""`make table PAPER=…`: a paper's comparison as runs of ours, three seeds each, into one page.

Runs use the in-process runner (the same model as real processes, bit for bit), as many at once as
cores; with RUNNER=processes one at a time, and the page then has the bytes on the wire too. Every
finished run is a line in runs.jsonl; started again, the command runs only what is missing, so
another TARGET costs nothing. METHODS="a b" (others than the paper's too), ROWS="fedner,w/o weight"
and COLUMNS="x,y" cut the comparison down.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.papers import PAPERS, Comparison
from bench.papers.page import CONVERGENCE, Done, Results, first_metric, page, panels
from bench.papers.plots import draw_rounds
from config.errors import UserError, nearest
from config.program import as_program
from coordinator.runlog import RunLog
from methods import find
from report.files import read_lines

__all__ = [
    "main",
    "merged",
    "run_key",
    "run_table",
    "seed_list",
    "with_columns",
    "with_methods",
    "with_rows",
]


@dataclass(frozen=True)
class Job:
    row: str
    column: str  #: empty for a reference, which no column varies
    seed: int
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        return run_key((*self.words, f"SEED={self.seed}"))


def run_key(words: tuple[str, ...]) -> str:
    """What decides a run. A method's file from outside counts by what is in it, not by its place."""
    name, path = "METHOD=", next((w for w in words if re.match(r"METHOD=.*\.py$", w)), "")
    if path:
        digest = find(path.removeprefix(name)).digest
        words = (*(w for w in words if w != path), f"{name}{digest}")
    return " ".join(sorted(words))


def jobs(comparison: Comparison, common: tuple[str, ...], seeds: tuple[int, ...]) -> Iterator[Job]:
    rows = {m: (f"METHOD={m}",) for m in comparison.methods} | dict(comparison.variants)
    for seed in seeds:
        for row, own in rows.items():
            for column, words in comparison.columns.items():
                yield Job(row, column, seed, merged(common, own, words))
        for name, words in comparison.references.items():
            yield Job(name, "", seed, merged(common, words))


def merged(*parts: tuple[str, ...]) -> tuple[str, ...]:
    """Later settings win; knobs (SET=…) add up."""
    table: dict[str, str] = {}
    for name, _, value in (w.partition("=") for part in parts for w in part):
        table[name] = f"{table[name]} {value}" if name == "SET" and name in table else value
    return tuple(f"{name}={value}" for name, value in table.items())


def _run(job: Job, folder: Path) -> Done:
    out = folder / "work" / hashlib.sha256(job.key.encode()).hexdigest()[:16]
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "simulate",
        *job.words,
        f"SEED={job.seed}",
        f"OUT={out}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise UserError(
            f"A run failed: {' '.join(command[3:])}: {(done.stderr or done.stdout).strip()[-500:]}"
        )
    run = out / "latest"
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text("utf-8"))
    lines = read_lines(run / "rounds.jsonl")
    if any(line["dev"] is None for line in lines):
        raise UserError("A table needs the score of every round: leave EVALUATE out.")
    dev = tuple(float(line["dev"]) for line in lines)
    shutil.rmtree(out)
    return Done(summary, dev)


def run_table(
    comparison: Comparison, words: Mapping[str, str], extra: tuple[str, ...], say: Console
) -> Path:
    paper, size, corpus, seeds = (
        words["PAPER"],
        words["SIZE"],
        words["CORPUS"],
        seed_list(words["SEEDS"]),
    )
    if size not in comparison.sizes:
        raise UserError(f'Unknown SIZE "{size}".{nearest(size, comparison.sizes)}')
    if size == "hours":
        comparison = replace(
            comparison,
            columns={**comparison.columns, **comparison.more_columns},
            variants={**comparison.variants, **comparison.more_variants},
        )
    common = (*comparison.on_folder, f"CORPUS={corpus}") if corpus else comparison.sizes[size]
    common = merged(("RUNNER=inprocess",), common, extra)
    at_once = 1 if "RUNNER=processes" in common else os.cpu_count() or 1
    name = f"{paper}-{Path(corpus).name or 'corpus'}" if corpus else f"{paper}-{size}"
    folder = Path(words["TABLES"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    log = RunLog(folder)
    done = {
        line["key"]: Done(line["summary"], tuple(line.get("dev", ())))
        for line in read_lines(folder / "runs.jsonl")
    }
    wanted = list(jobs(comparison, common, seeds))
    missing = [job for job in wanted if job.key not in done]
    say.print(
        f"{comparison.title}: {len(wanted)} runs, {len(missing)} to do",
        highlight=False,
        soft_wrap=True,
    )
    with ThreadPoolExecutor(at_once) as pool:
        futures = {pool.submit(_run, job, folder): job for job in missing}
        try:
            for k, future in enumerate(as_completed(futures), 1):
                job, result = futures[future], future.result()
                done[job.key] = result
                log.append(
                    "runs.jsonl", {"key": job.key, "summary": result.summary, "dev": result.dev}
                )
                s = result.summary
                say.print(
                    f"{k}/{len(missing)} {job.row} {job.column} seed {job.seed}: "
                    f"{s['metric']} {s['value']:.4f}, {s['wall_seconds']:.0f} s",
                    highlight=False,
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    results = Results({(j.row, j.column, j.seed): done[j.key] for j in wanted}, seeds)
    path = folder / "table.md"
    if comparison.convergence:
        draw_rounds(
            folder / CONVERGENCE, panels(comparison, results), f"dev {first_metric(results)}"
        )
    path.write_text(page(comparison, common, results, corpus), "utf-8")
    return path


def seed_list(text: str) -> tuple[int, ...]:
    """ "3" is 0, 1, 2; "10-12" is 10, 11, 12: seeds to tune on, so that the reported ones stay
    unseen.
    """
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (
        (0, int(text) - 1) if text.isdigit() else map(int, found.groups()) if found else (0, -1)
    )
    if last < first:
        raise UserError(
            f'SEEDS must be a whole number from 1, or a range as in 10-12, not "{text}".'
        )
    return tuple(range(first, last + 1))


def _with_target(comparison: Comparison, text: str) -> Comparison:
    try:
        return replace(comparison, target=float(text)) if text else comparison
    except ValueError:
        raise UserError(
            f'TARGET must be a value of the dev metric, such as 0.6, not "{text}".'
        ) from None


def with_methods(comparison: Comparison, wanted: list[str]) -> Comparison:
    if comparison.methods:
        ours = tuple(m for m in wanted if not m.endswith(".py"))
        files = [m for m in wanted if m.endswith(".py")]
        outside = {find(m).name: (f"METHOD={m}",) for m in files}
        if len(outside) < len(files):
            raise UserError("Two files in METHODS have one name, so their rows would; rename one.")
        return replace(comparison, methods=ours, variants=outside)
    rows = {**comparison.variants, **comparison.more_variants}
    known = {
        word.partition("=")[2]
        for words in rows.values()
        for word in words
        if word.startswith("METHOD=")
    }
    for name in wanted:
        if name not in known:
            raise UserError(f'This table has no method "{name}".{nearest(name, known)}')
    chosen = {
        label: words for label, words in rows.items() if any(f"METHOD={m}" in words for m in wanted)
    }
    return replace(comparison, variants=chosen, more_variants={})


def with_rows(comparison: Comparison, wanted: list[str]) -> Comparison:
    """Only these rows, by the names they have in the table; references too."""
    variants = {**comparison.variants, **comparison.more_variants}
    known = (*comparison.methods, *variants, *comparison.references)
    for name in wanted:
        if name not in known:
            raise UserError(f'This table has no row "{name}".{nearest(name, known)}')
    return replace(
        comparison,
        methods=tuple(m for m in comparison.methods if m in wanted),
        variants={name: words for name, words in variants.items() if name in wanted},
        more_variants={},
        references={name: words for name, words in comparison.references.items() if name in wanted},
    )


def with_columns(comparison: Comparison, wanted: list[str]) -> Comparison:
    known = {**comparison.columns, **comparison.more_columns}
    for name in wanted:
        if name not in known:
            raise UserError(f'This table has no column "{name}".{nearest(name, known)}')
    return replace(comparison, columns={name: known[name] for name in wanted}, more_columns={})


def main(words: list[str]) -> None:
    say = Console()
    table = {
        "PAPER": "",
        "SIZE": "minutes",
        "CORPUS": "",
        "SEEDS": "3",
        "TABLES": "tables",
        "METHODS": "",
        "ROWS": "",
        "COLUMNS": "",
        "TARGET": "",
    }
    extra = []
    for word in words:
        name, _, value = word.partition("=")
        if name in table:
            table[name] = value
        else:
            extra.append(word)
    with as_program():
        if table["PAPER"] not in PAPERS:
            raise UserError(f'Unknown paper "{table["PAPER"]}".{nearest(table["PAPER"], PAPERS)}')
        comparison = _with_target(PAPERS[table["PAPER"]], table["TARGET"])
        if table["METHODS"]:
            comparison = with_methods(comparison, table["METHODS"].split())
        if table["ROWS"]:
            # "fedlcc, C=0.5" is one name
            comparison = with_rows(comparison, re.split(",(?! )", table["ROWS"]))
        if table["COLUMNS"]:
            comparison = with_columns(comparison, table["COLUMNS"].split(","))
        path = run_table(comparison, table, tuple(extra), say)
    say.print(f"table: {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
