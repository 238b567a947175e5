"""From settings to a task: which corpus, which network. Methods and runners meet tasks only through here."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from config.errors import UserError, nearest
from config.settings import Settings
from methods.task import Task

__all__ = ["BUILT_IN", "load_task", "task_name"]

#: The first part of a built-in corpus's name -> the task it belongs to.
BUILT_IN = {"distant": "distant", "nyt10-sized": "distant", "sentence": "sentence"}


def _corpus(settings: Settings) -> str:
    from methods import default_corpus

    return settings.corpus or default_corpus(settings.method)


def task_name(settings: Settings) -> str:
    """Which task these settings are about, without reading any data."""
    from methods import tasks_of

    corpus, possible = _corpus(settings), tasks_of(settings.method)
    built_in = BUILT_IN.get(corpus.partition(":")[0])
    if built_in is not None:
        if built_in not in possible:
            raise UserError(
                f'The method "{settings.method}" is for {" and ".join(possible)}, and the corpus "{corpus}" is for '
                f"{built_in}."
            )
        return built_in
    if "sentence" in possible and _is_sentence(corpus, possible):
        return "sentence"
    if not Path(corpus).exists():
        raise UserError(
            f'The corpus "{corpus}" is neither built in nor a file or folder here.{nearest(corpus, BUILT_IN)}'
        )
    return possible[0]


def _is_sentence(corpus: str, possible: tuple[str, ...]) -> bool:
    """Whether a folder, or `format:folder`, is a sentence-relation corpus. PGR is one only where it is called so, or
    where the method is for sentences alone: as bags of sentences it belongs to distant supervision.
    """
    from corpora.readers import sentences

    if corpus.partition(":")[0].partition(",")[0] in sentences.FORMATS and not Path(corpus).exists():
        return True
    if not Path(corpus).is_dir() or possible[0] == "sentence":
        return possible[0] == "sentence" and Path(corpus).is_dir()
    return sentences.recognise(Path(corpus)) not in ("", "pgr")


def load_task(settings: Settings) -> Task:
    """The task of these settings, its corpus read from the cache, made or imported."""
    name = task_name(settings)
    if name == "distant":
        return _distant(settings)
    if name == "sentence":
        return _sentence(settings)
    raise UserError(f'The task "{name}" is not built yet.')


def _distant(settings: Settings) -> Task:
    from corpora import distant_synthetic
    from methods import bag_rule_of, task_knobs
    from methods.tasks.distant import DistantTask, Knobs

    corpus = _corpus(settings)
    knobs = Knobs(**{**asdict(Knobs()), **task_knobs("distant", settings.options)})
    extra: dict[str, Any] = {"bag_rule": bag_rule_of(settings.method, settings.options)}
    if corpus.partition(":")[0] in BUILT_IN:
        loaded = distant_synthetic.load(corpus, settings.seed)
    else:
        from corpora import readers

        loaded = readers.load(corpus)
    if settings.vectors:
        from corpora.readers.vectors import read_vectors

        extra["vectors"] = read_vectors(settings.vectors, knobs.vector_words)
    return DistantTask(loaded, knobs, **extra)


def _sentence(settings: Settings) -> Task:
    from corpora import sentence_synthetic
    from methods import module, task_knobs
    from methods.tasks.sentence import Knobs, SentenceTask, style_of
    from models.checkpoint import load_checkpoint
    from models.marking import MARKERS

    corpus = _corpus(settings)
    knobs = Knobs(**{**asdict(Knobs()), **task_knobs("sentence", settings.options)})
    if not 0.0 <= knobs.public < 1.0:
        raise UserError(f'Option "public" must be at least 0 and below 1, not {knobs.public}.')
    style = style_of(knobs, getattr(module(settings.method), "MODEL", "feded"))
    if corpus.partition(":")[0] in BUILT_IN:
        loaded = sentence_synthetic.load(corpus, settings.seed, knobs.public)
    else:
        from corpora.readers import sentences

        loaded = sentences.load(corpus, settings.seed, knobs.public)
    return SentenceTask(loaded, knobs, style, load_checkpoint(settings.encoder, "bert", MARKERS))
