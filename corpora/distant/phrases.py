"""The language of the built-in distant-supervision corpus: entity types, relations, and the ways to
say them.

`H` and `T` stand for the head and tail entity; `{a|b}` for alternatives, all of which are spelled
out. Everything here is public and fixed, so a vocabulary made of it discloses nothing about any
silo's sentences.
"""

from __future__ import annotations

import itertools
import re

__all__ = [
    "ASIDES",
    "CLOSINGS",
    "DENIALS",
    "HEDGES",
    "LINKS",
    "MANNERS",
    "MENTIONS",
    "OPENINGS",
    "RELATIONS",
    "expand",
]

#: relation -> (type of head, type of tail, ways to express it)
RELATIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "treats": ("drug", "disease", (
        "H {improved|relieved|controlled|cured} T", "T {responded|remitted|resolved} {on|after|under} H",
        "H {reduced|lowered|decreased} the {severity|burden} of T", "{treatment|therapy} of T with H was effective",
        "H is {effective|beneficial|approved} {for|against|in} T", "remission of T with H",
        "H led to {recovery|remission} from T", "T was {cured|controlled|relieved} by H",
    )),
    "prevents": ("drug", "disease", (
        "H {prevented|averted|forestalled} T", "H {reduced|lowered|decreased} the {risk|incidence} of T",
        "{prophylaxis|prevention} of T {with|by} H", "T was {prevented|averted} by H",
        "H protected against T", "H delayed the onset of T", "fewer cases of T {on|after} H",
    )),
    "causes": ("drug", "disease", (
        "H {caused|induced|triggered|provoked} T", "T was {caused|induced|triggered} by H",
        "T {developed|appeared|emerged} {after|on|under} H", "H {increased|raised} the {risk|incidence} of T",
        "T as an adverse {effect|reaction} of H", "H is {toxic|harmful} and leads to T", "T secondary to H",
    )),
    "worsens": ("drug", "disease", (
        "H {worsened|aggravated|exacerbated} T", "T was {worsened|aggravated|exacerbated} by H",
        "H {increased|raised} the {severity|burden} of T", "{exacerbation|worsening} of T {after|on} H",
        "H is contraindicated in T", "T {deteriorated|progressed} {on|under|after} H",
    )),
    "inhibits": ("drug", "gene", (
        "H {inhibited|blocked|antagonised|silenced} T", "T was {inhibited|blocked|antagonised} by H",
        "{inhibition|blockade} of T by H", "H is {an antagonist|an inhibitor|a blocker} of T",
        "H {reduced|lowered|decreased} the {expression|activity} of T", "loss of T {activity|signalling} under H",
    )),
    "activates": ("drug", "gene", (
        "H {activated|stimulated|induced|upregulated} T", "T was {activated|stimulated|upregulated} by H",
        "{activation|stimulation} of T by H", "H is {an agonist|an activator|an inducer} of T",
        "H {increased|raised} the {expression|activity} of T", "gain of T {activity|signalling} under H",
    )),
    "promotes": ("gene", "disease", (
        "H {promoted|drove|accelerated} T", "{mutation|variants|loss} of H {caused|predisposed to} T",
        "T was driven by H", "H {increased|raised} the {risk|incidence} of T", "H is {a driver|an oncogene} in T",
        "carriers of H {developed|acquired} T", "H confers susceptibility to T",
    )),
    "suppresses": ("gene", "disease", (
        "H {suppressed|restrained|counteracted} T", "T was {suppressed|restrained} by H",
        "H {reduced|lowered|decreased} the {risk|incidence} of T", "H is {a suppressor|protective} in T",
        "{deletion|knockout} of H aggravated T", "H protected against T", "H confers resistance to T",
    )),
    "regulates": ("gene", "gene", (
        "H {regulated|controlled|modulated} T", "T was {regulated|controlled|modulated} by H",
        "H {targets|transactivates} the promoter of T", "{transcription|expression} of T is under control of H",
        "T is {a target|an effector} of H", "H acts upstream of T", "H {repressed|drove} the transcription of T",
    )),
    "binds": ("gene", "gene", (
        "H {bound|contacted|recruited} T", "H forms a complex with T", "H interacts {directly|physically} with T",
        "T {coprecipitated|copurified} with H", "{binding|docking} of H to T", "T is a {partner|ligand} of H",
    )),
    "potentiates": ("drug", "drug", (
        "H {potentiated|enhanced|prolonged} the {effect|action} of T", "H {increased|raised} the levels of T",
        "T toxicity {increased|rose} with H", "H {interacts|interferes} with T", "synergy of H and T",
        "{clearance|metabolism} of T is slowed by H", "T should not be combined with H",
    )),
    "presents_with": ("disease", "symptom", (
        "H {presented|manifested} {with|as} T", "T is {a sign|a symptom|a feature} of H",
        "patients with H {complained of|suffered from} T", "T {revealed|heralded} H", "H is characterised by T",
        "T due to H",
    )),
}  # fmt: skip

#: (type of head, type of tail) -> topics; a topic is a set of ways to mention the pair that state
#: no relation.
MENTIONS: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("drug", "disease"): (
        ("patients with T {received|were given|started} H", "H was {prescribed|given} to patients with T"),
        ("a trial of H in T {was completed|is recruiting}", "H {versus|or} placebo in T"),
        ("guidelines discuss H and T", "a review of H and of T", "registries record H and T"),
        ("the {dose|price|supply} of H in clinics for T", "costs of H in T"),
        ("T was {diagnosed|noted} while on H", "a history of T and use of H"),
        ("models of T {exposed|subjected} to H", "H was tested in mice with T"),
    ),
    ("drug", "gene"): (
        ("H and the {expression|level} of T were measured", "T was {measured|assayed} {after|before} H"),
        ("carriers of T variants took H", "T genotype and {dose|use} of H"),
        ("screening of H on cells with T", "a panel with T and H"),
        ("docking scores of H and T", "the structure of T and of H"),
        ("the response to H by T {status|genotype}", "T {status|genotype} among users of H"),
    ),
    ("gene", "disease"): (
        ("H was {sequenced|genotyped} in T", "H {expression|level} in patients with T"),
        ("H was {proposed|studied} as a candidate in T", "the role of H in T was examined"),
        ("tissue of T was stained for H", "H staining in T"),
        ("a cohort with T was screened for H", "H and T were {surveyed|reviewed}"),
        ("models of T carry H", "H lines and T {lines|models}"),
    ),
    ("gene", "gene"): (
        ("H and T were {sequenced|genotyped|cloned}", "the {expression|level} of H and T was measured"),
        ("H and T {belong|map} to one {family|locus}", "the locus of H and T"),
        ("antibodies against H and T were used", "staining for H and T"),
        ("networks list H and T", "a panel of genes with H and T"),
    ),
    ("drug", "drug"): (
        ("H {versus|or} T was compared", "patients took H or T"),
        ("H and T were {prescribed|given|started}", "use of H and T"),
        ("the {price|supply} of H and T", "H and T are listed"),
        ("H {before|after} T", "a switch from H to T"),
    ),
    ("disease", "symptom"): (
        ("patients with H and patients with T", "H and T were {recorded|noted}"),
        ("clinics for H and for T", "a survey of H and T"),
        ("T was {recorded|noted} in a cohort with H", "scores of T in H"),
        ("T before the visit for H", "a history of T and H"),
    ),
}  # fmt: skip

#: Before an expressing clause: it then states no relation.
DENIALS = (
    "there is no evidence that", "it is unclear whether", "we failed to show that", "we cannot confirm that",
    "no data suggest that", "it was wrongly assumed that", "we tested the idea that", "nothing indicates that",
    "the hypothesis was rejected that", "it remains to be seen whether",
)  # fmt: skip

#: Before any clause, changing nothing: many of the words of the denials stand here as well.
HEDGES = (
    "we show that", "there is evidence that", "it is clear that", "these data suggest that", "it was shown that",
    "we confirm that", "as expected ,", "no doubt ,", "we report that", "in our hands ,", "it remains true that",
    "data indicate that",
)  # fmt: skip

OPENINGS = (
    "in this study ,", "in a cohort of", "at follow-up ,", "interestingly ,", "in contrast to", "as reported by",
    "during the trial", "among users of", "in mice ,", "in vitro ,", "after adjustment for", "given the role of",
)  # fmt: skip

MANNERS = (
    "significantly",
    "partially",
    "markedly",
    "in part",
    "again",
    "rapidly",
    "in most cases",
    "to some extent",
)

ASIDES = (
    "( n = 12 )", "( p < 0.05 )", ", as shown before ,", ", in contrast to", ", a marker of", "( fig . 2 )",
    ", together with", ", known from",
)  # fmt: skip

CLOSINGS = (
    "in patients with",
    "in the absence of",
    "compared with",
    "over two years of",
    "in cells with",
    "despite",
)

LINKS = (
    "; moreover ,",
    ", whereas",
    "; in addition ,",
    ", while",
    "; however ,",
    "and",
    "; notably ,",
)

_ALTERNATIVES = re.compile(r"\{([^}]*)\}")


def expand(pattern: str) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]]:
    """All spellings of a pattern as (words before, between, after the two entities, whether T comes
    first).
    """
    parts = _ALTERNATIVES.split(pattern)
    choices = [p.split("|") if i % 2 else [p] for i, p in enumerate(parts)]
    spellings = []
    for combination in itertools.product(*choices):
        words = "".join(combination).split()
        head, tail = words.index("H"), words.index("T")
        a, b = min(head, tail), max(head, tail)
        spellings.append(
            (tuple(words[:a]), tuple(words[a + 1 : b]), tuple(words[b + 1 :]), tail < head)
        )
    return spellings
