"""The picture of convergence beside `make table`'s page, as SVG. A run's own pictures are in its
page, bench/pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["draw_rounds"]


def draw_rounds(
    path: Path, panels: Mapping[str, Mapping[str, Sequence[float]]], metric: str
) -> None:
    """One panel beside another, a line per name, by round from 1."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sottovoce"  # the same figures give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1,
        len(panels),
        figsize=(4.2 * len(panels), 3.2),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    for one, (title, rows) in zip(axes[0], panels.items()):
        for name, values in rows.items():
            one.plot(
                range(1, len(values) + 1), values, marker="o", markersize=2, linewidth=1, label=name
            )
        one.set(title=title, xlabel="round")
        one.xaxis.get_major_locator().set_params(integer=True)
        one.grid(alpha=0.3)
        one.legend(fontsize=7)
    axes[0][0].set(ylabel=metric, ylim=(0, None))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
