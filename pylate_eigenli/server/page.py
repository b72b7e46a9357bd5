"""The page at ``/``, and the content security policy of all pages."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from starlette.responses import HTMLResponse


def page() -> HTMLResponse:
    """Return the page at ``/``."""
    return confined(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))


def confined(html: str) -> HTMLResponse:
    """Return a page with a policy that lets a browser use only its own scripts and styles.

    Examples
    --------
    >>> confined("<style>p {}</style>").headers["content-security-policy"][:34]
    "default-src 'none'; script-src 'no"
    """
    policy = [
        "default-src 'none'",
        f"script-src {_hashes(html, 'script')}",
        f"style-src {_hashes(html, 'style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    headers = {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(html, headers=headers)


def _hashes(html: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = [hashlib.sha256(contents.encode()).digest() for contents in found]
    hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return " ".join(hashes or ["'none'"])
