"""docs/quickstart.ipynb in a fresh kernel: every cell runs, in order, and shows what its words
promise.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import sottovoce
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"


def _shown(cell: Any, kind: str) -> str:
    """All that a cell showed of this kind: "stream", or a MIME type."""
    found = []
    for output in cell.outputs:
        if kind == "stream" == output.output_type and output.name == "stdout":
            found.append(output.text)
        found += [output.data[kind]] if kind in output.get("data", {}) else []
    return "".join(found)


def test_it_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert 8 <= len(code) <= 12
    assert all(not c.outputs and c.execution_count is None for c in code)


@pytest.mark.timeout(280)
def test_every_cell_runs_and_shows_its_figures(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    first, rounds, plot, traffic, used, encoder, plan, compared, private = (
        c for c in notebook.cells if c.cell_type == "code"
    )
    said = _shown(first, "stream")
    assert "\nround 4/4: dev micro_f1" in said and "\nreport: runs/" in said
    assert "\x1b" not in said  # lines, no moving bar: a notebook would keep each of its pictures
    assert "test micro_f1" in _shown(first, "text/html")
    for table in (rounds, traffic):
        assert "<table" in _shown(table, "text/html")
    assert len(_shown(plot, "image/png")) > 5_000
    assert "upload" in _shown(traffic, "text/plain")
    assert _shown(used, "text/plain").startswith("(")
    assert _shown(encoder, "text/plain").startswith("torch.Size([1, ")
    assert "FedED would send" in _shown(plan, "stream")
    assert "runs/compare.html" in _shown(compared, "stream")
    assert (tmp_path / "runs" / "compare.html").stat().st_size > 10_000
    assert "silo-003" in _shown(private, "text/plain")
    runs = [sottovoce.load_run(p) for p in (tmp_path / "runs").glob("2*")]
    assert len(runs) == 3 and all(r.finished for r in runs)
    budgets = [r.summary["epsilon"] for r in runs]
    assert sorted(e == "inf" for e in budgets) == [False, True, True]
    assert 0 < min(e for e in budgets if e != "inf") <= 8
