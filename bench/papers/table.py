"""`make table PAPER=…`: a paper's comparison as runs of ours, three seeds each, into one page.

Runs use the in-process runner (the same model as real processes, bit for bit), as many at once as
cores; with RUNNER=processes one at a time, and the page then has the bytes on the wire too. Every
finished run is a line in runs.jsonl; started again, the command runs only what is missing, so
another TARGET costs nothing. METHODS="a b" (others than the paper's too), ROWS="fedner,w/o weight"
and COLUMNS="x,y" cut the comparison down.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.papers import PAPERS, Comparison
from bench.papers.beside import majorities, write_csv
from bench.papers.gains import Guesses
from bench.papers.jobs import Job, at_once, merged, of_corpus, run_missing, seed_list
from bench.papers.page import CONVERGENCE, NOTHING, first_metric, page, panels
from bench.papers.plots import draw_rounds
from bench.papers.results import Results
from config.errors import UserError, nearest
from config.program import as_program
from methods import find

__all__ = ["jobs", "main", "rows_of", "run_table", "with_columns", "with_methods", "with_rows"]


def rows_of(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    return {m: (f"METHOD={m}",) for m in comparison.methods} | dict(comparison.variants)


def jobs(
    comparison: Comparison,
    common: tuple[str, ...],
    seeds: tuple[int, ...],
    features: Path | None = None,
) -> Iterator[Job]:
    """`features`: where runs that share a frozen encoder may keep what it makes of texts."""
    rows = rows_of(comparison)
    of = comparison.seeds_of
    cells = [(row, column) for row in rows for column in comparison.columns]
    names = comparison.references
    every = {s for cell in cells for s in of(*cell, seeds)} | {
        s for n in names for s in of(n, "", seeds)
    }
    for seed in sorted(every):
        for row, column in cells:
            if seed in of(row, column, seeds):
                words = merged(common, rows[row], comparison.columns[column])
                shared = features and row in comparison.frozen and "DP=record" in words
                machine = (f"FEATURES={features}",) if shared else ()
                yield Job(row, column, seed, words, machine)
        for name in names:
            if seed in of(name, "", seeds):
                yield Job(name, "", seed, merged(common, names[name]))


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
            seeds={**comparison.seeds, **comparison.more_seeds},
        )
    common = _on_folder(comparison, corpus) if corpus else comparison.sizes[size]
    common = merged(("RUNNER=inprocess",), common, extra)
    name = f"{paper}-{Path(corpus).name or 'corpus'}" if corpus else f"{paper}-{size}"
    folder = Path(words["TABLES"]) / name
    # of the network as it is by default under a budget, in one process; of others there may be none
    usual = not any(w.startswith(("TRAIN=", "SET=network", "RUNNER=processes")) for w in common)
    kept = (folder / "features").resolve() if usual else None
    wanted = list(jobs(comparison, common, seeds, kept))
    say.print(f"{comparison.title}: {len(wanted)} runs", highlight=False, soft_wrap=True)
    try:
        done = run_missing(wanted, folder, say, workers=at_once(common))
    finally:
        shutil.rmtree(folder / "features", ignore_errors=True)
    results = Results({(j.row, j.column, j.seed): done[j.key] for j in wanted}, seeds)
    path = folder / "table.md"
    if comparison.convergence:
        draw_rounds(
            folder / CONVERGENCE, panels(comparison, results), f"dev {first_metric(results)}"
        )
    guesses = _guesses(comparison, common, results, folder) if comparison.majority else NOTHING
    path.write_text(page(comparison, common, results, corpus, guesses), "utf-8")
    write_csv(folder / "runs.csv", results)
    if words.get("PAGE"):
        shown = Path(words["PAGE"])
        shown.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, shown)
        shutil.copy(folder / "runs.csv", shown.with_suffix(".csv"))
    return path


def _guesses(
    comparison: Comparison, common: tuple[str, ...], results: Results, folder: Path
) -> Guesses:
    rows, column = rows_of(comparison), next(iter(comparison.columns.values()))
    seeds = {r: sorted({seed for row, _, seed in results.runs if row == r}) for r in rows}
    return majorities({r: merged(common, w, column) for r, w in rows.items()}, seeds, folder)


def _on_folder(comparison: Comparison, corpus: str) -> tuple[str, ...]:
    own = [w for name, w in comparison.of_folder.items() if name in Path(corpus).name.lower()]
    words = of_corpus(own[0], corpus) if own else ()
    return (*comparison.on_folder, f"CORPUS={corpus}", *words)


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
    rows = {**comparison.more_variants, **comparison.variants}  # of the smaller size, if it has one
    known = {
        word.partition("=")[2]
        for words in rows.values()
        for word in words
        if word.startswith("METHOD=")
    }
    for name in wanted:
        if name not in known:
            raise UserError(f'This table has no method "{name}".{nearest(name, known)}')

    def of(rows: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        named = [f"METHOD={m}" for m in wanted]
        return {label: words for label, words in rows.items() if set(named) & set(words)}

    return replace(comparison, variants=of(rows), more_variants=of(comparison.more_variants))


def with_rows(comparison: Comparison, wanted: list[str]) -> Comparison:
    """Only these rows, by the names they have in the table; references too."""
    variants = {**comparison.more_variants, **comparison.variants}
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
        "PAGE": "",
    }
    places = {n for c in PAPERS.values() for n in c.places}
    extra = []
    for word in words:
        name, _, value = word.partition("=")
        if name in table or name in places:
            table[name] = value
        else:
            extra.append(word)
    with as_program():
        if table["PAPER"] not in PAPERS:
            raise UserError(f'Unknown paper "{table["PAPER"]}".{nearest(table["PAPER"], PAPERS)}')
        comparison = _with_target(PAPERS[table["PAPER"]], table["TARGET"])
        for name in comparison.places:
            if not Path(table.get(name, "")).is_dir() or not table.get(name):
                raise UserError(f"This table needs {name}=folder.")
        comparison = comparison.in_places(
            {n: str(Path(table[n]).resolve()) for n in comparison.places}
        )
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
