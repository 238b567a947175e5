"""From settings to a task: which corpus, which network. Methods and runners meet tasks only through
here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from config.errors import UserError, check_choice, nearest
from config.part import ALL, BIAS, HEAD, PROMPTS, Part, parse_part
from config.settings import OWN, Settings
from corpora.holding import Holding
from methods import bag_rule_of, default_corpus, network_of, task_knobs, tasks_of, uses_public
from methods.tasks.base import Task

__all__ = ["BUILT_IN", "is_built_in", "load_corpus", "load_task", "task_name"]

#: The first part of a built-in corpus's name -> the task it belongs to.
BUILT_IN = {
    "distant": "distant",
    "nyt10-sized": "distant",
    "sentence": "sentence",
    "document": "document",
    "ner": "ner",
}


def _corpus(settings: Settings) -> str:
    """What the corpus is, without a task's name before a folder (`ner:data/brat`)."""
    return _said_task(settings.corpus or default_corpus(settings.method))[1]


def _said_task(corpus: str) -> tuple[str, str]:
    """(task, the rest) where a corpus begins with a task's name and a folder follows, for folders
    that several tasks could read. Options of a built-in corpus are no folder.
    """
    task, _, rest = corpus.partition(":")
    parts = rest.split(",") if task == "ner" else [rest]
    folders = [p.rpartition(":")[2] for p in parts]
    if task in BUILT_IN.values() and rest and all(f and Path(f).is_dir() for f in folders):
        return task, rest
    return "", corpus


def is_built_in(corpus: str) -> bool:
    """Whether a corpus is generated, and not read from a folder."""
    return corpus.partition(":")[0] in BUILT_IN and not _said_task(corpus)[0]


def task_name(settings: Settings) -> str:
    """Which task these settings are about, without reading any data."""
    corpus, possible = _corpus(settings), tasks_of(settings.method)
    said, _ = _said_task(settings.corpus or default_corpus(settings.method))
    built_in = said or BUILT_IN.get(corpus.partition(":")[0])
    if built_in is not None:
        if built_in not in possible:
            raise UserError(
                f'The method "{settings.method_name}" is for {" and ".join(possible)}, and the corpus '
                f'"{corpus}" is for {built_in}.'
            )
        return built_in
    if not _names_folders(corpus):
        raise UserError(
            f'The corpus "{corpus}" is neither built in nor a file or folder here.{nearest(corpus, BUILT_IN)}'
        )
    from corpora.recognise import choose

    return choose(corpus, possible, str(settings.options.get("columns", "")))


def _names_folders(corpus: str) -> bool:
    """Whether it is a folder, several of them, or `format:place`."""
    return ":" in corpus or any(Path(p).exists() for p in corpus.split(",") if p)


#: Checkpoints and vectors that a user may name, and what they are for.
_STARTS = {
    "encoder": "a BERT-type encoder",
    "seq2seq": "a BART, Marian or T5",
    "vectors": "word vectors",
}


def _refuse_unused(settings: Settings, task: str, used: tuple[str, ...]) -> None:
    """A file that is named and not used is a mistake: the run would not be what its user thinks."""
    for key, what in _STARTS.items():
        if getattr(settings, key) and key not in used:
            takes = " and ".join(k.upper() for k in used)
            raise UserError(
                f"{key.upper()} names {what}, and {settings.method_name} on this corpus ({task}) does not "
                f"start from one: leave it out. It takes {takes}."
            )


#: Which part of a network is trained where TRAIN does not say: without and with DP=record.
_PARTS = {
    "distant": (ALL, HEAD),
    "sentence": (ALL, HEAD),
    "document": (ALL, HEAD),
    "ner, pointer": (PROMPTS, BIAS),
    "ner, tagger": (ALL, HEAD),
}


def _part(settings: Settings, network: str) -> Part:
    if settings.train:
        return parse_part(settings.train)
    return _PARTS[network][settings.dp == "record"]


def load_task(settings: Settings, holding: Holding | None = None) -> Task:
    """The task of these settings, its corpus read from the cache, made or imported. `holding`: what
    a party of a consortium has of it.
    """
    task = _loaded(settings, holding)
    if settings.public:  # then they are that text's, also in what is said before the first round
        task.built_in_statistics = False
    return task


def _loaded(settings: Settings, holding: Holding | None) -> Task:
    name = task_name(settings) if holding is None else holding.task
    if name == "distant":
        return _distant(settings, holding)
    if name == "sentence":
        return _sentence(settings, holding)
    if name == "document":
        return _document(settings, holding)
    if name == "ner":
        return _ner(settings, holding)
    raise UserError(f'The task "{name}" is not built yet.')


def _distant(settings: Settings, holding: Holding | None) -> Task:
    from methods.tasks.distant import DistantTask, Knobs

    _refuse_unused(settings, "distant", ("vectors",))
    knobs = Knobs(**task_knobs("distant", settings.options))
    loaded = load_corpus(settings, "distant", knobs, holding)
    part = _part(settings, "distant")
    if part == HEAD and settings.dp == "record" and not knobs.encoder:
        knobs = replace(knobs, encoder="sums")
    vectors = None
    if settings.vectors:
        from corpora.distant.vectors import read_vectors

        vectors = read_vectors(settings.vectors, knobs.vector_words)
    return DistantTask(
        loaded,
        knobs,
        bag_rule_of(settings.method, settings.options),
        vectors,
        part,
    )


def _sentence(settings: Settings, holding: Holding | None) -> Task:
    from methods.tasks.sentence import Knobs, SentenceTask, style_of
    from models.backbone import load_checkpoint
    from models.marking import MARKERS

    _refuse_unused(settings, "sentence", ("encoder",))
    knobs = Knobs(**task_knobs("sentence", settings.options))
    if not 0.0 <= knobs.public < 1.0:
        raise UserError(f'Option "public" must be at least 0 and below 1, not {knobs.public}.')
    reads = settings.public == OWN or uses_public(settings.method, settings.options)
    if not reads and "public" not in settings.options:
        knobs = replace(knobs, public=0.0)  # a method that does not read it trains on everything
    part = _part(settings, "sentence")
    style = style_of(knobs, network_of(settings.method, "feded"), part)
    loaded = load_corpus(settings, "sentence", knobs, holding)
    checkpoint = load_checkpoint(settings.encoder, "bert", MARKERS)
    return SentenceTask(loaded, knobs, style, checkpoint, part)


def _document(settings: Settings, holding: Holding | None) -> Task:
    from methods.tasks.document import DocumentTask, Knobs
    from models.backbone import load_checkpoint
    from models.document_pieces import STAR

    _refuse_unused(settings, "document", ("encoder",))
    knobs = Knobs(**task_knobs("document", settings.options))
    loaded = load_corpus(settings, "document", knobs, holding)
    checkpoint = load_checkpoint(settings.encoder, "document", (STAR,))
    part = _part(settings, "document")
    if part == HEAD and settings.dp == "record" and not knobs.classifier:
        knobs = replace(knobs, classifier="linear")
    return DocumentTask(loaded, knobs, checkpoint, part)


def _ner(settings: Settings, holding: Holding | None) -> Task:
    from methods.tasks.ner import Knobs, NerTask
    from methods.tasks.ner_networks import PointerNetwork, TaggerNetwork
    from models.backbone import load_checkpoint

    knobs = Knobs(**task_knobs("ner", settings.options))
    head = settings.dp == "record" and settings.train in ("", str(HEAD))
    name = knobs.network or network_of(settings.method, "tagger" if head else "pointer", head)
    check_choice("network", name, ("pointer", "tagger"))
    # With a budget a tagger's head may stand on a language model's own encoder.
    half = name == "tagger" and head and not settings.encoder
    used = ("encoder", *(("seq2seq",) if half else ())) if name == "tagger" else ("seq2seq",)
    _refuse_unused(settings, f"ner, {name}", used)
    part = _part(settings, f"ner, {name}")
    loaded = load_corpus(settings, "ner", knobs, holding)
    if name == "tagger":
        checkpoint = (
            load_checkpoint(settings.seq2seq, "bart")
            if half
            else load_checkpoint(settings.encoder, "bert")
        )
        tagger = TaggerNetwork(checkpoint, loaded.types, knobs, part, standard=head)
        return NerTask(loaded, knobs, tagger, settings.seed)
    pointer = PointerNetwork(load_checkpoint(settings.seq2seq, "bart"), loaded.types, knobs, part)
    return NerTask(loaded, knobs, pointer, settings.seed)


def load_corpus(settings: Settings, task: str, knobs: Any, holding: Holding | None) -> Any:
    """The corpus of these settings, from the cache, made or read. `knobs`: the task's own."""
    named = holding is not None and holding.holds == "nothing"
    return _CORPORA[task](_corpus(settings), settings.seed, knobs, holding, named)


def _distant_corpus(
    corpus: str, seed: int, knobs: Any, holding: Holding | None, named: bool
) -> Any:
    if named and holding is not None:
        from corpora.named import distant_named

        return distant_named(holding)
    if is_built_in(corpus):
        from corpora.distant import generate as distant_synthetic

        return distant_synthetic.load(corpus, seed)
    from corpora.distant import read as readers

    return readers.load(corpus, holding)


def _sentence_corpus(
    corpus: str, seed: int, knobs: Any, holding: Holding | None, named: bool
) -> Any:
    if named and holding is not None:
        from corpora.named import sentence_named

        return sentence_named(holding)
    if is_built_in(corpus):
        from corpora.sentence import generate as sentence_synthetic

        return sentence_synthetic.load(corpus, seed, knobs.public)
    from corpora.sentence import read as sentences

    return sentences.load(corpus, seed, knobs.public, knobs.columns, holding)


def _document_corpus(
    corpus: str, seed: int, knobs: Any, holding: Holding | None, named: bool
) -> Any:
    if named and holding is not None:
        from corpora.named import document_named

        return document_named(holding)
    if is_built_in(corpus):
        from corpora.document import generate as document_synthetic

        return document_synthetic.load(corpus, seed)
    from corpora.document import read as documents

    return documents.load(corpus, knobs.mesh, holding)


def _ner_corpus(corpus: str, seed: int, knobs: Any, holding: Holding | None, named: bool) -> Any:
    if named and holding is not None:
        from corpora.named import ner_named

        return ner_named(holding)
    if is_built_in(corpus):
        from corpora.ner import generate as ner_synthetic

        return ner_synthetic.load(corpus, seed)
    from corpora.ner import read as ner

    k = knobs
    return ner.load(corpus, k.mapping, k.types, k.columns, k.entity, holding)


_CORPORA = {
    "distant": _distant_corpus,
    "sentence": _sentence_corpus,
    "document": _document_corpus,
    "ner": _ner_corpus,
}
