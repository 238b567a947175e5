"""What a paper compared, as runs of ours, and what it printed: kept apart, because the two are
different things.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Comparison", "Published", "Settings"]

Settings = tuple[str, ...]  #: as a user would type them: ("SILOS=30", "SET=public=0.1")


@dataclass(frozen=True)
class Published:
    """A table as a paper prints it. Shown only beside runs on that paper's own corpus, and
    labelled.
    """

    #: a name that a user's corpus folder carries when it is the paper's: compared
    #: case-insensitively
    corpus: str
    source: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    title: str
    #: the rows; the first is the paper's own. None: `variants` are all there are
    methods: tuple[str, ...]
    columns: Mapping[str, Settings]  #: label -> settings
    references: Mapping[str, Settings]  #: runs that no column varies -> settings
    metrics: Mapping[str, str]  #: label -> key in summary.json, "figures.x" for one of the figures
    sizes: Mapping[str, Settings]  #: how much work -> settings on the built-in corpus
    on_folder: Settings = ()  #: settings on a corpus that the user names
    #: and those for one of them, by a name that its folder carries; {folder} is that folder
    of_folder: Mapping[str, Settings] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    #: a column that the others are compared with, seed by seed; empty: the first row is compared
    against: str = ""
    #: more rows: label -> settings (ablations)
    variants: Mapping[str, Settings] = field(default_factory=dict)
    more_columns: Mapping[str, Settings] = field(default_factory=dict)  #: added by SIZE=hours
    more_variants: Mapping[str, Settings] = field(default_factory=dict)  #: likewise
    messages: bool = False  #: a table of what one silo sends and receives in a round
    #: rounds until dev reaches this value get a table; TARGET= changes it; 0: no such table
    target: float = 0.0
    #: the dev metric, mean over this many last rounds, gets a table; 0: no such table
    steady: int = 0
    per_class: bool = False  #: a table of every class's F1, in the first column's setting
    #: pictures of the dev metric by round: the methods by column, and the variants
    convergence: bool = False
    #: (row, column) -> how many seeds, where it is another number than is asked for; 0: no run. A
    #: column "" stands for all that are not named
    seeds: Mapping[tuple[str, str], int] = field(default_factory=dict)
    more_seeds: Mapping[tuple[str, str], int] = field(default_factory=dict)  #: of SIZE=hours
    #: rows whose encoder is frozen under DP=record: what it makes of a text is computed once for all
    #: their budgets
    frozen: frozenset[str] = frozenset()
    #: what every run has above its own model before the first round, and with `majority` above the
    #: most frequent answer, gets a table with intervals
    gains: bool = False

    #: folders that the user must name: {NAME} in settings stands for NAME=folder
    places: tuple[str, ...] = ()
    #: what a guess gives that knows nothing but how often each class is gets a table
    majority: bool = False

    def in_places(self, given: Mapping[str, str]) -> Comparison:
        """The same with the user's folders in its settings."""

        def put(words: Settings) -> Settings:
            return tuple(w.format(**given) if "{" in w else w for w in words)

        if not self.places:
            return self
        rows = {name: put(words) for name, words in self.variants.items()}
        others = {name: put(words) for name, words in self.references.items()}
        return replace(self, variants=rows, references=others)

    def seeds_of(self, row: str, column: str, asked: tuple[int, ...]) -> tuple[int, ...]:
        """More than are asked for go on from the first; with fewer, the first ones are taken."""
        count = self.seeds.get((row, column), self.seeds.get((row, ""), len(asked)))
        return tuple(range(asked[0], asked[0] + count)) if count > len(asked) else asked[:count]
