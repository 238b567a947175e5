"""`make study PAPER=… CORPUS=… BUDGET=…`: search on dev, then seeds that nobody tuned on, then a page.

Every finished run is a line in a file; started again, the command makes only what is missing.
LAUNCHER=ray gives the runs to a cluster (HOSTS: its address); JOBS says how many run here at once.
The seed of the partition and that of initialisation are drawn apart: report seed k cuts the data by
PARTITION_SEED=k and starts from SEED=100+k. PAGE=x.md writes the page there too, with
its table (x.csv) and picture (x.svg) beside it.

What a frozen encoder makes of the texts is computed once for all runs, in the study's folder, and
removed when the study is finished: it is as private as the texts.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.papers.jobs import Done, Job, at_once, merged, of_corpus, run_missing
from bench.studies import STUDIES
from bench.studies.base import Row, Spec, Words
from bench.studies.page import Chosen, Outcome, placeless, write_pages
from bench.studies.search import best_trial, trial_jobs
from config.errors import UserError, nearest
from config.load import load
from config.program import as_program

__all__ = ["Asked", "main", "run_study"]

_INITIAL = 100  #: SEED of report seed 0: apart from every PARTITION_SEED


@dataclass(frozen=True)
class Asked:
    paper: str
    corpus: str
    budget: str
    folder: Path
    extra: Words = ()  #: settings of the user's own, over all others
    rows: tuple[str, ...] = ()  #: only these; empty: all
    jobs: int = 0  #: runs at once; 0: one for each core
    page: Path | None = None  #: where else the page is wanted

    @property
    def command(self) -> str:
        """As it was typed, but for places, which are other ones elsewhere."""
        words = (f"CORPUS={self.corpus}", *self.extra, f"BUDGET={self.budget}")
        return f"make study PAPER={self.paper} {' '.join(map(placeless, words))}"


def run_study(spec: Spec, asked: Asked, say: Console) -> Path:
    name = _corpus_name(spec, asked.corpus)
    if asked.budget not in spec.budgets:
        raise UserError(f'Unknown BUDGET "{asked.budget}".{nearest(asked.budget, spec.budgets)}')
    budget = spec.budgets[asked.budget]
    rows = _rows(spec.rows_of(budget), asked.rows)
    own = (f"CORPUS={asked.corpus}", *of_corpus(spec.corpora[name], asked.corpus))
    common = merged(("RUNNER=inprocess",), spec.common, own, budget.words, asked.extra)
    cluster = [w for w in common if w.startswith(("LAUNCHER=", "HOSTS="))]
    common = tuple(w for w in common if w not in cluster)
    spread = _on_ray(cluster) if "LAUNCHER=ray" in cluster else None
    workers = 64 if spread else asked.jobs or at_once(common)
    kept = asked.folder / "features"
    frozen = spec.frozen_features and any(w.startswith(("TRAIN=top", "TRAIN=head")) for w in common)
    machine = (f"FEATURES={kept.resolve()}",) if frozen and not spread else ()

    cells = {
        (row, column): (of, merged(common, words))
        for row, of in rows.items()
        for column, words in (spec.columns.items() if not of.reference else [("", ())])
    }
    searched = {
        cell: list(trial_jobs(spec, cell[0], of, words, budget.trials))
        for cell, (of, words) in cells.items()
    }
    every = [job for jobs in searched.values() for job in jobs]
    say.print(f"{spec.title}: {len(every)} trials on dev, then seeds", soft_wrap=True)
    run_all = partial(
        run_missing,
        say=say,
        workers=workers,
        spread=spread,
        machine=machine,
        may_diverge=True,
    )
    tried = run_all(every, asked.folder / "trials")
    chosen, planned = {}, {}
    for cell, jobs in searched.items():
        at, best = best_trial(jobs, tried)
        chosen[cell] = Chosen(at + 1, jobs[at].words, float(best.summary["dev_value"]))
        planned[cell] = [_seed_job(cell, jobs[at].words, k) for k in range(budget.seeds)]
    seeds = [job for jobs in planned.values() for job in jobs]
    say.print(f"{len(seeds)} runs with what was chosen on dev", soft_wrap=True)
    done = run_all(seeds, asked.folder / "seeds")
    shutil.rmtree(kept, ignore_errors=True)
    outcome = Outcome(
        spec,
        corpus=name,
        budget=budget,
        rows=rows,
        chosen=chosen,
        trials=_dev_values(searched, tried),
        seeds={cell: [done[job.key] for job in jobs] for cell, jobs in planned.items()},
        command=asked.command,
        common=common,
        search_seconds=sum(float(tried[job.key].summary["cpu_seconds"]) for job in every),
        majority=_majority(merged(common, next(iter(rows.values())).words), asked.folder),
    )
    if asked.page is not None:
        write_pages(asked.page.parent, outcome, asked.page.stem)
    return write_pages(asked.folder, outcome)


def _majority(words: Words, folder: Path) -> Mapping[str, float]:
    """What the most frequent answer would score on test; kept, like every other result."""
    path = folder / "majority.json"
    if not path.is_file():
        from methods.tasks.load import load_task

        table = dict(w.partition("=")[::2] for w in words)
        knobs = dict(k.partition("=")[::2] for k in table.pop("SET", "").split())
        asked = {k.lower(): v for k, v in table.items()}
        task = load_task(load(None, asked | {f"options.{k}": v for k, v in knobs.items()}))
        found = task.majority("test")
        figures = {} if found is None else {"value": found.value, **found.figures}
        path.write_text(json.dumps(figures) + "\n", "utf-8")
    figures = json.loads(path.read_text("utf-8"))
    return {str(k): float(v) for k, v in figures.items()}


def _dev_values(
    searched: Mapping[tuple[str, str], list[Job]], tried: Mapping[str, Done]
) -> dict[tuple[str, str], list[float | None]]:
    """Of the trials, the dev metric alone: what they scored on test stays unseen."""

    def dev(done: Done) -> float | None:
        return None if done.diverged else float(done.summary["dev_value"])

    return {cell: [dev(tried[job.key]) for job in jobs] for cell, jobs in searched.items()}


def _seed_job(cell: tuple[str, str], words: Words, k: int) -> Job:
    return Job(*cell, _INITIAL + k, merged(words, (f"PARTITION_SEED={k}",)))


def _corpus_name(spec: Spec, corpus: str) -> str:
    """Which of the study's corpora a folder is, by its name."""
    last = Path(corpus).name.lower()
    found = [name for name in spec.corpora if name in last or last in name.split()]
    if not corpus or not found:
        known = ", ".join(spec.corpora)
        raise UserError(
            f'CORPUS must name a folder of this study\'s corpora ({known}), not "{corpus}".'
        )
    return found[0]


def _rows(rows: Mapping[str, Row], wanted: tuple[str, ...]) -> dict[str, Row]:
    for name in wanted:
        if name not in rows:
            raise UserError(f'This study has no row "{name}".{nearest(name, rows)}')
    return {name: row for name, row in rows.items() if not wanted or name in wanted}


def _on_ray(cluster: list[str]) -> Callable[[list[str]], tuple[int, str]]:
    """Runs a command somewhere on a Ray cluster. Folders must be shared, as for LAUNCHER=ray."""
    import subprocess

    try:
        import ray
    except ImportError:
        raise UserError("LAUNCHER=ray needs Ray: pip install 'sottovoce[ray]'.") from None
    address = next((w.partition("=")[2] for w in cluster if w.startswith("HOSTS=")), "") or None
    ray.init(address=address, log_to_driver=False)

    def remote(command: list[str]) -> tuple[int, str]:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stderr or done.stdout

    task = ray.remote(num_cpus=1)(remote)

    def run(command: list[str]) -> tuple[int, str]:
        status, said = ray.get(task.remote(command))
        return int(status), str(said)

    return run


def main(words: list[str]) -> None:
    say = Console()
    table = {"PAPER": "", "CORPUS": "", "BUDGET": "hours", "STUDIES": "studies", "ROWS": ""}
    table |= {"JOBS": "0", "PAGE": ""}
    extra = tuple(w for w in words if w.partition("=")[0] not in table)
    table |= {n: v for n, _, v in (w.partition("=") for w in words) if n in table}
    with as_program():
        paper = table["PAPER"]
        if paper not in STUDIES:
            raise UserError(f'Unknown paper "{paper}".{nearest(paper, STUDIES)}')
        folder = Path(table["STUDIES"]) / f"{paper}-{Path(table['CORPUS']).name or 'corpus'}"
        if not table["JOBS"].isdigit():
            raise UserError(f'JOBS must be a number of runs at once, not "{table["JOBS"]}".')
        if table["PAGE"] and not table["PAGE"].endswith(".md"):
            raise UserError(f'PAGE must name a page, as in x.md, not "{table["PAGE"]}".')
        asked = Asked(
            paper,
            table["CORPUS"],
            table["BUDGET"],
            folder / table["BUDGET"],
            extra=extra,
            # "fedcmc, major" is one name
            rows=tuple(filter(None, re.split(",(?! )", table["ROWS"]))),
            jobs=int(table["JOBS"]),
            page=Path(table["PAGE"]) if table["PAGE"] else None,
        )
        path = run_study(STUDIES[paper], asked, say)
    say.print(f"study: {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
