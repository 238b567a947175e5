"""The answer in plain words, and the facts beside it.

The page and report.md take their sentences from here, so that the two cannot say different things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.files import RunFiles
from report.pages.elements import NONE, Html, data, node
from report.pages.protection import sentences
from report.units import clock, exact, human_bytes

__all__ = [
    "facts",
    "heading",
    "lead",
    "plain",
    "rounds_with",
    "up_per_silo_round",
    "warnings",
    "which",
    "why_infinite",
]


_TASKS = {
    "distant": "finds relations between two entities, learnt by distant supervision,",
    "sentence": "finds relations in sentences",
    "document": "finds relations in documents",
    "ner": "finds named entities",
}
_RUNNERS = {
    "processes": "as separate processes that spoke over encrypted sockets",
    "inprocess": "in one process",
}


def heading(run: RunFiles) -> str:
    """A study has the title that the consortium gave it; a simulation is called by what it ran."""
    s = run.summary
    return str(run.study["title"]) if run.study else f"{s['method']} on {s['corpus']}"


def which(run: RunFiles) -> list[tuple[str, str]]:
    """Which study of which consortium it is, by whom, when: (what, value). Nothing of a simulation."""
    if (of := run.study) is None:
        return []
    times = [event.time for event in run.events if event.time]
    return [
        ("study", of["title"]),
        ("consortium", of["consortium"]),
        ("coordinator", of["coordinator"]),
        ("silos", ", ".join(of["silos"])),
        ("roster", f"version {of['roster_version']} ({of['roster_fingerprint']})"),
        ("began", clock(min(times)) if times else NONE),
        ("ended", clock(max(times)) if times else NONE),
        ("study hash", of["study_hash"]),
        ("program", f"sottovoce {of['program']}"),
    ]


def lead(run: RunFiles) -> str:
    """What was run. A reference is no federation, and nothing is said of it that only a federation
    can claim.
    """
    s = run.summary
    start = "In a simulation, a model" if run.partition is not None else "A model"
    silos = f"{s['silos']} silos" if s["silos"] != 1 else "1 silo"
    own, kept = (
        ("", "")
        if s["reference"]
        else (", each with data of its own,", "; the examples stayed where they were")
    )
    method = str(s.get("method_summary", s["method"])).rstrip(".")
    return (
        f"{start} that {_TASKS[s['task']]} was trained by {silos}{own} in {s['rounds']} rounds, "
        f"{_RUNNERS[s['runner']]}{kept}. The method: {method}."
    )


def warnings(s: Mapping[str, Any]) -> list[str]:
    """What must be read before any figure."""
    found = []
    if s.get("disagreement"):
        found.append(s["disagreement"])
    if s["reference"]:
        found.append(s["reference"])
    elif not s["masked"]:
        found.append(
            "NOTHING WAS MASKED. This run was made with SECAGG=off: the coordinator could read every silo's update. "
            "Such a run is a study, not a federation to put real data into."
        )
    if s.get("warning"):
        found.append(f"{s['warning'][0].upper()}{s['warning'][1:]}.")
    if s["runner"] == "inprocess":
        found.append(
            "Everything ran in one process: nothing crossed a network; bytes are those of the arrays as coded."
        )
    return found


def why_infinite(s: Mapping[str, Any]) -> str:
    """Of a run whose epsilon is infinite: noise or none, which is not the same thing to say."""
    if s.get("dp", "off") == "off":
        return "no noise was added"
    return "noise was added, but something else was released without any"


def up_per_silo_round(run: RunFiles) -> float:
    """Bytes that a silo sent in a round on average: on the wire where there was one, else the
    arrays as coded.
    """
    return float(
        run.summary["bytes_up_per_silo_round" if run.on_the_wire else "arrays_up_per_silo_round"]
    )


def plain(run: RunFiles) -> tuple[tuple[str, str, list[str]], ...]:
    """The answer for somebody who knows neither the method nor the field: name, sentence with its
    figure, and items.
    """
    return (
        ("How good it is.", _good(run.summary), []),
        ("What left a silo, and who could read it.", *_left(run)),
        ("Privacy budget.", _budget(run.summary), []),
        ("What is not protected.", _bare(run), []),
    )


def _good(s: Mapping[str, Any]) -> str:
    text = (
        f"On the test split, on which nobody trained, the model scores {s['value']:.4f} in "
        f"{_METRICS.get(s['metric'], s['metric'])}; 1 is perfect, 0 is worst."
    )
    if "before_value" in s:
        text += f" Before the first round{_publicly(s)} the same model scored {s['before_value']:.4f} there."
    return text


def _publicly(s: Mapping[str, Any]) -> str:
    """What a start from public text means for the figure before the first round."""
    return ", trained on public text alone," if s.get("public") else ""


def _left(run: RunFiles) -> tuple[str, list[str]]:
    if run.summary["reference"]:
        return (
            "This run is a reference and no federation: nothing was protected, and nothing had to be.",
            [],
        )
    by: dict[str, list[str]] = {}
    for d in run.disclosures["each_silo_sends"]:
        when = rounds_with(run, d["name"])
        when = (
            ""
            if when in (NONE, "all")
            else f"; in {'no round' if when == 'none' else f'{when} only'}"
        )
        by.setdefault(d["channel"], []).append(
            f"{d['name']} ({d['shape'].partition(':')[0]}{when})"
        )
    if not by:
        return "Nothing.", []
    sent = [f"{_CHANNELS[channel]}: {', '.join(things)}." for channel, things in by.items()]
    up = human_bytes(up_per_silo_round(run))
    return (
        f"No sentence, word or label. In a round a silo sent {up} on average, to the coordinator:",
        sent,
    )


def _budget(s: Mapping[str, Any]) -> str:
    if s["epsilon"] == "inf":
        return (
            f"No bound: {why_infinite(s)}, so epsilon is infinite. What is published, the model included, may tell "
            "something about single examples."
        )
    whose = "a whole silo" if s["dp"] == "silo" else "one record of a silo"
    of = f", of a budget of {s['epsilon_budget']:g}" if s.get("epsilon_budget") else ""
    return (
        f"Epsilon {exact(s['epsilon'], 'epsilon')} at delta {s['delta']:g}{of}: a bound on what all that was sent can "
        f"tell about {whose}; smaller is safer." + _second(s)
    )


def _second(s: Mapping[str, Any]) -> str:
    if not s.get("epsilon_opacus"):
        return ""
    return (
        f" Opacus's own accountant, asked at the end, has at most "
        f"{exact(s['epsilon_opacus'], 'epsilon')} for the same."
    )


def _bare(run: RunFiles) -> str:
    first, *more = sentences(run)
    return f"{first} " + (f"The list further down has {len(more)} more." if more else "")


_METRICS = {
    "auc": "area under the precision-recall curve (auc)",
    "f1": "F1, the balance of precision and recall",
    "micro_f1": "micro F1, the balance of precision and recall over all examples",
    "macro_f1": "macro F1, the balance of precision and recall averaged over classes",
}
_CHANNELS = {
    "masked": "Masked, so that only the sum over the silos can be read (its conditions are further down)",
    "sealed": "Sealed, so that the coordinator can read it and nobody else",
    "signed": "Signed, and seen by the coordinator and the silos of the sum",
    "clear": "Not masked, so that the coordinator can read each silo's",
}


def rounds_with(run: RunFiles, disclosure: str) -> str:
    """In which rounds anything of a disclosure was sent: a method may leave an exchange empty (a
    warm start).
    """
    # an exchange that a round passed over is not in its counts
    counts = [
        (r["round"] + 1, (r.get("numbers_sent") or {}).get(disclosure, 0)) for r in run.rounds
    ]
    if not all(r.get("numbers_sent") for r in run.rounds):  # a run of before this was counted
        return NONE
    with_any = [t for t, n in counts if n]
    if len(with_any) == len(counts):
        return "all"
    return _ranges(with_any) if with_any else "none"


def _ranges(numbers: Sequence[int]) -> str:
    """round 3; rounds 2 to 5; rounds 1, 4 to 6."""
    stretches: list[list[int]] = []
    for n in numbers:
        if stretches and n == stretches[-1][1] + 1:
            stretches[-1][1] = n
        else:
            stretches.append([n, n])
    words = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in stretches)
    return f"round {words}" if len(numbers) == 1 else f"rounds {words}"


def facts(run: RunFiles) -> list[tuple[str, Html]]:
    """What was trained and what it was judged on; only what the run's files have."""
    s, found = run.summary, []
    if s.get("citation"):
        found.append(("Method", node("span", s["citation"])))
    if s.get("network"):
        trained = s["parameters_trained"]
        of = "all trained" if trained == s["parameters"] else f"{trained:,} of them trained"
        words = node(
            "span",
            s["network"],
            ": ",
            data(s["parameters"], f"{s['parameters']:,}"),
            f" parameters, {of}",
        )
        found.append(("Model", words))
    if s.get("training"):
        said = [s["training"], *filter(None, [s.get("training_defaults")])]
        found.append(("Training", node("span", f"{'; '.join(said)}.")))
    if s.get("device"):
        # runs of before this was said have the setting alone
        how = s.get("computing") or f"PRECISION={s['precision']}"
        told = f"The coordinator computed on {s['device']}; {how}."
        found.append(("Computed", node("span", told)))
    if s.get("test_size"):
        pieces = [
            piece for k, n in s["test_size"].items() for piece in (", ", data(n, f"{n:,}"), f" {k}")
        ]
        found.append(("Test split", node("span", *pieces[1:])))
    if run.partition is not None:
        sizes = run.partition["sizes"]
        cut = f" examples, divided among {len(sizes)} silos ({run.partition['spec']})"
        found.append(("Training data", node("span", data(sum(sizes), f"{sum(sizes):,}"), cut)))
    if s.get("corpus_files"):
        found.append(("Files", node("span", f"{s['corpus_files']}.")))
    note = s["corpus_note"] or s["corpus"]
    compare = (
        "" if "synthetic" in note else " Compare with a paper only if it is that paper's corpus."
    )
    found.append(("Corpus", node("span", f"{note}.{compare}")))
    return found
