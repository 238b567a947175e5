"""What the examples of docs/data.md hold, section by section."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    task: str
    sizes: tuple[int, int, int]  #: train, dev, test
    labels: tuple[str, ...]
    said: object  #: what the test split says, in the words of `_said`
    note: str  #: a part of what a report would say


SENTENCES = {
    "Our own JSON lines": Expected(
        "sentence",
        (4, 1, 1),
        ("None", "causes", "eases"),
        [("pelutin", "causes", "Nausea")],
        "read as jsonl",
    ),
    "Blinded TSV": Expected(
        "sentence",
        (2, 1, 1),
        ("false", "true"),
        [("@GENE$", "true", "@DISEASE$")],
        "read as blinded",
    ),
    "ChemProt as JSON lines": Expected(
        "sentence",
        (2, 1, 1),
        ("CPR:3", "CPR:4", "CPR:9"),
        [("Pelutin", "CPR:3", "DEF2")],
        "read as chemprot",
    ),
    "ChemProt as BioCreative has it": Expected(
        "sentence",
        (2, 1, 1),
        ("CPR:3", "CPR:4"),
        [("Pelutin", "CPR:3", "ABC1")],
        "skipped: 1 relations across sentences",
    ),
    "PGR": Expected(
        "sentence",
        (4, 1, 2),
        ("false", "true"),
        [("@GENE$", "true", "@DISEASE$"), ("@GENE$", "false", "@DISEASE$")],
        "1 training examples left out whose sentences stand in the test file",
    ),
    "DDI": Expected(
        "sentence",
        (2, 1, 1),
        ("None", "advise", "effect", "mechanism"),
        [("ardimor", "effect", "pelutin")],
        "read as ddi",
    ),
    "i2b2 2010": Expected(
        "sentence",
        (2, 1, 1),
        ("TeRP", "TrAP", "TrIP", "TrWP"),
        [("pelutin", "TrAP", "nausea")],
        "examples without a relation left out",
    ),
    "SemEval 2010": Expected(
        "sentence",
        (2, 1, 1),
        ("Other", "Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)"),
        [("rain", "Cause-Effect(e1,e2)", "mud")],
        "read as semeval",
    ),
    "TACRED": Expected(
        "sentence",
        (2, 1, 1),
        ("no_relation", "per:city_of_birth"),
        [("Jan Vos", "per:city_of_birth", "Tarn")],
        '"no_relation" is taken to say that there is none',
    ),
    "Supervised OpenNRE": Expected(
        "sentence",
        (2, 1, 1),
        ("place of birth", "residence"),
        [("Jan Vos", "place of birth", "Tarn")],
        "read as opennre",
    ),
    "Texts with marks": Expected(
        "sentence",
        (2, 1, 1),
        ("causes", "eases"),
        [("pelutin", "causes", "Nausea")],
        "read as marked",
    ),
    "Tables": Expected(
        "sentence",
        (2, 1, 1),
        ("None", "causes", "eases"),
        [("pelutin", "causes", "Nausea")],
        "skipped: 1 rows whose entities stand nowhere in the text, or more than once",
    ),
}
DISTANT = {
    "GIDS": Expected(
        "distant",
        (2, 1, 1),
        ("NA", "/person/born_in"),
        [("m.4", "NA", "m.8")],
        "the test file, the larger one, is trained on",
    ),
    "OpenNRE": Expected(
        "distant",
        (3, 1, 2),
        ("NA", "/person/born_in", "/person/lives_in", "targets"),
        [("Q4", "/person/born_in", "Q8"), ("mir-4|gene-7", "targets", "mir-4|gene-7")],
        "read as opennre",
    ),
    "NYT10": Expected(
        "distant",
        (2, 1, 1),
        ("NA", "/person/born_in"),
        [("m.4", "NA", "m.8")],
        "read as nyt10",
    ),
    "MIRGENE": Expected(
        "distant",
        (3, 1, 1),
        ("NA", "UPREGULATION", "TARGET"),
        [("p4", "NA", "p4")],
        "read as mirgene",
    ),
    "PGR as bags": Expected(
        "distant",
        (5, 1, 1),
        ("NA", "related"),
        [("101", "related", "HP:0000002")],
        "labels are distant",
    ),
}
DOCUMENTS = {
    "PubTator": Expected(
        "document",
        (1, 1, 1),
        ("CID",),
        {("C000003", "D009325"): ("CID",), ("C000003", "D005076"): ()},
        "hypernym-filtered with mesh.txt: 1 negative pairs left out",
    ),
    "DocRED": Expected(
        "document",
        (1, 1, 1),
        ("place of birth", "residence"),
        {("0", "1"): ("residence",), ("1", "0"): ()},
        "read as docred",
    ),
    "Pairs by line": Expected(
        "document",
        (1, 1, 1),
        ("CID",),
        {("C3", "D1"): ("CID",)},
        "filtered by whoever made the files",
    ),
}
NER = {
    "CoNLL columns": Expected(
        "ner",
        (2, 1, 1),
        ("Drug", "Symptom"),
        [("Nausea", "Symptom"), ("pelutin", "Drug")],
        "read as conll",
    ),
    "CoNLL-2012": Expected(
        "ner",
        (1, 1, 1),
        ("GPE", "PERSON"),
        [("Jan Vos", "PERSON")],
        "the domain nw has no training data",
    ),
    "BRAT": Expected(
        "ner",
        (2, 1, 1),
        ("Drug", "Symptom"),
        [("Nausea", "Symptom"), ("pelutin", "Drug")],
        "read as brat",
    ),
    "ADE version 2": Expected(
        "ner",
        (2, 1, 1),
        ("ADE", "Drug"),
        [("Pelutin", "Drug"), ("hair loss", "ADE")],
        "cut: 1 of 4 documents became dev, by a hash of their names",
    ),
}
NER |= {
    "Our own JSON lines for entities": Expected(
        "ner",
        (2, 1, 1),
        ("Drug", "Symptom"),
        [("Nausea", "Symptom"), ("pelutin", "Drug")],
        "read as entities",
    ),
    "Words and tags in rows": Expected(
        "ner",
        (2, 1, 1),
        ("Drug", "Symptom"),
        [("Nausea", "Symptom"), ("pelutin", "Drug")],
        "read as tokens",
    ),
    "CoNLL-U": Expected(
        "ner",
        (2, 1, 1),
        ("Drug", "Symptom"),
        [("Nausea", "Symptom"), ("pelutin", "Drug")],
        "read as conllu",
    ),
    "PsyTAR": Expected(
        "ner",
        (2, 1, 1),
        ("ADR", "Symptom"),
        [("Dry mouth", "ADR"), ("rash", "ADR")],
        "skipped: 1 ADR strings that do not stand in their sentence",
    ),
}
#: section -> format; the same three texts in each, which three tasks read
MARKED_TEXTS = {
    "Our own JSON lines for documents": "documents",
    "Label Studio": "labelstudio",
    "Prodigy": "prodigy",
    "doccano": "doccano",
    "WebAnno TSV": "webanno",
    "BRAT with relations": "brat",
    "BioNLP shared tasks": "bionlp",
    "BioC": "bioc",
    "BigBio": "bigbio",
    "ChemDisGene": "chemdisgene",
}
ALL = SENTENCES | DISTANT | DOCUMENTS | NER
