"""A Page as one HTML file that needs nothing else: no network, no other file.

Names from the script are data. They travel as JSON in a block that no browser executes, with every `<` escaped, and the
page's code puts them on the screen as text. Should something slip through all the same, the page's own policy
lets only the two scripts run whose hashes it names, and lets nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from functools import cache
from importlib.resources import files

from lowtide.report.files import GENERATOR, write_text
from lowtide.report.page import Page, page_data

_DOCUMENT = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{generator}
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="page"><noscript>This page needs JavaScript; lowtide's --json has its numbers.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>{library}</script>
<script>{code}</script>
</body>
</html>
"""
_CODE = ("text.js", "charts.js", "tables.js", "page.js")


def html_page(page: Page) -> str:
    """The whole file."""
    library, code = _asset("echarts.min.js"), "\n".join(map(_asset, _CODE))
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {_hash(library)} {_hash(code)}"
    return _DOCUMENT.format(
        generator=GENERATOR,
        policy=policy,
        title=html.escape(f"{page.title} · {page.what}"),
        style=_asset("page.css"),
        data=safe_json(page_data(page)),
        library=library,
        code=code,
    )


def write_html(page: Page, path: str | os.PathLike[str]) -> None:
    write_text(html_page(page), path)


def safe_json(data: object) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (files("lowtide.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
