"""Pictures of a run, as SVG files beside its report. Drawn from the run's files and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coordinator.runlog import read_lines

__all__ = ["draw", "draw_rounds"]


def draw(run: Path) -> dict[str, str]:
    """File name -> caption of every picture that this run has material for."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sottovoce"  # the same run gives the same file
    from matplotlib import pyplot

    pictures: dict[str, str] = {}
    rounds = read_lines(run / "rounds.jsonl")
    curve = json.loads((run / "curve.json").read_text("utf-8"))
    if len(rounds) > 1:
        figure, axes = pyplot.subplots(figsize=(6, 3), layout="constrained")
        axes.plot([r["round"] + 1 for r in rounds], [r["dev"] for r in rounds], marker="o", markersize=3)
        axes.set(xlabel="round", ylabel=f"dev {curve['metric']}", ylim=(0, None))
        axes.grid(alpha=0.3)
        pictures["rounds.svg"] = f"{curve['metric']} on the development split by round"
        figure.savefig(run / "rounds.svg", metadata={"Date": None})
        pyplot.close(figure)
    if curve["points"]:
        recall, precision = zip(*curve["points"])
        figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
        axes.plot(recall, precision, linewidth=1)
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
        axes.grid(alpha=0.3)
        pictures["curve.svg"] = "precision and recall on the test split, from the most certain fact down"
        figure.savefig(run / "curve.svg", metadata={"Date": None})
        pyplot.close(figure)
    partition = run / "partition.json"
    if partition.is_file():
        p = json.loads(partition.read_text("utf-8"))
        _partition(p, run / "partition.svg", pyplot)
        pictures["partition.svg"] = "which silo holds how many examples of which class"
        if "histogram" in p:
            _histograms(p["histogram"], run / "histogram.svg", pyplot)
            pictures["histogram.svg"] = f"{p['histogram']['of']} of each silo's examples"
    return pictures


def _partition(p: dict[str, Any], path: Path, pyplot: Any) -> None:
    """Silo by class, darker is more; counts are written where there is room for them."""
    from matplotlib.colors import SymLogNorm

    counts, labels = p["label_counts"], p["labels"]
    silos, classes = len(counts), len(labels)
    most = max(map(max, counts), default=0)
    size = (min(2.2 + 0.5 * classes, 14), min(1.6 + 0.24 * silos, 14))
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    image = axes.imshow(counts, aspect="auto", cmap="Blues", norm=SymLogNorm(1.0, vmin=0, vmax=max(most, 1)))
    axes.set(xlabel="class", ylabel="silo")
    axes.set_xticks(range(classes), labels, rotation=45, ha="right", fontsize=7)
    step = max(1, silos // 25)
    axes.set_yticks(range(0, silos, step), [f"{i:03d}" for i in range(0, silos, step)], fontsize=7)
    if silos * classes <= 300:
        for i, row in enumerate(counts):
            for c, n in enumerate(row):
                if n:
                    axes.text(c, i, n, ha="center", va="center", fontsize=6, color="w" if 4 * n > most else "k")
    figure.colorbar(image, ax=axes, label="examples")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _histograms(h: dict[str, Any], path: Path, pyplot: Any) -> None:
    """A small histogram per silo, one above the other over the same axis; of many silos the first forty."""
    counts, edges = h["counts"][:40], h["edges"]
    figure, axes = pyplot.subplots(
        len(counts), 1, figsize=(6, 0.8 + 0.45 * len(counts)), sharex=True, layout="constrained", squeeze=False
    )
    for silo, (one, row) in enumerate(zip(axes[:, 0], counts)):
        one.stairs(row, edges, fill=True)
        one.set_ylabel(f"{silo:03d}\n({sum(row)})", rotation=0, ha="right", va="center", fontsize=6)
        one.set_yticks([])
    axes[-1, 0].set_xlabel(h["of"])
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_rounds(path: Path, panels: Mapping[str, Mapping[str, Sequence[float]]], metric: str) -> None:
    """One panel beside another, a line per name, by round from 1."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sottovoce"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.2 * len(panels), 3.2), sharey=True, layout="constrained", squeeze=False
    )
    for one, (title, rows) in zip(axes[0], panels.items()):
        for name, values in rows.items():
            one.plot(range(1, len(values) + 1), values, marker="o", markersize=2, linewidth=1, label=name)
        one.set(title=title, xlabel="round")
        one.grid(alpha=0.3)
        one.legend(fontsize=7)
    axes[0][0].set(ylabel=metric, ylim=(0, None))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
