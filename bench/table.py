"""`make table PAPER=…`: a paper's comparison as runs of ours, three seeds each, into one page.

Runs use the in-process runner (the same model as real processes, bit for bit), as many at once as cores. Every
finished run is a line in runs.jsonl; started again, the command runs only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.papers import PAPERS, Comparison
from config.errors import UserError, nearest
from coordinator.runlog import RunLog, read_lines

__all__ = ["main", "run_table"]


@dataclass(frozen=True)
class Job:
    row: str
    column: str  #: empty for a reference, which no column varies
    seed: int
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        return " ".join(sorted((*self.words, f"SEED={self.seed}")))


def jobs(comparison: Comparison, common: tuple[str, ...], seeds: int) -> Iterator[Job]:
    for seed in range(seeds):
        for method in comparison.methods:
            for column, words in comparison.columns.items():
                yield Job(method, column, seed, _merged(common, (f"METHOD={method}",), words))
        for name, words in comparison.references.items():
            yield Job(name, "", seed, _merged(common, words))


def _merged(*parts: tuple[str, ...]) -> tuple[str, ...]:
    """Later settings win."""
    table = {w.partition("=")[0]: w for part in parts for w in part}
    return tuple(table.values())


def _run(job: Job, folder: Path) -> dict[str, Any]:
    out = folder / "work" / hashlib.sha256(job.key.encode()).hexdigest()[:16]
    command = [sys.executable, "-m", "bench.cli", "simulate", *job.words, f"SEED={job.seed}", f"OUT={out}"]
    done = subprocess.run([*command, "RUNNER=inprocess"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise UserError(f"A run failed: {' '.join(command[3:])}: {(done.stderr or done.stdout).strip()[-500:]}")
    summary: dict[str, Any] = json.loads((out / "latest" / "summary.json").read_text("utf-8"))
    shutil.rmtree(out)
    return summary


def run_table(comparison: Comparison, words: Mapping[str, str], extra: tuple[str, ...], say: Console) -> Path:
    paper, size, corpus, seeds = words["PAPER"], words["SIZE"], words["CORPUS"], int(words["SEEDS"])
    if size not in comparison.sizes:
        raise UserError(f'Unknown SIZE "{size}".{nearest(size, comparison.sizes)}')
    common = (*comparison.on_folder, f"CORPUS={corpus}") if corpus else comparison.sizes[size]
    common = _merged(common, extra)
    name = f"{paper}-{Path(corpus).name or 'corpus'}" if corpus else f"{paper}-{size}"
    folder = Path(words["TABLES"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    log = RunLog(folder)
    done: dict[str, Any] = {line["key"]: line["summary"] for line in read_lines(folder / "runs.jsonl")}
    wanted = list(jobs(comparison, common, seeds))
    missing = [job for job in wanted if job.key not in done]
    say.print(f"{comparison.title}: {len(wanted)} runs, {len(missing)} to do", highlight=False, soft_wrap=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {pool.submit(_run, job, folder): job for job in missing}
        try:
            for k, future in enumerate(as_completed(futures), 1):
                job, summary = futures[future], future.result()
                done[job.key] = summary
                log.append("runs.jsonl", {"key": job.key, "summary": summary})
                say.print(
                    f"{k}/{len(missing)} {job.row} {job.column} seed {job.seed}: "
                    f"{summary['metric']} {summary['value']:.4f}, {summary['wall_seconds']:.0f} s",
                    highlight=False,
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    page = folder / "table.md"
    page.write_text(_page(comparison, common, wanted, done, seeds, corpus), "utf-8")
    return page


def _figure(summary: Mapping[str, Any], key: str) -> float:
    group, _, name = key.rpartition(".")
    return float(summary[group][name] if group else summary[name])


def _spread(values: list[float]) -> str:
    mean = statistics.fmean(values)
    return f"{mean:.4f} ± {statistics.stdev(values):.4f}" if len(values) > 1 else f"{mean:.4f}"


def _page(
    comparison: Comparison, common: tuple[str, ...], wanted: list[Job], done: Mapping[str, Any], seeds: int, corpus: str
) -> str:
    first = done[wanted[0].key]
    columns = list(comparison.columns)

    def values(row: str, column: str, metric: str) -> list[float]:
        return [_figure(done[j.key], metric) for j in wanted if j.row == row and j.column == column]

    text = [
        f"# {comparison.title}",
        "",
        f"Our runs on {first['corpus']} ({first['corpus_note']}), `{' '.join(common)}`, seeds 0 to {seeds - 1}; mean ± "
        "standard deviation over seeds, test split, model chosen on dev.",
        "",
    ]
    for label, key in comparison.metrics.items():
        rows = [[m, *(_spread(values(m, c, key)) for c in columns)] for m in comparison.methods]
        text += [f"## {label}", "", *_rows(["", *columns], rows), ""]
        references = [[r, _spread(values(r, "", key))] for r in comparison.references]
        if references:
            text += [*_rows(["reference, not a federation", label], references), ""]
    own, metric = comparison.methods[0], next(iter(comparison.metrics.values()))

    def paired(ours: list[float], theirs: list[float]) -> str:
        pairs = [a - b for a, b in zip(ours, theirs)]
        return f"{statistics.fmean(pairs):+.4f} ({sum(p > 0 for p in pairs)} of {len(pairs)})"

    if comparison.against:
        base = comparison.against
        rest = [c for c in columns if c != base]
        rows = [[m, *(paired(values(m, c, metric), values(m, base, metric)) for c in rest)] for m in comparison.methods]
        title = f"## each minus {base}, seed by seed (and in how many seeds it is above)"
        return "\n".join([*text, title, "", *_rows(["", *rest], rows), ""])
    rows = [
        [other, *(paired(values(own, c, metric), values(other, c, metric)) for c in columns)]
        for other in comparison.methods[1:]
    ]
    text += [
        f"## {own} minus each, seed by seed (and in how many seeds it is above)",
        "",
        *_rows(["", *columns], rows),
        "",
    ]
    for table in comparison.published:
        if corpus and table.corpus in Path(corpus).name.lower():
            head = f"## Printed in the paper, not run by us: {table.source}"
            text += [head, "", *_rows(list(table.head), [list(r) for r in table.rows]), ""]
    return "\n".join(text)


def _rows(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in rows)]


def main(words: list[str]) -> None:
    say = Console()
    table = {"PAPER": "", "SIZE": "minutes", "CORPUS": "", "SEEDS": "3", "TABLES": "tables", "METHODS": ""}
    extra = []
    for word in words:
        name, _, value = word.partition("=")
        if name in table:
            table[name] = value
        else:
            extra.append(word)
    try:
        if not table["SEEDS"].isdigit() or table["SEEDS"] == "0":
            raise UserError(f'SEEDS must be a whole number from 1, not "{table["SEEDS"]}".')
        if table["PAPER"] not in PAPERS:
            raise UserError(f'Unknown paper "{table["PAPER"]}".{nearest(table["PAPER"], PAPERS)}')
        comparison = PAPERS[table["PAPER"]]
        if table["METHODS"]:
            comparison = replace(comparison, methods=tuple(table["METHODS"].split()))
        page = run_table(comparison, table, tuple(extra), say)
    except UserError as e:
        print(e, file=sys.stderr)
        raise SystemExit(2) from None
    say.print(f"table: {page}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
