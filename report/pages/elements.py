"""The few HTML elements that our pages are made of, and the page around them. Text is escaped here
and nowhere else.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = [
    "Html",
    "NONE",
    "data",
    "details",
    "node",
    "page",
    "section",
    "table",
    "text",
]

_ASSETS = Path(__file__).parent / "assets"
NONE = "–"
_TALL = 14  #: a table of more rows scrolls within itself

# The page may run what stands in it and load nothing at all: also a mistake of ours could not make
# it call anybody.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


class Html(str):
    """Markup. A plain str is text, and is escaped where it meets markup."""


def text(value: str | Html) -> Html:
    return value if isinstance(value, Html) else Html(html.escape(value))


def node(tag: str, *inside: str | Html, **attributes: str | bool) -> Html:
    """<tag a="b">…</tag>; `class_` and `for_` lose their underscore, `data_x` becomes data-x."""
    words = [tag]
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not False:
            words.append(f'{name}="{html.escape(str(value))}"')
    return Html(f"<{' '.join(words)}>{''.join(map(text, inside))}</{tag}>")


def data(value: object, shown: str) -> Html:
    """A figure: `shown` to people, and as the log has it to programs (and to our tests)."""
    return node("data", shown, value=str(value))


def table(
    head: Sequence[str | Html],
    rows: Iterable[Sequence[str | Html]],
    caption: str = "",
    numbers: bool = True,
    id_: str = "",
    fits: int = 6,
) -> Html:
    """With `numbers`, all columns but the first are set in figures, to the right. On a phone, words
    and tables of more columns than `fits` are stacked: a row is a block of lines.
    """
    stacked = not numbers or len(head) > fits
    top = node("thead", node("tr", *(node("th", h, scope="col") for h in head)))
    lines = [
        node(
            "tr",
            node("th", row[0], scope="row"),
            *(node("td", c, data_label=stacked and str(h)) for h, c in zip(head[1:], row[1:])),
        )
        for row in rows
    ]
    inside = ([node("caption", caption)] if caption else []) + [top, node("tbody", *lines)]
    looks = "words stacked" if not numbers else "numbers stacked" if stacked else "numbers"
    whole = node("table", *inside, class_=looks, id=id_ or False)
    kind = "scroll tall" if len(lines) > _TALL else "scroll"
    return node(
        "div", whole, class_=kind, tabindex="0", role="region", aria_label=caption or "table"
    )


def details(summary: str, *inside: str | Html, open_: bool = False) -> Html:
    return node("details", node("summary", summary), *inside, open=open_)


def section(id_: str, title: str, *inside: str | Html) -> Html:
    return node(
        "section",
        node("h2", title, id=f"{id_}-title"),
        *inside,
        id=id_,
        aria_labelledby=f"{id_}-title",
    )


def page(title: str, *inside: str | Html, script: str = "page.js", connect: str = "") -> str:
    """One file that needs no other: style, chart library and code stand in it. `connect`: whom its
    code may ask.
    """
    style, code, library = (
        (_ASSETS / name).read_text("utf-8")
        for name in ("page.css", script, "echarts.common.min.js")
    )
    policy = _POLICY + (f"; connect-src {connect}" if connect else "")
    head = Html(
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{style}</style>"
    )
    body = node("main", *inside)
    scripts = Html(f"<script>{library}</script><script>{code}</script>")
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n{scripts}\n</body></html>\n'
