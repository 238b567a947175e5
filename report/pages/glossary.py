"""The words of a report that a new reader may not know, in plain ones."""

from __future__ import annotations

import re

from report.pages.elements import Html, details, node

__all__ = ["glossary"]


def glossary(page: Html) -> Html:
    """The words of this page that need explaining, and no others."""
    seen = re.sub(r"<script.*?</script>|<[^>]*>", " ", page, flags=re.DOTALL)
    found = [
        (term, words)
        for term, pattern, words in _WORDS
        if re.search(rf"(?<!\w)(?:{pattern})(?!\w)", seen)
    ]
    items = [x for term, words in found for x in (node("dt", term), node("dd", words))]
    return details(
        f"{len(found)} words of this page explained", node("dl", *items, class_="words-explained")
    )


#: (as shown, as it occurs, in plain words). In the order in which somebody new would ask.
_WORDS: tuple[tuple[str, str, str], ...] = (
    ("silo", "silos?", "One holder of data: a hospital, a registry, a company."),
    (
        "coordinator",
        "coordinator",
        "The program that leads the rounds and combines what silos send.",
    ),
    (
        "round",
        "rounds?",
        "The coordinator sends the model, silos train on their own data and answer, the answers are "
        "combined into the next model.",
    ),
    ("survivor", "survivors?|survived", "A silo whose answer arrived before the round was closed."),
    (
        "masked",
        "[Mm]asked",
        "Hidden under random numbers that cancel out when all silos' answers are added.",
    ),
    ("sealed", "[Ss]ealed", "Encrypted on the way to the coordinator, which can read it."),
    (
        "secure aggregation",
        "[Ss]ecure aggregation|secure sums?",
        "Adding up masked answers so that only the sum shows.",
    ),
    (
        "dev, development split",
        "dev|development split",
        "Examples set aside to choose the best round. Nobody trains on them.",
    ),
    (
        "test split",
        "test split|Test split",
        "Examples set aside for the final figures. Nothing is chosen by them.",
    ),
    ("parameters", "parameters?", "The numbers that a model consists of. Training changes them."),
    (
        "encoder",
        "encoder",
        "A language model that turns text into numbers; the rest of the model reads those.",
    ),
    (
        "PCNN",
        "PCNN",
        "A small network that reads a sentence in three pieces: before, between and after two entities.",
    ),
    (
        "distant supervision",
        "distant supervision",
        "Sentences are labelled by looking their two entities up in a list of "
        "known facts, not by reading. Some labels are wrong.",
    ),
    ("bag", "bags?", "All sentences with the same two entities and the same relation."),
    (
        "blinded",
        "blinded",
        "Multiplied by a secret number, so that nobody else can tell what it was.",
    ),
    ("fact", "facts?", "Two entities and the relation between them."),
    ("NA", "NA", "The class of pairs that have no relation."),
    ("precision", "[Pp]recision", "Of what the model reports, the share that is right."),
    ("recall", "[Rr]ecall", "Of what there is to find, the share that the model reports."),
    ("F1", "F1|f1", "One figure for precision and recall: high only if both are."),
    (
        "micro F1",
        "micro[ _][Ff]1",
        "F1 over all examples together, so that frequent classes count most.",
    ),
    (
        "macro F1",
        "macro[ _][Ff]1",
        "The mean of the classes' F1, so that rare classes count as much as frequent ones.",
    ),
    (
        "intra_f1, inter_f1",
        "int(?:ra|er)_f1",
        "F1 of relations within one sentence, and across sentences.",
    ),
    ("ign_f1", "ign_f1", "F1 without the facts that were in the training data too."),
    (
        "best_f1",
        "best_f1",
        "F1 where the model's cut is moved to the threshold that is best on the development split.",
    ),
    (
        "accuracy",
        "accuracy",
        "The share of examples with the right answer, the class of no relation included.",
    ),
    (
        "auc",
        "auc|auc_all",
        "Area under the curve of precision over recall: all candidate facts are sorted from the most "
        "to the least certain. auc_all counts the whole list.",
    ),
    (
        "p@100, p@mean",
        r"p@\d+|p@mean",
        "Precision among the 100 facts that the model is most certain of (likewise 200, 300); p@mean is their mean.",
    ),
    (
        "best_f1",
        "best_f1",
        "The best balance of precision and recall (F1) at any place of that sorted list.",
    ),
    (
        "epsilon",
        "[Ee]psilon",
        "A bound on what anybody can learn about one record (or silo) from all that was released. "
        "Smaller is safer; infinite means no bound.",
    ),
    ("delta", "delta", "The small chance with which epsilon's bound may fail."),
    (
        "DP-SGD",
        "DP-SGD",
        "Training in which each record's influence is clipped and noise is added.",
    ),
    (
        "FedAvg",
        "FedAvg",
        "The plainest method: each silo sends its whole trained model. Here a yardstick for bytes.",
    ),
    ("float32", "float32", "A number kept in four bytes."),
    ("kB, MB", "kB|MB|GB", "1,000 bytes, 1,000,000 bytes."),
    ("iid", "iid", "Examples were dealt to silos at random."),
    (
        "dirichlet",
        r"dirichlet(?::[\d.]+)?",
        "Examples were dealt so that silos differ in their classes; a small number after it means they differ much.",
    ),
    (
        "public set, public sentence",
        "public set|public sentences?",
        "Sentences that everybody has and may read.",
    ),
    ("PGR", "PGR", "A corpus of sentences about genes and human phenotypes (Sousa et al. 2019)."),
    (
        "sha256",
        "sha256",
        "A fingerprint of content: two runs with the same one had the same content.",
    ),
)
