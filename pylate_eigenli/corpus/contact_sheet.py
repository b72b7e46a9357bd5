"""A contact sheet: the pages found for a question, in one self-contained HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from .hits import Hit
from .page_files import MAX_PIXELS
from .sandbox import PageFile

if TYPE_CHECKING:
    from PIL.Image import Image

# Wide enough for headings to be read.
_WIDTH, _HEIGHT, _DPI = 360, 480, 48

_TEMPLATE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{question}</title>
<style>
body {{ font: 16px/1.4 system-ui, sans-serif; margin: 2rem; background: #f4f4f2; color: #222; }}
ol {{ display: flex; flex-wrap: wrap; gap: 1.5rem; padding: 0; list-style: none; }}
li {{ width: {width}px; }}
img, .none {{ max-width: 100%; border: 1px solid #ccc; background: #fff; }}
.none {{ display: block; padding: 4rem 1rem; color: #666; }}
p {{ margin: .5rem 0; overflow-wrap: anywhere; }}
small {{ color: #666; }}
</style>
<h1>{question}</h1>
<ol>
{items}
</ol>
</html>
"""


def contact_sheet(question: str, hits: Iterable[Hit], folder: Path) -> str:
    """Return the HTML of a contact sheet.

    Parameters
    ----------
    question
        The heading.
    hits
        Pages in the order to show them.
    folder
        The folder of the pages. A page that is no longer there gets a note instead of a picture.
    """
    items = "\n".join(_item(hit, folder) for hit in hits)
    return _TEMPLATE.format(question=escape(question), width=_WIDTH, items=items)


def _item(hit: Hit, folder: Path) -> str:
    name = hit.title or str(hit.id)
    try:
        if hit.file is None:
            raise ValueError("it is not a page of the folder")
        source = _data_url(PageFile(folder / hit.file, _DPI, MAX_PIXELS).render(hit.page))
        picture = f'<img src="{source}" alt="{escape(name)}">'
    except Exception as error:  # a broken file must not hide the other hits
        picture = f'<span class="none">cannot be shown: {escape(str(error))}</span>'
    return f"<li>{picture}<p>{escape(name)}<br><small>explains {hit.share:.0%}</small></p></li>"


def _data_url(image: Image) -> str:
    image.thumbnail((_WIDTH, _HEIGHT))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
