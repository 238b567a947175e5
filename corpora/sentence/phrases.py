"""The language of the built-in sentence-relation corpus: what a ward round might write, and how it
might say it.

Three kinds of entity (problem, treatment, test) and the eight relations between them that clinical
notes are annotated with. `H` and `T` stand for head and tail, `{a|b}` for alternatives. Many words
serve several relations ("improved", "despite", "for", "after"), so that no single word gives a
relation away. Everything here is public and fixed.
"""

from __future__ import annotations

__all__ = [
    "ASIDES",
    "CLOSINGS",
    "COMPLAINTS",
    "CONDITIONS",
    "DENIALS",
    "DRUG_ENDINGS",
    "EPONYM_ENDINGS",
    "HEDGES",
    "LINKS",
    "MENTIONS",
    "OPENINGS",
    "PANELS",
    "PROCEDURES",
    "QUALIFIERS",
    "RELATIONS",
    "SCANS",
    "SITES",
]

#: relation -> (type of head, type of tail, share among the relations, ways to say it); shares as in
#: clinical notes
RELATIONS: dict[str, tuple[str, str, float, tuple[str, ...]]] = {
    "reveals": ("test", "problem", 0.30, (
        "H {showed|revealed|demonstrated|disclosed} T", "H was {notable|remarkable|positive|significant} for T",
        "T was {seen|noted|found|visible|appreciated} on H", "H {confirmed|established} the {presence|diagnosis} of T",
        "on H there was T", "T by H", "H with {evidence|signs|findings} of T", "H {read|interpreted|reported} as T",
        "{findings|changes} on H {consistent|compatible} with T", "H {came back|returned} with T",
        "T was {picked up|detected|diagnosed} {on|by} H", "H {documented|recorded|depicted} T",
    )),
    "given_for": ("treatment", "problem", 0.25, (
        "H was {given|started|prescribed|ordered} for T", "T was {treated|managed} with H",
        "H for {control|management|treatment} of T", "{started|placed|begun} on H for T",
        "T {requiring|necessitating} H", "H was {continued|resumed|increased} for T", "received H for T",
        "T , for which H was {begun|added|arranged}", "underwent H for T", "H as {treatment|therapy|prophylaxis} for T",
        "is {maintained|kept} on H because of T", "{took|used} H to treat T", "T is being {covered|managed} with H",
    )),
    "indicates": ("problem", "problem", 0.18, (
        "H {secondary|due} to T", "H {suggestive|indicative} of T", "T {presenting|manifesting} as H",
        "H in the setting of T", "T {complicated|accompanied} by H", "H {attributed|ascribed|related} to T",
        "H was {thought|felt|believed} to {reflect|represent} T", "T {led to|gave rise to|produced} H",
        "H {raised concern|was concerning} for T", "H from {underlying|known} T", "H {explained|accounted for} by T",
    )),
    "causes": ("treatment", "problem", 0.10, (
        "H {caused|induced|triggered|provoked} T", "T {developed|appeared|began} {after|following|on} H",
        "T {secondary|due} to H", "T was {attributed|ascribed|related} to H", "H {led to|gave rise to|produced} T",
        "T as a {side effect|complication} of H", "H was {complicated|followed} by T", "T from H",
        "{had|reported} T {while|when} on H", "H , which {caused|brought on} T",
    )),
    "investigates": ("test", "problem", 0.07, (
        "H was {ordered|obtained|performed|requested} {for|given} T", "H to {evaluate|assess|investigate|look for} T",
        "H was {sent|done|arranged} to {rule out|exclude} T", "T was {evaluated|assessed|worked up} with H",
        "underwent H for T", "H for {evaluation|assessment|work up} of T", "T , for which H was {obtained|arranged}",
        "H is {pending|planned|scheduled} for T", "{monitored|followed} with H for T",
    )),
    "improves": ("treatment", "problem", 0.04, (
        "T {improved|resolved|subsided} {after|following|on|with} H", "H {relieved|improved|resolved|cleared} T",
        "T {responded|settled} {well|promptly} to H", "good {relief|control} of T with H",
        "T was {relieved|controlled|cleared} by H", "with H his T {got better|went away|resolved}",
        "H brought {relief|improvement} of T", "T is now {controlled|resolved} thanks to H",
    )),
    "withheld_for": ("treatment", "problem", 0.03, (
        "H was {held|stopped|discontinued|withheld} {because of|given|due to} T", "H was not {given|started} for T",
        "H was {avoided|deferred} {because of|given} T", "T precluded H", "H is contraindicated given T",
        "T , so H was {stopped|held|deferred}", "H was {refused|cancelled} because of T",
        "not a candidate for H given T", "{stopped|held} H on account of T",
    )),
    "worsens": ("treatment", "problem", 0.03, (
        "T {worsened|progressed|persisted|recurred} {despite|on|after} H", "H {failed|did not help} and T got worse",
        "H {worsened|aggravated|exacerbated} T", "T was {refractory|resistant} to H", "no relief of T with H",
        "T did not {improve|respond|resolve} {on|with} H", "T {grew|increased} in spite of H",
        "H brought no {relief|improvement} of T", "T was {made worse|aggravated|exacerbated} by H",
    )),
}  # fmt: skip

#: (type of head, type of tail) -> ways to name both and say nothing of how they are related
MENTIONS: dict[tuple[str, str], tuple[str, ...]] = {
    ("treatment", "problem"): (
        "history of T and {prior|previous} H", "H and T were {discussed|reviewed}", "T , H and {allergies|diet} noted",
        "{questions|education} about H and T", "continues H ; T unchanged", "T stable , H {as before|unchanged}",
        "{seen|visited} for T ; also takes H", "H at home , T {noted|listed} in the chart",
    ),
    ("test", "problem"): (
        "history of T ; H {repeated|reviewed} today", "H and T were {discussed|reviewed}", "T stable , H unremarkable",
        "{unchanged|stable} T and H {as before|within limits}", "H {refused|cancelled} ; T {noted|listed} in the chart",
        "H {normal|negative} and T {as before|unchanged}", "T follow up , next H in {spring|march}",
    ),
    ("problem", "problem"): (
        "H and T", "history of H , T", "no {complaints|signs} of H or T", "H as well as T {noted|listed}",
        "past history of H and {remote|prior} T", "denies H , T", "H , T {both|each} {stable|unchanged}",
    ),
}  # fmt: skip

#: Before a clause that would state a relation: it then states none.
DENIALS = (
    "there is no evidence that", "it is unlikely that", "we do not believe that", "nothing suggests that",
    "the family asked whether", "it was questioned whether", "the outside note wrongly says that",
)  # fmt: skip

#: Before any clause, changing nothing; many of the words of the denials stand here as well.
HEDGES = (
    "there is evidence that", "it is likely that", "we believe that", "of note ,", "the family reported that",
    "as the outside note says ,", "once again ,", "per report ,", "no doubt", "it was noted that",
)  # fmt: skip

OPENINGS = (
    "on admission ,", "on hospital day three ,", "in the emergency room ,", "this morning ,", "overnight ,",
    "the patient is an elderly man ;", "the patient is a young woman ;", "at the outside hospital ,", "in clinic ,",
    "during this admission ,", "after transfer to the floor ,", "prior to discharge ,",
)  # fmt: skip

CLOSINGS = (
    "per cardiology", "and was seen by surgery", "as above", "with follow up in two weeks", "without incident",
    "according to the family", "and remains an active problem", "and he was discharged home",
    "and she remained afebrile", "at that time", "today",
)  # fmt: skip

ASIDES = (
    "( see above )", ", per the team ,", "( per report )", ", as before ,", ", overnight ,", "( on the left )",
    ", again ,",
)  # fmt: skip

LINKS = ("; also ,", ", and", "; in addition ,", ", while", "; meanwhile ,", ", but", "; then", ".")

# What entities are called

QUALIFIERS = (
    "acute", "chronic", "severe", "mild", "worsening", "recurrent", "new", "persistent", "intermittent", "diffuse",
    "left sided", "right sided", "bilateral", "progressive", "stable", "known",
)  # fmt: skip
SITES = (
    "renal", "hepatic", "cardiac", "pulmonary", "cerebral", "gastric", "colonic", "biliary", "pancreatic", "splenic",
    "femoral", "aortic", "mitral", "lumbar", "cervical", "thyroid", "adrenal", "ovarian", "prostatic", "vesical",
    "esophageal", "duodenal", "carotid", "venous", "pleural", "mediastinal", "orbital", "tibial", "pelvic", "cutaneous",
)  # fmt: skip
CONDITIONS = (
    "failure", "stenosis", "infarct", "abscess", "edema", "effusion", "hemorrhage", "thrombosis", "mass", "fracture",
    "insufficiency", "infection", "ischemia", "obstruction", "carcinoma", "ulcer", "cyst", "embolism", "dysfunction",
    "hypertrophy", "perforation", "lesion", "aneurysm", "fibrosis", "regurgitation", "prolapse", "necrosis", "nodule",
)  # fmt: skip
COMPLAINTS = (
    "fever", "chest pain", "shortness of breath", "nausea", "vomiting", "hypotension", "tachycardia", "confusion",
    "headache", "weakness", "rash", "anemia", "hypoxia", "diarrhea", "constipation", "dizziness", "syncope", "cough",
    "abdominal pain", "back pain", "weight loss", "night sweats", "atrial fibrillation", "hyperkalemia", "pneumonia",
    "sepsis", "cellulitis", "delirium", "hyperglycemia", "thrombocytopenia", "bradycardia", "jaundice", "seizures",
)  # fmt: skip
DRUG_ENDINGS = (
    "mab",
    "pril",
    "statin",
    "azole",
    "olol",
    "cillin",
    "floxacin",
    "sartan",
    "parin",
    "idone",
    "mycin",
)
EPONYM_ENDINGS = ("syndrome", "disease", "fever", "sign", "palsy")
PROCEDURES = (
    "stent", "resection", "bypass", "drainage", "repair", "replacement", "catheter", "graft", "embolization",
    "lavage", "fixation", "dialysis", "infusion", "transfusion", "radiation", "ablation", "debridement", "banding",
)  # fmt: skip
SCANS = (
    "ct", "mri", "ultrasound", "x-ray", "angiogram", "biopsy", "doppler", "scan", "echo", "endoscopy", "aspirate",
)  # fmt: skip
PANELS = (
    "creatinine", "potassium", "hematocrit", "white count", "troponin", "lactate", "bilirubin", "glucose", "urinalysis",
    "blood culture", "sputum culture", "electrocardiogram", "chest film", "physical exam", "neurological exam",
    "lumbar puncture", "stress test", "colonoscopy", "bronchoscopy", "vital signs", "arterial blood gas",
)  # fmt: skip
