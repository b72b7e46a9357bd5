"""Pages as documents: vision models that embed images, and PDFs and images to feed them."""

from .model import VisionColBERT
from .page_index import PageHit, PageIndex
from .pages import Page, PageReader, parse_page_ranges

__all__ = [
    "Page",
    "PageHit",
    "PageIndex",
    "PageReader",
    "VisionColBERT",
    "parse_page_ranges",
]
