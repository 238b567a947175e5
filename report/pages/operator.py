"""The operator's page, empty: assets/operator.js fills it from state.json. Text is set as text only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from report.pages.elements import Html, node, page

__all__ = ["operator_html"]


def operator_html(state: Mapping[str, Any]) -> str:
    title = f"{state['name']}, {state['role']}"
    parts = [
        node(
            "header",
            node("h1", title),
            node("p", state["consortium"], class_="lead"),
            node("p", "", id="status", role="status", class_="said-now"),
            node("p", "", id="missing", class_="warning", role="alert", hidden=True),
        ),
        node(
            "section",
            node("dl", Html(""), class_="tiles", id="tiles"),
            aria_label="Where it stands",
        ),
        *_parties(state),
        node(
            "section",
            node("h2", "Studies"),
            node("div", Html(""), id="studies"),
            node("p", "No study has been proposed yet.", id="none", class_="dim", hidden=True),
            aria_label="Studies",
        ),
        *([_propose(state)] if state["propose"] else []),
        _dialog(),
    ]
    return page(title, *parts, script="operator.js", connect="'self'")


def _parties(state: Mapping[str, Any]) -> list[Html]:
    if state["role"] != "coordinator":
        return []
    return [
        node(
            "section",
            node("h2", "Silos"),
            node("ul", Html(""), id="parties", class_="silos"),
            aria_label="Silos",
        )
    ]


def _propose(state: Mapping[str, Any]) -> Html:
    return node(
        "section",
        node("h2", "Propose a study"),
        node(
            "form",
            node("label", "The study file, word for word", for_="text"),
            node("textarea", "", id="text", rows="10", spellcheck="false", required=True),
            node("label", "Silos that must accept before it runs", for_="enough"),
            Html(
                f'<input id="enough" type="number" min="3" max="{int(state["silos"])}" '
                f'value="{int(state["silos"])}">'
            ),
            node("button", "Look at it …", type="submit"),
            id="propose",
        ),
        aria_label="Propose a study",
    )


def _dialog() -> Html:
    """Asks before anything is done."""
    return node(
        "dialog",
        node(
            "form",
            node("h2", "", id="ask-title"),
            node("p", "", id="ask-words"),
            node("pre", "", id="ask-text"),
            node("label", "Why, in one line, for the coordinator's operator", for_="ask-why"),
            Html('<input id="ask-why" type="text" maxlength="300">'),
            node(
                "div",
                node("button", "", id="ask-yes", value="yes"),
                node("button", "Cancel", id="ask-no", value="no"),
                class_="buttons",
            ),
            method="dialog",
        ),
        id="ask",
        aria_labelledby="ask-title",
    )
