"""`sottovoce export RUN`: a run's logs as CSV or Parquet tables, or as a run of TensorBoard or
MLflow.

A table is a file of the run, a row is a line of it: nothing is computed. Nested tables become
columns with a dot in their name, lists become JSON. TensorBoard and MLflow get the rounds as curves
and the summary as figures; both packages are optional (`pip install 'sottovoce[tensorboard]'`,
`'sottovoce[mlflow]'`).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from config.errors import UserError
from report.event_file import to_line
from report.files import RunFiles, read_run

__all__ = [
    "export_csv",
    "export_mlflow",
    "export_parquet",
    "export_tensorboard",
    "run_export",
    "tables",
]

Row = dict[str, Any]


def tables(run: RunFiles) -> dict[str, list[Row]]:
    """Every log of the run, flat."""
    found: dict[str, list[Row]] = {
        "summary": [run.summary],
        "rounds": run.rounds,
        "traffic": run.traffic,
        "privacy": run.privacy,
        "events": [to_line(event) for event in run.events],
        "disclosures": run.disclosures["each_silo_sends"],
        "curve": [{"recall": x, "precision": y} for x, y in run.curve["points"]],
        "settings": [
            {k: v for k, v in run.config.items() if k != "run"} | {"run": run.config.get("run", {})}
        ],
    }
    if run.partition is not None:
        p = run.partition
        found["partition"] = [
            {"silo": f"silo-{i:03d}", "size": size, "labels": dict(zip(p["labels"], counts))}
            for i, (size, counts) in enumerate(zip(p["sizes"], p["label_counts"]))
        ]
    if run.plan is not None:
        found["plan"] = [{k: v for k, v in run.plan.items() if k not in ("by_silo", "by_round")}]
    return {name: [_flat(row) for row in rows] for name, rows in found.items()}


def _flat(row: Mapping[str, Any], before: str = "") -> Row:
    out: Row = {}
    for key, value in row.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            out |= _flat(value, name + ".")
        elif isinstance(value, list):
            out[name] = json.dumps(value, ensure_ascii=False)
        else:
            out[name] = value
    return out


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def export_csv(run: RunFiles, folder: Path) -> list[Path]:
    def write(path: Path, rows: Sequence[Row]) -> None:
        with path.open("w", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, _columns(rows))
            writer.writeheader()
            writer.writerows(rows)

    return _each(run, folder, "csv", write)


def export_parquet(run: RunFiles, folder: Path) -> list[Path]:
    import pyarrow
    import pyarrow.parquet

    def write(path: Path, rows: Sequence[Row]) -> None:
        columns = {name: _typed([row.get(name) for row in rows]) for name in _columns(rows)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)

    return _each(run, folder, "parquet", write)


def _typed(values: list[Any]) -> list[Any]:
    """A column of one type: "inf" among numbers is the number; numbers among words are words."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    words = {v for v in values if isinstance(v, str)}
    if words and words <= {"inf"}:
        return [math.inf if v == "inf" else v if v is None else float(v) for v in values]
    if words and (numbers or any(isinstance(v, bool) for v in values)):
        return [v if v is None else str(v) for v in values]
    if any(isinstance(v, float) for v in numbers):
        return [v if v is None else float(v) for v in values]
    return values


def _each(
    run: RunFiles, folder: Path, suffix: str, write: Callable[[Path, Sequence[Row]], None]
) -> list[Path]:
    made = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in tables(run).items():
            if rows:  # a log without a line has no columns either
                made.append(folder / f"{name}.{suffix}")
                write(made[-1], rows)
    except OSError as e:
        raise UserError(f'"{folder}" cannot be written ({e.strerror}).') from None
    return made


# Other people's tools
# --------------------------------------------------------------------------------------------


def _curves(run: RunFiles) -> Iterator[tuple[int, str, float]]:
    """(round from one, name, value) of everything that a round has a number of."""
    for line in run.rounds:
        for name, value in _flat(line).items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name != "round":
                yield line["round"] + 1, name, float(value)
    spent: dict[int, float] = {}
    for line in run.privacy:
        epsilon = float(line["epsilon_after"])
        spent[line["round"]] = max(spent.get(line["round"], 0.0), epsilon)
    for round, epsilon in sorted(spent.items()):
        yield round + 1, "epsilon", epsilon


def _figures(run: RunFiles) -> dict[str, float]:
    flat = _flat({k: v for k, v in run.summary.items() if k not in ("missed", "epsilon_by_silo")})
    taken = {
        k: float(v)
        for k, v in flat.items()
        if isinstance(v, int | float) and not isinstance(v, bool)
    }
    return taken | {k: math.inf for k in ("epsilon", "epsilon_rdp") if flat.get(k) == "inf"}


def _settings(run: RunFiles) -> dict[str, str]:
    return {k: str(v) for k, v in _flat(run.config).items()}


def export_tensorboard(run: RunFiles, folder: Path) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "TensorBoard is not installed; pip install 'sottovoce[tensorboard]' adds it."
        ) from None
    began = run.events[0].time if run.events else None
    with SummaryWriter(str(folder)) as writer:
        for step, name, value in _curves(run):
            writer.add_scalar(name.replace(".", "/"), value, step, walltime=began)
        for name, value in _figures(run).items():
            writer.add_scalar(
                f"summary/{name.replace('.', '/')}", value, len(run.rounds), walltime=began
            )
        # four spaces: shown as it is
        text = "\n".join(f"    {k} = {v}" for k, v in _settings(run).items())
        writer.add_text("settings", text, walltime=began)


def export_mlflow(run: RunFiles, uri: str) -> str:
    """A new run in the store at `uri`; returns its id."""
    try:
        import mlflow
    except ImportError:
        raise UserError(
            "MLflow is not installed; pip install 'sottovoce[mlflow]' adds it."
        ) from None
    if ":" not in uri:
        raise UserError(
            f'--mlflow takes the URI of a store, such as http://127.0.0.1:5000, not "{uri}".'
        )
    try:
        return _to_mlflow(run, mlflow.MlflowClient(tracking_uri=uri))
    except mlflow.exceptions.MlflowException as e:
        raise UserError(f"MLflow did not take the run: {str(e).partition('. ')[0]}.") from None


def _to_mlflow(run: RunFiles, client: Any) -> str:
    from mlflow.entities import Metric, Param, RunTag

    experiment = client.get_experiment_by_name("sottovoce")
    number = (
        experiment.experiment_id
        if experiment is not None
        else client.create_experiment("sottovoce")
    )
    began = int(1000 * run.events[0].time) if run.events else 0
    ended = int(1000 * run.events[-1].time) if run.events else 0
    made = client.create_run(number, start_time=began, run_name=run.path.resolve().name).info.run_id
    curves = [Metric(_word(n), v, began, step) for step, n, v in _curves(run) if math.isfinite(v)]
    figures = [
        Metric(f"summary.{_word(n)}", v, ended, 0)
        for n, v in _figures(run).items()
        if math.isfinite(v)
    ]
    params = [Param(_word(k), v[:6000]) for k, v in _settings(run).items()]
    for at in range(0, len(curves) + len(figures), 900):  # a server takes a thousand at once
        client.log_batch(made, metrics=[*curves, *figures][at : at + 900])
    for at in range(0, len(params), 90):
        client.log_batch(made, params=params[at : at + 90])
    tags = [
        RunTag("epsilon", str(run.summary["epsilon"])),
        RunTag("masked", str(run.summary["masked"])),
    ]
    client.log_batch(made, tags=tags)
    client.set_terminated(made, end_time=ended)
    return str(made)


def _word(name: str) -> str:
    """A name as MLflow allows it."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)


def run_export(
    run: Path, csv_: str, parquet: str, tensorboard: str, mlflow: str, console: Console
) -> int:
    if not (csv_ or parquet or tensorboard or mlflow):
        raise UserError(
            "Say where to: --csv FOLDER, --parquet FOLDER, --tensorboard FOLDER or --mlflow URI."
        )
    files = read_run(run)
    for folder, write in ((csv_, export_csv), (parquet, export_parquet)):
        if folder:
            made = write(files, Path(folder))
            console.print(f"{len(made)} tables: {folder}", highlight=False, soft_wrap=True)
    if tensorboard:
        export_tensorboard(files, Path(tensorboard))
        console.print(f"TensorBoard: {tensorboard}", highlight=False, soft_wrap=True)
    if mlflow:
        console.print(
            f"MLflow run {export_mlflow(files, mlflow)}: {mlflow}", highlight=False, soft_wrap=True
        )
    return 0
