"""Books: reading them, and finding their chapters."""

from .book import Book, Chapter
from .book_files import BookSource, read_book


__all__ = ["Book", "BookSource", "Chapter", "read_book"]
