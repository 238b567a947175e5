"""Structural entropy of a document's graph: what FedLCC's non-IID partition cuts by (its section
3.5).

Nodes are entities, mentions and sentences. Edges: two mentions in one sentence; a mention and its
entity; a mention and its sentence; an entity and every sentence that mentions it; consecutive
sentences; the two entities of every candidate pair, related or not. No loops.

* `degree_entropy`, the paper's equation 15: H = -sum over the degrees d that occur of p(d) log
  p(d).
* `released`, what the authors' code computes: -sum over nodes of (deg/N) log2(deg/N), where the
  edge of a pair counts for its head only. It is no entropy, since the terms do not sum to one, and
  grows with the document; the published sizes of silos come from it.
"""

from __future__ import annotations

import math
from collections import Counter

import networkx

from corpora.document.table import Document

__all__ = ["KINDS", "degree_entropy", "graph", "released"]

Node = tuple[str, int]


def graph(document: Document) -> networkx.Graph:
    """The graph without its pairs' edges, which the two measures count differently; `pairs` holds
    them.
    """
    used = sorted({e for p in document.pairs for e in (p.head, p.tail)})
    g = networkx.Graph()
    g.add_nodes_from(("sentence", s) for s in range(len(document.sentences)))
    g.add_edges_from(
        (("sentence", s), ("sentence", s + 1)) for s in range(len(document.sentences) - 1)
    )
    inside: dict[int, list[Node]] = {}
    mention = 0
    for e in used:
        g.add_node(("entity", e))
        for span in document.entities[e].mentions:
            s, node = document.sentence_of(span), ("mention", mention)
            mention += 1
            g.add_edges_from(
                [(node, ("entity", e)), (node, ("sentence", s)), (("entity", e), ("sentence", s))]
            )
            g.add_edges_from((node, other) for other in inside.get(s, []))
            inside.setdefault(s, []).append(node)
    g.graph["pairs"] = [(("entity", p.head), ("entity", p.tail)) for p in document.candidates]
    return g


def degree_entropy(document: Document) -> float:
    g = graph(document)
    g.add_edges_from(g.graph["pairs"])
    counts = Counter(d for _, d in g.degree())
    n = g.number_of_nodes()
    return -sum(c / n * math.log(c / n) for c in counts.values()) + 0.0


def released(document: Document) -> float:
    g = graph(document)
    degree = dict(g.degree())
    for head, _ in g.graph["pairs"]:
        degree[head] += 1
    n = g.number_of_nodes()
    return -sum(d / n * math.log2(d / n) for d in degree.values() if d) + 0.0


KINDS = {"degree_entropy": degree_entropy, "released": released}
