"""report.html and report.md: the run for people, in a browser and in a terminal.

Reads only the files of the run directory; adds up, no more. The page is made in bench/pages.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report.absences import absences, absences_words
from report.files import RunFiles, by_message, read_run
from report.pages.audit import HEAD as AUDIT_HEAD
from report.pages.audit import audit_rows, audit_words, broken_words
from report.pages.bytes import plan_rows, round_bytes, total_words
from report.pages.privacy import HEAD, disclosure_rows
from report.pages.protection import protection_rows, sentences, trust
from report.pages.run import run_page
from report.pages.silos import division
from report.pages.words import facts, heading, lead, plain, warnings, which, why_infinite
from report.units import clock, human_bytes, score

__all__ = ["write_report"]


def write_report(run: Path) -> Path:
    """Both files; returns the page's path."""
    files = read_run(run)
    (run / "report.md").write_text(_markdown(files), "utf-8")
    path = run / "report.html"
    path.write_text(run_page(files), "utf-8")
    return path


def _markdown(run: RunFiles) -> str:
    s = run.summary
    parts = [
        f"# {heading(run)}, {s['silos']} silos, seed {s['seed']}\n",
        "".join(f"- **{name}** {value}\n" for name, value in which(run)),
        *(f"> **{w}**\n" for w in [*broken_words(run.audit), *warnings(s)]),
        f"{lead(run)}\n",
        "".join(
            f"- **{name}** {said}\n" + "".join(f"  - {x}\n" for x in more)
            for name, said, more in plain(run)
        ),
        _answer(run),
        _rounds(run),
        _missed(run),
        _away(run),
        _bytes(run),
        _privacy(run),
        _partition(run.partition),
        _plan(run),
        _again(run),
    ]
    return "\n".join(p for p in parts if p)


def _answer(run: RunFiles) -> str:
    s = run.summary
    epsilon = (
        f"infinite ({why_infinite(s)})"
        if s["epsilon"] == "inf"
        else f"{s['epsilon']} at delta {s['delta']}"
    )
    figures = ", ".join(f"{k} {v:.4f}" for k, v in s["figures"].items())
    rows = [
        (
            f"test {s['metric']}",
            f"**{s['value']:.4f}** (model of round {s['selected_round'] + 1}, chosen on dev)",
        ),
        *(
            [
                (
                    "the same before the first round"
                    + ", with public text alone" * bool(s.get("public")),
                    f"{s['before_value']:.4f}",
                )
            ]
            if "before_value" in s
            else []
        ),
        ("other figures", figures or "none"),
        *_target(s),
        ("message per silo and round", _message(s)),
        ("epsilon", epsilon),
        ("wall time", f"{s['wall_seconds']:.1f} s"),
        (
            "peak memory",
            f"{s['peak_rss_mb']:.0f} MB, shared pages once" if s["peak_rss_mb"] else "not measured",
        ),
    ]
    rows += [
        (name.lower(), html.unescape(re.sub("<[^>]*>", "", words))) for name, words in facts(run)
    ]
    return _table(("", ""), rows)


def _target(s: dict[str, Any]) -> list[tuple[str, str]]:
    if s["target"] is None:
        return []
    reached = s["rounds_to_target"]
    text = f"round {reached}" if reached else f"not reached in {s['rounds']} rounds"
    return [(f"first round with dev {s['metric']} of {s['target']:g}", text)]


def _message(s: dict[str, Any]) -> str:
    up, down = (
        human_bytes(s["arrays_up_per_silo_round"]),
        human_bytes(s["arrays_down_per_silo_round"]),
    )
    return f"{up} up, {down} down (the arrays as coded, without framing and keys)"


def _rounds(run: RunFiles) -> str:
    rows = [
        (
            str(r["round"] + 1),
            f"{len(r['survivors'])} of {len(r['participants'])}",
            score(r["dev"]),
            f"{r['seconds']:.1f}",
            human_bytes(up),
            human_bytes(down),
        )
        for r, up, down in zip(run.rounds, round_bytes(run, "up"), round_bytes(run, "down"))
    ]
    head = (
        "round",
        "survivors",
        f"dev {run.summary['metric']}",
        "seconds",
        "all silos up",
        "all silos down",
    )
    return "## Rounds\n\n" + _table(head, rows)


def _away(run: RunFiles) -> str:
    """Every loss and return; nothing where nobody was ever lost."""
    lost = absences(run.events)
    if not lost:
        return ""
    rows = [
        (
            run.members.get(a.silo, a.silo),
            str(a.round + 1),
            clock(a.lost),
            clock(a.back) if a.back is not None else "did not come back",
        )
        for a in lost
    ]
    return "## Losses and returns\n\n" + _table(("silo", "round", "lost", "back"), rows)


def _missed(run: RunFiles) -> str:
    missed = run.summary["missed"]
    if not missed:
        away = absences_words(absences(run.events))
        said = f"All answers arrived; {away}." if away else "Nobody."
        return f"## Who dropped out\n\n{said}\n"
    rows = [
        (run.members.get(silo, silo), ", ".join(str(r + 1) for r in rounds))
        for silo, rounds in missed.items()
    ]
    return "## Who dropped out\n\n" + _table(("silo", "rounds it was asked for and missed"), rows)


def _bytes(run: RunFiles) -> str:
    rows = [(*key, f"{n}", human_bytes(p), human_bytes(w)) for key, (n, p, w) in by_message(run)]
    head = ("direction", "message", "channel", "messages", "payload", "on the wire")
    return f"## What it cost in bytes\n\n{total_words(run)}\n\n" + (
        _table(head, rows) if rows else ""
    )


def _privacy(run: RunFiles) -> str:
    s = run.summary
    text = "## What left each silo\n\n" + _table(HEAD, disclosure_rows(run))
    if said := trust(run):
        text += f"\n{said}\n"
    if s["epsilon"] == "inf":
        text += (
            f"\n**Epsilon is infinite** ({why_infinite(s)}): what is released (sums, sealed values, the final model) "
            "is not differentially private. Secure aggregation hides each silo's part of a sum; it does not hide what "
            "the sum itself tells.\n"
        )
    text += "\n" + _table(("what", "who could read it", "what protects it"), protection_rows(run))
    text += _audit(run)
    text += "\n## What is not protected\n\n" + "".join(f"- {x}\n" for x in sentences(run))
    return text


def _audit(run: RunFiles) -> str:
    first, *more = audit_words(run)
    parts = [first]
    if run.audit is not None and run.audit.bounds:
        parts.append(_table(AUDIT_HEAD, audit_rows(run.audit.bounds)).rstrip("\n"))
    return "\n## What attacks proved\n\n" + "\n\n".join([*parts, *more]) + "\n"


def _partition(p: dict[str, Any] | None) -> str:
    return "" if p is None else f"## Partition\n\n{division(p)}\n"


def _plan(run: RunFiles) -> str:
    rows = plan_rows(run)
    return (
        "## Plan and fact\n\n" + _table(("", "planned", "measured", "difference"), rows)
        if rows
        else ""
    )


def _again(run: RunFiles) -> str:
    s, about = run.summary, run.config.get("run", {})
    versions = ", ".join(f"{k} {v}" for k, v in about.items() if k != "command")
    again = (
        "## Versions and hashes\n\nA study is run once; another run needs another seed.\n\n"
        if run.study is not None
        else f"## Run it again\n\n`{about.get('command', '')}`, or "
        f"`sottovoce simulate --config {run.path}/config.toml`.\n\n"
    )
    return again + (
        f"Model sha256 `{s['model_sha256']}`, corpus sha256 `{s['corpus_sha256']}`. {versions}.\n"
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return (
        "\n".join(
            lines + ["| " + " | ".join(c.replace("|", "\\|") for c in r) + " |" for r in rows]
        )
        + "\n"
    )
