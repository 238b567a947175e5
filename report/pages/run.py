"""report.html: a run for people. Every figure is in one of the run's files; here they are added up,
and no more.
"""

from __future__ import annotations

from typing import Any

from report.absences import absences, absences_words
from report.files import RunFiles
from report.pages import bytes as run_bytes
from report.pages import privacy as run_privacy
from report.pages import silos as run_silos
from report.pages.audit import broken_words
from report.pages.charts import Chart, Series, draw, trend
from report.pages.elements import Html, data, details, node, page, section, table
from report.pages.glossary import glossary
from report.pages.words import (
    facts,
    heading,
    lead,
    plain,
    up_per_silo_round,
    warnings,
    which,
    why_infinite,
)
from report.units import duration, exact, human_bytes

__all__ = ["run_page"]


def run_page(run: RunFiles) -> str:
    s = run.summary
    parts = [
        _quality(run),
        run_bytes.traffic(run),
        run_bytes.seconds(run),
        run_privacy.left(run),
        run_silos.silos(run),
        *([run_bytes.plan(run)] if run.plan else []),
        _again(run),
    ]
    top = [_head(run), _answer(run), *_which(run)]
    words = node("div", glossary(Html("".join([*top, *parts]))), id="words")
    return page(f"{heading(run)}, seed {s['seed']}", *top, words, _contents(run), *parts)


def _head(run: RunFiles) -> Html:
    s = run.summary
    parts = [node("h1", heading(run)), node("p", lead(run), class_="lead")]
    parts += [
        node("p", node("strong", w), class_="warning", role="note")
        for w in [*broken_words(run.audit), *warnings(s)]
    ]
    return node("header", *parts, _documents())


def _which(run: RunFiles) -> list[Html]:
    """Which study it is. The answer comes first: it must be on the first screen."""
    if not (told := which(run)):
        return []
    pairs = [x for name, value in told for x in (node("dt", name), node("dd", value))]
    return [node("dl", *pairs, class_="facts", id="study")]


def _tile(name: str, value: Html, note: str, id_: str) -> Html:
    return node(
        "div",
        node("dt", name),
        node("dd", node("span", value, class_="big"), node("small", note)),
        id=id_,
    )


def _answer(run: RunFiles) -> Html:
    s = run.summary
    asked, came = (
        sum(len(r["participants"]) for r in run.rounds),
        sum(len(r["survivors"]) for r in run.rounds),
    )
    up, fedavg = up_per_silo_round(run), s.get("model_float32_bytes", 0)
    ratio = (
        f"{_times(up / fedavg)} the {human_bytes(fedavg)} of plain FedAvg in float32"
        if fedavg and up
        else ""
    )
    before = f"before the first round {s['before_value']:.4f}; " if "before_value" in s else ""
    before = f"with public text alone, {before}" if before and s.get("public") else before
    private = s["epsilon"] != "inf"
    away = absences_words(absences(run.events))
    tiles = [
        _tile(
            f"test {s['metric']}",
            data(s["value"], f"{s['value']:.4f}"),
            f"{before}this is the model of round {s['selected_round'] + 1}, chosen on dev ({s['dev_value']:.4f})",
            "answer-metric",
        ),
        _tile(
            "uploaded per silo and round",
            data(up, human_bytes(up)),
            ratio if run.on_the_wire else "the arrays alone; nothing crossed a wire",
            "answer-bytes",
        ),
        _tile(
            "epsilon",
            data(s["epsilon"], exact(s["epsilon"], "epsilon") if private else "infinite"),
            f"at delta {s['delta']:g}"
            if private
            else f"{why_infinite(s)}: not differentially private",
            "answer-epsilon",
        ),
        _tile(
            "survivors",
            data(came, f"{came} of {asked}"),
            f"answers that arrived; {asked - came} were lost"
            if came < asked
            else f"all answers arrived; {away or 'nobody was lost'}",
            "answer-survivors",
        ),
        _tile(
            "wall time",
            data(s["wall_seconds"], duration(s["wall_seconds"])),
            f"{s['peak_rss_mb']:.0f} MB of memory at most"
            if s["peak_rss_mb"]
            else "memory was not measured",
            "answer-wall",
        ),
    ]
    rows = [x for name, words in facts(run) for x in (node("dt", name), node("dd", words))]
    return node(
        "section",
        _words(run),
        node("dl", *tiles, class_="tiles"),
        node("dl", *rows, class_="facts", id="facts"),
        id="answer",
        aria_label="The answer",
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio >= 0.1 else f"{100 * ratio:.2g} % of"


def _words(run: RunFiles) -> Html:
    items = [
        node(
            "li",
            node("strong", name),
            " ",
            said,
            *([node("ul", *(node("li", x) for x in more))] if more else []),
        )
        for name, said, more in plain(run)
    ]
    return node("ul", *items, class_="plain", id="plain")


def _contents(run: RunFiles) -> Html:
    names = {
        "quality": "quality",
        "bytes": "bytes",
        "time": "time",
        "privacy": "what left a silo",
        "silos": "silos",
    }
    names |= {"plan": "plan and fact"} if run.plan else {}
    names |= {"again": "versions and hashes" if run.study is not None else "run it again"}
    links = [node("a", name, href=f"#{id_}") for id_, name in names.items()]
    return node("nav", *links, aria_label="Contents")


def _documents() -> Html:
    """The two documents that stand beside the report (study.papers)."""
    names = {"communication-cost": "Communication cost", "privacy-budget": "Privacy budget"}
    links = [node("a", name, href=f"{kind}.html") for kind, name in names.items()]
    return node("nav", *links, aria_label="The other documents", id="documents")


def _quality(run: RunFiles) -> Html:
    s, rounds = run.summary, run.rounds
    dev = [r["dev"] for r in rounds]
    series = [Series(f"dev {s['metric']}", dev)]
    if s["target"] is not None:
        series.append(Series("target", [s["target"]] * len(rounds), dashed=True, marks=False))
    target = ""
    if s["target"] is not None:
        reached = s["rounds_to_target"]
        target = f" The target of {s['target']:g} was " + (
            f"first reached in round {reached}."
            if reached
            else f"not reached in {s['rounds']} rounds."
        )
    parts = [
        draw(
            Chart(
                "metric-by-round",
                f"{s['metric']} on the development split, by round",
                trend("It went", dev) + target,
                "round",
                f"dev {s['metric']}",
                series,
                x=[str(r["round"] + 1) for r in rounds],
            )
        ),
    ]
    if run.curve["points"]:
        parts.append(
            draw(
                Chart(
                    "curve",
                    "Precision and recall on the test split",
                    f"From the most certain fact down, {len(run.curve['points'])} points; the area under it is "
                    f"{s['value']:.4f}."
                    if s["metric"] == "auc"
                    else "From the most certain fact down.",
                    "recall",
                    "precision",
                    [Series("test", [(p[0], p[1]) for p in run.curve["points"]], marks=False)],
                    x_max=1.0,
                    y_max=1.0,
                )
            )
        )
    if s["per_class"]:
        parts.append(_classes(s))
    if s["figures"]:
        rows = [(name, data(v, exact(v, "score"))) for name, v in s["figures"].items()]
        parts.append(
            details(
                "all figures on the test split",
                table(("figure", "value"), rows, "Test split", id_="figures"),
            )
        )
    return section("quality", "How good it is", *parts)


def _classes(s: dict[str, Any]) -> Html:
    classes = s["per_class"]
    best, worst = max(classes, key=classes.get), min(classes, key=classes.get)
    says = (
        f"Best is {best} with {classes[best]:.4f}, weakest {worst} with {classes[worst]:.4f}."
        if len(classes) > 1
        else f"The only class is {best} with {classes[best]:.4f}."
    )
    return draw(
        Chart(
            "per-class",
            "By class, on the test split",
            says,
            "class",
            "area under the curve" if s["metric"] == "auc" else "F1",
            [Series("test", list(classes.values()), kind="bar")],
            x=list(classes),
            lying=True,
            height=90 + 20 * len(classes),
        )
    )


def _again(run: RunFiles) -> Html:
    s, about = run.summary, run.config.get("run", {})
    rows = [(k, v) for k, v in about.items() if k != "command"]
    rows += [
        ("seed", str(s["seed"])),
        ("model sha256", s["model_sha256"]),
        ("corpus sha256", s["corpus_sha256"]),
    ]
    if run.study is not None:
        return section(
            "again",
            "Versions and hashes",
            node(
                "p",
                "A study is run once: two sums over the same rounds could reveal a silo. For another run, the "
                "consortium agrees on a study with another seed.",
            ),
            table(("", ""), rows, "Versions, seed and hashes", numbers=False, id_="versions"),
            details("config.toml", node("pre", run.config_text)),
        )
    return section(
        "again",
        "Run it again",
        node("pre", about.get("command", "")),
        node("p", "or, with everything that was settled by default written out,"),
        node("pre", f"sottovoce simulate --config {run.path}/config.toml"),
        node("p", "With the same seed and versions it ends with the same model, bit for bit."),
        table(("", ""), rows, "Versions, seed and hashes", numbers=False, id_="versions"),
        details("config.toml", node("pre", run.config_text)),
    )
