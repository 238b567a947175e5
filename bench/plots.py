"""Pictures of a run, as SVG files beside its report. Drawn from the run's files and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from coordinator.runlog import read_lines

__all__ = ["draw"]


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
    return pictures
