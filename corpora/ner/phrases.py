"""The language of the built-in NER corpus: one ward, told three times.

Six entity types in three ways of writing: `report` (case reports in whole sentences), `forum` (patients among
themselves) and `note` (telegraphic ward notes). `<Type>` is a slot for an entity, `{a|b}` an alternative. A complaint
such as "headache" may be a symptom, a disease or an adverse effect: only the words around it tell. What is said of one
type in one style has its counterpart in the others, in other words, which is what there is to be transferred.
Everything here is public and fixed.
"""

from __future__ import annotations

__all__ = [
    "BRANDS",
    "CLAUSES",
    "CLOSINGS",
    "COMPLAINTS",
    "DOMAINS",
    "FILLERS",
    "GLOSSARY",
    "LINKS",
    "NAMES",
    "OPENINGS",
    "TYPES",
]

# fmt: off
TYPES = ("Disease", "Drug", "Effect", "Procedure", "Symptom", "Test")
DOMAINS = ("report", "forum", "note")

#: Said in every style, of a symptom, a disease or an adverse effect alike.
COMPLAINTS = (
    "headache", "nausea", "vomiting", "rash", "dizziness", "fatigue", "chest pain", "back pain", "fever", "confusion",
    "weakness", "diarrhea", "constipation", "cough", "insomnia", "anxiety", "muscle pain", "joint pain", "swelling",
    "weight gain", "weight loss", "palpitations", "blurred vision", "dry mouth", "tremor", "numbness", "hair loss",
    "abdominal pain", "night sweats", "shortness of breath", "itching", "low mood", "memory loss", "leg cramps",
)

#: type -> style ("" for all three) -> names. Drugs and eponyms are made in corpora.ner.generate.
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "Disease": {
        "": (
            "diabetes", "hypertension", "asthma", "pneumonia", "epilepsy", "migraine", "psoriasis", "arthritis",
            "depression", "anemia", "gout", "lupus", "eczema", "hepatitis", "osteoporosis", "heart failure",
        ),
        "report": (
            "chronic kidney disease", "atrial fibrillation", "hepatic cirrhosis", "pulmonary fibrosis",
            "acute myeloid leukemia", "bacterial endocarditis", "type 2 diabetes mellitus", "aortic stenosis",
            "rheumatoid arthritis", "bipolar disorder", "ulcerative colitis", "multiple sclerosis",
        ),
        "forum": (
            "high blood pressure", "sugar diabetes", "acid reflux", "bad kidneys", "an underactive thyroid", "ra",
            "bipolar", "ibs", "restless legs", "high cholesterol", "a heart flutter", "fibro", "shingles",
        ),
        "note": (
            "htn", "dm2", "chf", "afib", "ckd", "copd", "cad", "hld", "gerd", "osa", "pna", "dvt", "esrd", "bph", "tia",
        ),
    },
    "Effect": {
        "report": (
            "severe neutropenia", "drug-induced hepatitis", "acute renal failure", "toxic epidermal necrolysis",
            "serotonin syndrome", "agranulocytosis", "angioedema", "ototoxicity", "rhabdomyolysis", "akathisia",
            "interstitial nephritis", "lactic acidosis",
        ),
        "forum": (
            "brain fog", "the shakes", "an upset tummy", "crazy dreams", "zombie feeling", "brain zaps", "dry eyes",
            "heart racing", "puffy face", "hot flushes", "metallic taste", "jelly legs", "mood swings",
        ),
        "note": (
            "gi upset", "aki", "transaminitis", "qt prolongation", "orthostasis", "hyperkalemia", "bradycardia",
            "oversedation", "gi bleed", "hypoglycemia", "leukopenia",
        ),
    },
    "Symptom": {
        "report": (
            "progressive dyspnea", "intermittent claudication", "epigastric discomfort", "generalized malaise",
            "exertional chest tightness", "bilateral leg edema", "photophobia", "hemoptysis", "dysphagia", "anorexia",
        ),
        "forum": (
            "a tummy ache", "pins and needles", "a sore throat", "stiff knees", "aching all over", "a stuffy nose",
            "feeling wiped out", "a funny turn", "ringing ears", "swollen feet", "sore joints",
        ),
        "note": ("sob", "cp", "doe", "n/v", "abd pain", "le edema", "ha", "loc", "ruq pain", "pnd", "chills"),
    },
    "Test": {
        "": ("mri", "ct scan", "blood test", "ultrasound", "biopsy", "blood pressure", "echocardiogram", "x-ray"),
        "report": (
            "serum creatinine", "liver function tests", "computed tomography", "magnetic resonance imaging",
            "lumbar puncture", "complete blood count", "electroencephalography", "coronary angiography",
            "bone marrow aspirate", "thyroid function tests",
        ),
        "forum": (
            "bloods", "a scan", "my sugars", "a heart trace", "the camera test", "liver numbers", "an allergy test",
            "thyroid levels", "a bone scan", "an eye test",
        ),
        "note": ("cxr", "ekg", "cbc", "bmp", "lfts", "tte", "ua", "trop", "abg", "kub", "hct", "inr", "a1c"),
    },
    "Procedure": {
        "": ("dialysis", "surgery", "hip replacement", "chemotherapy", "a transfusion", "a bypass", "physiotherapy"),
        "report": (
            "laparoscopic cholecystectomy", "mitral valve repair", "hematopoietic transplantation", "hemicolectomy",
            "percutaneous coronary intervention", "plasma exchange", "surgical debridement", "total thyroidectomy",
        ),
        "forum": (
            "my knee op", "gallbladder out", "a stent", "keyhole surgery", "chemo", "a new hip", "laser treatment",
            "stitches", "the injections", "my back op",
        ),
        "note": ("cabg", "tkr", "pci", "hd", "egd", "appy", "orif", "tavr", "i and d", "prbc transfusion", "bipap"),
    },
    "Drug": {
        "": ("aspirin", "insulin", "warfarin", "prednisone", "ibuprofen", "morphine"),
        "report": ("intravenous immunoglobulin", "oral corticosteroids", "low dose methotrexate", "activated charcoal"),
        "forum": ("painkillers", "water tablets", "the steroid", "blood thinners", "my inhaler", "the patch"),
        "note": ("asa", "mtx", "abx", "ppi", "lasix gtt", "hctz", "apap", "coumadin", "vanc", "zosyn"),
    },
}
BRANDS = ("ra", "xa", "ia", "vix", "lor", "zen")  #: endings of the names under which patients know a drug

#: style -> clauses
CLAUSES: dict[str, tuple[str, ...]] = {
    "report": (
        "<Effect> {developed|occurred|appeared} {after|following|during} {treatment with|administration of} <Drug>",
        "<Drug> was {discontinued|withdrawn} because of <Effect>", "we {report|describe} <Effect> {due to|induced by} "
        "<Drug>", "<Effect> was attributed to <Drug>", "<Effect> resolved after withdrawal of <Drug>",
        "the patient was {treated|managed} with <Drug> for <Disease>", "<Drug> was {given|started|prescribed} for "
        "<Disease>", "a {history|diagnosis} of <Disease> was {known|established}", "<Disease> was confirmed by <Test>",
        "she {presented with|complained of} <Symptom>", "he was admitted with <Symptom> and <Symptom>",
        "there was a {long|short} history of <Symptom>", "<Symptom> was the presenting complaint of <Disease>",
        "<Test> {showed|revealed|demonstrated} {no abnormality|signs of <Disease>}", "<Test> and <Test> were "
        "unremarkable", "{repeat|initial} <Test> was {normal|abnormal}", "the patient underwent <Procedure> for "
        "<Disease>", "<Procedure> was performed {without complication|after <Test>}", "<Symptom> persisted despite "
        "<Procedure>", "after <Procedure> the patient received <Drug>", "<Symptom> improved {with|on} <Drug>",
        "the patient with <Disease> {declined|required} <Procedure>",
    ),
    "forum": (
        "i got <Effect> from <Drug>", "{has anyone|anybody} else had <Effect> on <Drug> ?", "<Drug> gave me <Effect>",
        "came off <Drug> because of {the|all the} <Effect>", "<Effect> went away when i stopped <Drug>",
        "been on <Drug> for my <Disease> {for years|since spring}", "i {take|was put on} <Drug> for <Disease>",
        "my {mum|dad|doctor} {has|says it is} <Disease>", "i was told i have <Disease> after <Test>",
        "woke up with <Symptom> {again|today}", "went to the doctor with <Symptom> and <Symptom>",
        "<Symptom> is driving me {mad|crazy}", "my <Disease> gives me <Symptom>", "had <Test> {yesterday|last week} , "
        "{all fine|not great}", "waiting for <Test> and <Test>", "they want to do <Test> {again|next month}",
        "having <Procedure> for my <Disease>", "recovering from <Procedure> {nicely|slowly}",
        "still have <Symptom> after <Procedure>", "they gave me <Drug> after <Procedure>", "<Drug> really helps with "
        "<Symptom>", "i have <Disease> and said no to <Procedure>",
    ),
    "note": (
        "<Effect> {2/2|on} <Drug>", "{held|d/c'd} <Drug> for <Effect>", "<Drug> c/b <Effect>", "<Effect> , likely from "
        "<Drug>", "<Effect> resolved off <Drug>", "cont <Drug> for <Disease>", "start <Drug> {25 mg|bid|daily} for "
        "<Disease>", "pmh <Disease> , <Disease>", "<Disease> per <Test>", "c/o <Symptom> x 3 d", "p/w <Symptom> and "
        "<Symptom>", "denies <Symptom>", "<Symptom> in setting of <Disease>", "<Test> {neg|wnl|unremarkable}",
        "f/u <Test> and <Test> in am", "{repeat|check} <Test> {today|q6h}", "s/p <Procedure> for <Disease>",
        "plan <Procedure> {tomorrow|after <Test>}", "<Symptom> post <Procedure>", "<Drug> after <Procedure>",
        "<Drug> prn <Symptom>", "<Disease> , no <Procedure> for now",
    ),
}  # fmt: skip

OPENINGS: dict[str, tuple[str, ...]] = {
    "report": (
        "in this case ,", "two weeks later ,", "on examination ,", "a 54 year old woman was seen ;", "of note ,",
    ),
    "forum": ("hi all ,", "ok so", "just wondering ,", "long story short ,", "update :", "ugh ,"),
    "note": ("a/p :", "hd 3 :", "pt seen ,", "82 yo f ,", "o/n :", "plan :"),
}  # fmt: skip
LINKS: dict[str, tuple[str, ...]] = {
    "report": (", and", ". subsequently ,", "; moreover ,", ", while", ". during follow up ,"),
    "forum": ("and", ", but", "... also", "lol ,", "so now", "plus"),
    "note": (".", ";", ",", ". also"),
}
CLOSINGS: dict[str, tuple[str, ...]] = {
    "report": (".", "in a previously healthy patient .", "as previously reported .", "within three days .", "."),
    "forum": ("!", "any advice ?", "thanks xx", ".", "sorry for the rant .", ""),
    "note": (".", "per attending .", "", "d/w family .", "."),
}
FILLERS: dict[str, tuple[str, ...]] = {
    "report": (
        "the further course was uneventful", "written consent was obtained", "the literature was reviewed",
        "the mechanism remains unclear", "no other cause was found", "the patient was followed for six months",
    ),
    "forum": (
        "i just want to feel normal", "my doctor never listens", "hope everyone is ok", "been a long week",
        "new here and a bit scared", "how long did it take for you",
    ),
    "note": (
        "resting comfortably", "no acute events", "tolerating diet", "dispo home", "full code", "family at bedside",
    ),
}  # fmt: skip
#: Only in pretraining text: what an encyclopaedia says, so that the label words mean something to the language model.
GLOSSARY = (
    "<TYPE> is {a|one|another} TYPE .", "{a|the} TYPE such as <TYPE> or <TYPE>", "<TYPE> , a TYPE ,",
    "TYPE : <TYPE> , <TYPE> .", "<TYPE> and <TYPE> are TYPE names .", "the TYPE was <TYPE> .",
)
