"""From settings to a task: which corpus, which network. Methods and runners meet tasks only through
here.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from config.errors import UserError, check_choice, nearest
from config.settings import Settings
from methods import bag_rule_of, default_corpus, network_of, task_knobs, tasks_of
from methods.tasks.base import Task
from models.tuning import LIGHT, tuning

__all__ = ["BUILT_IN", "load_task", "task_name"]

#: The first part of a built-in corpus's name -> the task it belongs to.
BUILT_IN = {
    "distant": "distant",
    "nyt10-sized": "distant",
    "sentence": "sentence",
    "document": "document",
    "ner": "ner",
}


def _corpus(settings: Settings) -> str:
    return settings.corpus or default_corpus(settings.method)


def task_name(settings: Settings) -> str:
    """Which task these settings are about, without reading any data."""
    corpus, possible = _corpus(settings), tasks_of(settings.method)
    built_in = BUILT_IN.get(corpus.partition(":")[0])
    if built_in is not None:
        if built_in not in possible:
            raise UserError(
                f'The method "{settings.method_name}" is for {" and ".join(possible)}, and the corpus '
                f'"{corpus}" is for {built_in}.'
            )
        return built_in
    if "document" in possible and _is_document(corpus, possible):
        return "document"
    if "sentence" in possible and _is_sentence(corpus, possible):
        return "sentence"
    if "ner" in possible and _is_ner(corpus, possible):
        return "ner"
    if not Path(corpus).exists():
        raise UserError(
            f'The corpus "{corpus}" is neither built in nor a file or folder here.{nearest(corpus, BUILT_IN)}'
        )
    return possible[0]


def _is_document(corpus: str, possible: tuple[str, ...]) -> bool:
    """Whether a folder, or `format:folder`, is a corpus of document relations."""
    from corpora.document import read as documents

    if corpus.partition(":")[0] in documents.FORMATS and not Path(corpus).exists():
        return True
    return Path(corpus).is_dir() and (
        possible == ("document",) or documents.recognise(Path(corpus)) != ""
    )


def _is_sentence(corpus: str, possible: tuple[str, ...]) -> bool:
    """Whether a folder, or `format:folder`, is a sentence-relation corpus. PGR is one only where it
    is called so, or where the method is for sentences alone: as bags of sentences it belongs to
    distant supervision.
    """
    from corpora.sentence import read as sentences

    if (
        corpus.partition(":")[0].partition(",")[0] in sentences.FORMATS
        and not Path(corpus).exists()
    ):
        return True
    if not Path(corpus).is_dir() or possible[0] == "sentence":
        return possible[0] == "sentence" and Path(corpus).is_dir()
    return sentences.recognise(Path(corpus)) not in ("", "pgr")


def _is_ner(corpus: str, possible: tuple[str, ...]) -> bool:
    """Whether a folder, a list of them, or `format:folder` is a NER corpus."""
    from corpora.ner import read as ner

    parts = [p for p in corpus.split(",") if p]
    if any(p.partition(":")[0] in ner.FORMATS and not Path(p).exists() for p in parts):
        return True
    if not parts or not all(Path(p).is_dir() for p in parts):
        return False
    return possible == ("ner",) or len(parts) > 1 or bool(ner.recognised(corpus))


def load_task(settings: Settings) -> Task:
    """The task of these settings, its corpus read from the cache, made or imported."""
    name = task_name(settings)
    if name == "distant":
        return _distant(settings)
    if name == "sentence":
        return _sentence(settings)
    if name == "document":
        return _document(settings)
    if name == "ner":
        return _ner(settings)
    raise UserError(f'The task "{name}" is not built yet.')


def _distant(settings: Settings) -> Task:
    from corpora.distant import generate as distant_synthetic
    from methods.tasks.distant import DistantTask, Knobs

    corpus = _corpus(settings)
    knobs = Knobs(**{**asdict(Knobs()), "tune": "", **task_knobs("distant", settings.options)})
    knobs = replace(knobs, tune=tuning(knobs.tune, settings.dp == "record"))
    extra: dict[str, Any] = {"bag_rule": bag_rule_of(settings.method, settings.options)}
    if corpus.partition(":")[0] in BUILT_IN:
        loaded = distant_synthetic.load(corpus, settings.seed)
    else:
        from corpora.distant import read as readers

        loaded = readers.load(corpus)
    if settings.vectors:
        from corpora.distant.vectors import read_vectors

        extra["vectors"] = read_vectors(settings.vectors, knobs.vector_words)
    return DistantTask(loaded, knobs, **extra)


def _sentence(settings: Settings) -> Task:
    from corpora.sentence import generate as sentence_synthetic
    from methods.tasks.sentence import Knobs, SentenceTask, style_of
    from models.backbone import load_checkpoint
    from models.marking import MARKERS

    corpus = _corpus(settings)
    knobs = Knobs(**{**asdict(Knobs()), "tune": "", **task_knobs("sentence", settings.options)})
    knobs = replace(knobs, tune=tuning(knobs.tune, settings.dp == "record"))
    if not 0.0 <= knobs.public < 1.0:
        raise UserError(f'Option "public" must be at least 0 and below 1, not {knobs.public}.')
    style = style_of(knobs, network_of(settings.method, "feded"))
    if corpus.partition(":")[0] in BUILT_IN:
        loaded = sentence_synthetic.load(corpus, settings.seed, knobs.public)
    else:
        from corpora.sentence import read as sentences

        loaded = sentences.load(corpus, settings.seed, knobs.public)
    return SentenceTask(loaded, knobs, style, load_checkpoint(settings.encoder, "bert", MARKERS))


def _document(settings: Settings) -> Task:
    from corpora.document import generate as document_synthetic
    from methods.tasks.document import DocumentTask, Knobs
    from models.backbone import load_checkpoint
    from models.document_pieces import STAR

    corpus = _corpus(settings)
    knobs = Knobs(**{**asdict(Knobs()), "tune": "", **task_knobs("document", settings.options)})
    knobs = replace(knobs, tune=tuning(knobs.tune, settings.dp == "record"))
    if corpus.partition(":")[0] in BUILT_IN:
        loaded = document_synthetic.load(corpus, settings.seed)
    else:
        from corpora.document import read as documents

        loaded = documents.load(corpus, knobs.mesh)
    return DocumentTask(loaded, knobs, load_checkpoint(settings.encoder, "document", (STAR,)))


def _ner(settings: Settings) -> Task:
    from corpora.ner import generate as ner_synthetic
    from methods.tasks.ner import Knobs, NerTask
    from methods.tasks.ner_networks import PointerNetwork, TaggerNetwork
    from models.backbone import load_checkpoint
    from models.pointer import PROMPTS

    corpus = _corpus(settings)
    knobs = Knobs(**{**asdict(Knobs()), "tune": "", **task_knobs("ner", settings.options)})
    name = knobs.network or network_of(settings.method, "pointer")
    check_choice("network", name, ("pointer", "tagger"))
    private = settings.dp == "record"
    if name == "tagger":
        knobs = replace(knobs, tune=tuning(knobs.tune, private))
    elif not knobs.tune:
        knobs = replace(knobs, tune=LIGHT if private else PROMPTS)
    if corpus.partition(":")[0] in BUILT_IN:
        loaded = ner_synthetic.load(corpus, settings.seed)
    else:
        from corpora.ner import read as ner

        loaded = ner.load(corpus, knobs.mapping, knobs.types)
    if name == "tagger":
        tagger = TaggerNetwork(load_checkpoint(settings.encoder, "bert"), loaded.types, knobs)
        return NerTask(loaded, knobs, tagger, settings.seed)
    pointer = PointerNetwork(load_checkpoint(settings.seq2seq, "bart"), loaded.types, knobs)
    return NerTask(loaded, knobs, pointer, settings.seed)
