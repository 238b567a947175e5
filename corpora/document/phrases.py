"""The language of the built-in documents: how case letters, abstracts and case series tell what a
drug did.

`H` stands for the drug and `T` for the problem, `{a|b}` for alternatives. A sentence with both
states a relation, denies it, or merely mentions the two; a sentence with one of them sets the scene
for the next, or refers back ("the next day", "this drug") without naming anything. Everything here
is public and fixed.
"""

from __future__ import annotations

__all__ = [
    "BACK_NO",
    "BACK_YES",
    "DENIED",
    "FILLERS",
    "GIVEN",
    "LISTED",
    "ONE_SIDED",
    "OTHER",
    "QUALIFIERS",
    "STATED",
    "TITLES",
    "names_of",
]

#: kind of document -> how a caused problem is stated within one sentence. Kinds share some wordings
#: and not others.
STATED: dict[str, tuple[str, ...]] = {
    "letter": (
        "H {caused|induced|triggered|provoked} T", "T {secondary|due} to H", "H {led to|gave rise to|produced} T",
        "{had|reported} T {while|when} on H", "T was {attributed|ascribed} to H", "T as a side effect of H",
        "H , which {caused|brought on} T",
    ),
    "abstract": (
        "H {induced|provoked} T in {rats|these patients|this model}", "T {developed|appeared} {after|following} H",
        "H was {complicated|followed} by T", "T was {related|attributed} to H", "T following {prolonged|high dose} H",
        "the {incidence|risk} of T was {raised|increased} by H", "H {increased|prolonged} T in {rats|volunteers}",
    ),
    "series": (
        "T {began|appeared|recurred} {on|after} {rechallenge with|a second dose of} H", "T {after|from} H in two cases",
        "T , in which H was {implicated|suspected}", "H was held to be the cause of T",
        "a {complication|toxicity} of H was T",
        "T {emerged|occurred} in those {given|exposed to} H",
    ),
}  # fmt: skip

#: relation -> sentences with a drug and a problem that state it; "other" is none that is ever asked
#: for.
OTHER: dict[str, tuple[str, ...]] = {
    "treats": (
        "H was {given|started|prescribed} for T", "T was {treated|managed} with H", "{started|placed} on H for T",
        "H is the {usual|standard} treatment of T",
    ),
    "relieves": (
        "H {relieved|improved|cleared} T", "T {improved|resolved|subsided} {after|following|on} H",
        "H {reduced|prevented|reversed} T in {rats|this model}", "the {incidence|risk} of T was {lowered|reduced} by H",
    ),
    "other": (
        "H was {held|stopped|avoided} because of T", "T did not {respond|improve} on H", "T was unchanged on H",
    ),
}  # fmt: skip

#: Before a statement: it then states nothing.
DENIED: tuple[str, ...] = (
    "there is no evidence that", "it is unlikely that", "nothing suggests that", "it was questioned whether",
    "we could not confirm that",
)  # fmt: skip

#: Both are mentioned, nothing is said of how they are related.
LISTED: tuple[str, ...] = (
    "H and T were {discussed|reviewed}", "history of T and {prior|previous} H", "continues H ; T unchanged",
    "H at home , T {noted|listed} in the chart", "{questions|data} about H and T were {collected|reviewed}",
)  # fmt: skip

#: A drug is given. What follows may refer to it.
GIVEN: tuple[str, ...] = (
    "the patient was {started|placed|begun} on H",
    "H was {given|administered|infused} {by mouth|twice daily|overnight}",
    "a {single|second} dose of H was {given|taken}", "{rats|volunteers|two patients} received H",
    "treatment with H was {begun|resumed}",
)  # fmt: skip

#: The next sentence, of a problem alone: the drug just named caused it.
BACK_YES: tuple[str, ...] = (
    "{the next day|within hours|soon after that} T {developed|appeared|began}",
    "T {developed|appeared} {shortly afterwards|during the infusion}", "this was {complicated|followed} by T",
    "on this drug T {emerged|occurred}", "T was the {result|consequence}",
)  # fmt: skip

#: The next sentence, of a problem alone: it has another reason, or was there before.
BACK_NO: tuple[str, ...] = (
    "T had been {present|known} {for years|since childhood}", "T was {present|noted} before that",
    "{the next day|within hours|soon after that} T {resolved|subsided|cleared}",
    "T was {ruled out|excluded} afterwards",
    "T {improved|subsided} {shortly afterwards|during the infusion}", "on this drug T {resolved|did not occur}",
)  # fmt: skip

#: One entity and nothing else: more mentions.
ONE_SIDED: dict[str, tuple[str, ...]] = {
    "drug": ("H is widely used", "levels of H were {measured|normal}", "the dose of H was {doubled|halved|unchanged}"),
    "problem": ("T is {common|rare} in the old", "the course of T was {mild|severe}", "T was {graded|scored} weekly"),
}  # fmt: skip

TITLES: dict[str, tuple[str, ...]] = {
    "letter": ("letter on H and T", "T and H : a note", "a question about H"),
    "abstract": ("effect of H on T in {rats|volunteers}", "H and T", "a study of H"),
    "series": ("{two|three} cases of T", "H , T and others : a case series", "T revisited"),
}  # fmt: skip

FILLERS: tuple[str, ...] = (
    "the family was informed", "vital signs were stable", "no other drug was given", "follow up was {short|long}",
    "blood was drawn every morning", "the mechanism remains {unclear|unknown}", "all animals survived",
    "he was discharged home", "she remained well", "further studies are {needed|under way}",
)  # fmt: skip

#: A qualified problem is a concept below the plain one: "acute renal failure" is a renal failure.
QUALIFIERS: tuple[str, ...] = (
    "acute",
    "chronic",
    "severe",
    "recurrent",
    "diffuse",
    "bilateral",
    "progressive",
)


def names_of(words: str) -> tuple[str, str]:
    """A concept's name and its abbreviation: initials of several words, the first letters of a
    single one.
    """
    parts = words.split()
    return words, "".join(w[0] for w in parts) if len(parts) > 1 else words[:4]
