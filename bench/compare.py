"""`sottovoce compare RUN RUN…` and `make compare METHODS="…" SEEDS=3`: one page over many runs.

`make compare` keeps the runs it makes in COMPARE/<hash of their settings>, so that started again it
runs only what is missing, and another TARGET or BANDWIDTH costs nothing.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from bench.papers.jobs import at_once, merged, run_key, seed_list
from config.errors import UserError
from config.program import as_program
from methods import find
from report.files import read_run
from report.pages.compare import compare_page, grouped

__all__ = ["compare_runs", "main"]


def compare_runs(
    runs: Sequence[Path], output: Path, target: float = 0.0, bandwidth: float = 1e6
) -> Path:
    """The page over these run folders; those of one method are its seeds."""
    if bandwidth <= 0:
        raise UserError("The bandwidth must be above 0 bytes per second.")
    unique = list(dict.fromkeys(r.resolve() for r in runs))
    if len(unique) < 2:
        raise UserError("A comparison needs at least two runs; name their folders.")
    files = [read_run(r) for r in unique]
    metrics = {(f.summary["task"], f.summary["metric"]) for f in files}
    if len(metrics) > 1:
        found = ", ".join(sorted(f"{task}: {metric}" for task, metric in metrics))
        raise UserError(
            f"These runs were not measured alike ({found}); compare runs of one task and metric."
        )
    try:
        output.write_text(compare_page(grouped(files), target, bandwidth), "utf-8")
    except OSError as e:
        raise UserError(f'"{output}" cannot be written ({e.strerror}).') from None
    return output


def _ensured(folder: Path, words: tuple[str, ...]) -> Path:
    """The finished run with these settings: found, or made now."""
    out = folder / hashlib.sha256(run_key(words).encode()).hexdigest()[:16]
    if not (out / "latest" / "summary.json").is_file():
        command = [sys.executable, "-m", "cli.main", "simulate", *words, f"OUT={out}"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise UserError(
                f"A run failed: {' '.join(command[3:])}: {(done.stderr or done.stdout).strip()[-500:]}"
            )
    return out / "latest"


def run_missing(
    methods: Sequence[str], seeds: Sequence[int], extra: tuple[str, ...], folder: Path, say: Console
) -> list[Path]:
    for method in methods:
        find(method)  # there, or a sentence
    common = merged(("RUNNER=processes",), extra)
    wanted = [merged(common, (f"METHOD={m}", f"SEED={s}")) for m in methods for s in seeds]
    say.print(f"{len(wanted)} runs", highlight=False)
    with ThreadPoolExecutor(at_once(common)) as pool:
        return list(pool.map(lambda words: _ensured(folder, words), wanted))


def main(words: list[str]) -> None:
    say = Console()
    table = {
        "METHODS": "",
        "SEEDS": "3",
        "TARGET": "0",
        "BANDWIDTH": "1e6",
        "COMPARE": "runs/compare",
    }
    extra = [w for w in words if w.partition("=")[0] not in table]
    table |= {n: v for n, _, v in (w.partition("=") for w in words) if n in table}
    with as_program():
        methods = table["METHODS"].split()
        if not methods:
            raise UserError('METHODS is empty; say which, as in METHODS="fedavg fedatt feded".')
        try:
            target, bandwidth = float(table["TARGET"]), float(table["BANDWIDTH"])
        except ValueError:
            raise UserError(
                "TARGET and BANDWIDTH must be numbers (a dev metric; bytes per second)."
            ) from None
        folder = Path(table["COMPARE"])
        folder.mkdir(parents=True, exist_ok=True)
        runs = run_missing(methods, seed_list(table["SEEDS"]), tuple(extra), folder, say)
        path = compare_runs(runs, folder / "compare.html", target, bandwidth)
    say.print(f"comparison: {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
