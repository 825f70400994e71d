"""EPUBs, made here: what becomes a chapter, what is left out, and what is refused."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hier_models.books import Book, read_book


CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OPS/book.xml" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
XHTML = 'xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'
RAIN = "It rained all night and all the next day. " * 5


def page(body: str, title: str = "", roles: str = "") -> str:
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html {XHTML}><head><title>{title}</title></head>'
        f'<body epub:type="{roles}">{body}</body></html>'
    )


def nav(entries: str) -> str:
    return page(
        f'<nav epub:type="landmarks"><ol/></nav><nav epub:type="toc"><h1>Contents</h1><ol>{entries}</ol></nav>'
    )


def ncx(points: str) -> str:
    return f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>'


def point(title: str, source: str, inner: str = "") -> str:
    return f'<navPoint><navLabel><text>{title}</text></navLabel><content src="{source}"/>{inner}</navPoint>'


def entry(title: str, source: str, inner: str = "") -> str:
    return f'<li><a href="{source}">{title}</a>{f"<ol>{inner}</ol>" if inner else ""}</li>'


Maker = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """Writes an EPUB of pages, in the order they are given unless `spine` says another."""

    def write(
        pages: dict[str, str | bytes],
        *,
        contents: str = "",
        spine: list[str] | None = None,
        attributes: dict[str, str] | None = None,
        guide: str = "",
        others: dict[str, str | None] | None = None,
    ) -> Path:
        files: dict[str, str | bytes | None] = {"META-INF/container.xml": CONTAINER}
        items, references = [], []
        for name in pages:
            items.append(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>')
            files[f"OPS/{name.replace('%20', ' ')}"] = pages[name]
        for name in spine or pages:
            references.append(f'<itemref idref="{name}" {(attributes or {}).get(name, "")}/>')
        if contents.startswith("<ncx"):
            items.append('<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>')
            files["OPS/toc.ncx"] = contents
        elif contents:
            items.append('<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>')
            files["OPS/nav.xhtml"] = contents
        files["OPS/book.xml"] = (
            '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Rain</dc:title></metadata>'
            f"<manifest>{''.join(items)}</manifest><spine toc='ncx'>{''.join(references)}</spine>"
            f"<guide>{guide}</guide></package>"
        )
        files |= others or {}
        path = tmp_path / "book.epub"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
            for name, content in files.items():
                if content is not None:
                    archive.writestr(name, content)
        return path

    return write


def shown(book: Book) -> list[tuple[str, list[str]]]:
    return [(chapter.title, chapter.paragraphs) for chapter in book.chapters]


# Chapters


def test_contents_and_reading_order(make: Maker):
    """The spine gives the order, whatever that of the manifest; the navigation gives the titles."""
    pages = {
        "b.xhtml": page(f"<section><h2>II</h2><p>{RAIN}</p></section>"),
        "a%20a.xhtml": page(f"<section><h2>I</h2><p>First.</p><p>{RAIN}</p></section>"),
        "title.xhtml": page("<h1>The Rain</h1><p>by Nobody</p>", roles="frontmatter titlepage"),
        "cover.xhtml": page('<img src="cover.jpg" alt="cover"/>', roles="cover"),
    }
    contents = nav(entry("I: The Door", "a%20a.xhtml") + entry("II: The Key", "b.xhtml"))
    book = read_book(make(pages, contents=contents, spine=["cover.xhtml", "title.xhtml", "a%20a.xhtml", "b.xhtml"]))
    assert book.title == "The Rain"
    assert shown(book) == [("I: The Door", ["First.", RAIN.strip()]), ("II: The Key", [RAIN.strip()])]
    assert book.found == "chapters from its table of contents"
    assert book.left_out == ["The Rain (2 words)"]


def test_ncx_with_several_chapters_in_a_file(make: Maker):
    """As Project Gutenberg makes them: anchors, a chapter that goes on in the next file, a list of links."""
    links = "".join(f'<p><a href="#c{n}">Chapter {n}</a></p>' for n in (1, 2, 3))
    pages = {
        "0.xhtml": page(
            "<h1>The Rain</h1><p>An eBook</p><p>*** START OF THE PROJECT GUTENBERG EBOOK RAIN ***</p>"
            f'<p id="top">The Rain</p>{links}<h2 id="c1">Chapter 1</h2><p>{RAIN}</p>'
            f'<div class="chapter"><a id="c2"/><h2>Chapter 2</h2><p>{RAIN}</p></div>'
        ),
        "1.xhtml": page(f'<p>It goes on.</p><h2><a name="c3">Chapter 3</a></h2><p>{RAIN}</p>'),
        "2.xhtml": page("<p>*** END OF THE PROJECT GUTENBERG EBOOK RAIN ***</p><h2>The Licence</h2><p>May copy.</p>"),
    }
    points = [("Chapter 1", "0.xhtml#c1"), ("Chapter 2", "0.xhtml#c2"), ("Chapter 3", "1.xhtml#c3")]
    contents = ncx(point("The Rain", "0.xhtml#top", "".join(point(*pair) for pair in points)))
    book = read_book(make(pages, contents=contents))
    assert shown(book) == [
        ("The Rain, Chapter 1", [RAIN.strip()]),
        ("The Rain, Chapter 2", [RAIN.strip(), "It goes on."]),
        ("The Rain, Chapter 3", [RAIN.strip()]),
    ]
    assert any("licence" in entry for entry in book.left_out)
    assert any("a list of links (6 words)" in entry for entry in book.left_out)


def test_an_anchor_that_is_not_there_stands_for_the_top_of_its_file(make: Maker):
    pages = {f"{n}.xhtml": page(f"<p>Page {n}.</p><p>{RAIN}</p>") for n in (1, 2, 3)}
    points = point("I", "1.xhtml") + point("II", "2.xhtml#gone") + point("III", "3.xhtml#p3")
    book = read_book(make(pages, contents=ncx(points)))
    assert shown(book) == [(title, [f"Page {n}.", RAIN.strip()]) for n, title in enumerate(("I", "II", "III"), 1)]
    assert book.left_out == []


def test_the_first_anchor_of_several_may_not_be_there(make: Maker):
    text = f"<p>One.</p><p>{RAIN}</p><p id='c2'>Two.</p><p>{RAIN}</p>"
    contents = ncx(point("I", "1.xhtml#gone") + point("II", "1.xhtml#c2") + point("III", "3.xhtml"))
    book = read_book(make({"1.xhtml": page(text), "3.xhtml": page(f"<p>{RAIN}</p>")}, contents=contents))
    assert shown(book)[:2] == [("I", ["One.", RAIN.strip()]), ("II", ["Two.", RAIN.strip()])]


def test_the_words_of_a_last_part_without_chapters_are_kept(make: Maker):
    texts = {"Chapter 1": RAIN, "Chapter 2": RAIN, "Part Two": "It ended.", "Endnotes": RAIN}
    pages = {f"{title}.xhtml": page(f"<h1>{title}</h1><p>{text}</p>") for title, text in texts.items()}
    one, two, part, notes = ((title, f"{title}.xhtml") for title in texts)
    book = read_book(make(pages, contents=nav(entry(*one) + entry(*two) + entry(*part, entry(*notes)))))
    assert shown(book)[2:] == [("Part Two", ["It ended."])]


def test_parts_and_sections(make: Maker):
    """Entries of parts go into titles; entries of sections do not divide a chapter."""
    pages = {
        "p1.xhtml": page("<h1>Part One</h1><blockquote>Rain, rain.</blockquote>"),
        "c1.xhtml": page(f'<h2>1. The Door</h2><p>{RAIN}</p><h3 id="s">The lock</h3><p>It turned.</p>'),
        "c2.xhtml": page(f"<h2>2. The Key</h2><p>{RAIN}</p>"),
        "p2.xhtml": page("<h1>Part Two</h1>"),
        "c3.xhtml": page(f"<h2>3. The Room</h2><p>{RAIN}</p>"),
    }
    sections = entry("The lock", "c1.xhtml#s")
    contents = nav(
        entry("Part One", "p1.xhtml", entry("1. The Door", "c1.xhtml", sections) + entry("2. The Key", "c2.xhtml"))
        + entry("Part Two", "p2.xhtml", entry("3. The Room", "c3.xhtml"))
    )
    assert shown(read_book(make(pages, contents=contents))) == [
        ("Part One, 1. The Door", ["Rain, rain.", RAIN.strip(), "The lock", "It turned."]),
        ("Part One, 2. The Key", [RAIN.strip()]),
        ("Part Two, 3. The Room", [RAIN.strip()]),
    ]


@pytest.mark.parametrize(
    ("parts", "titles"), [("I II", "1 2"), ("I.\u00a0Childhood II.\u00a0Youth", "Door Key"), ("1 2", "i ii")]
)
def test_below_numbers_in_files_of_their_own_stand_chapters(make: Maker, parts: str, titles: str):
    pages, contents = {}, ""
    for part in parts.split(" "):
        names = {title: f"{len(pages)}_{n}" for n, title in enumerate(titles.split())}
        pages[f"{len(pages)}"] = page(f"<h1>{part}</h1>")
        inner = "".join(entry(title, name) for title, name in names.items())
        contents += entry(part, list(pages)[-1], inner)
        pages |= {name: page(f"<h2>{title}</h2><p>{RAIN * 5}</p>") for title, name in names.items()}
    book = read_book(make(pages, contents=nav(contents)))
    assert len(book.chapters) == 4


def test_sections_in_files_of_their_own_do_not_divide_a_chapter(make: Maker):
    titles = {"c1": "Chapter 1. Boats", "s1": "Hulls", "s2": "Wood", "s3": "Sails", "c2": "Chapter 2. Ports"}
    pages = {f"{name}.xhtml": page(f"<h2>{title}</h2><p>{RAIN}</p>") for name, title in titles.items()}
    c1, s1, s2, s3, c2 = ((title, f"{name}.xhtml") for name, title in titles.items())
    contents = nav(entry(*c1, entry(*s1, entry(*s2)) + entry(*s3)) + entry(*c2))
    rain = RAIN.strip()
    assert shown(read_book(make(pages, contents=contents))) == [
        ("Chapter 1. Boats", [rain, "Hulls", rain, "Wood", rain, "Sails", rain]),
        ("Chapter 2. Ports", [rain]),
    ]


def test_chapters_below_a_number_are_chapters(make: Maker):
    pages = {f"{n}.xhtml": page(f"<h2>Chapter {n}</h2><p>{RAIN}</p>") for n in (1, 2)}
    contents = nav(entry("V.", "1.xhtml", entry("Chapter 1", "1.xhtml") + entry("Chapter 2", "2.xhtml")))
    assert shown(read_book(make(pages, contents=contents)))[1:] == [("Chapter 2", [RAIN.strip()])]


def test_a_guide_to_a_place_does_not_mark_its_file(make: Maker):
    pages = {
        "1.xhtml": page(f"<h2 id='toc'>Contents</h2><p>I</p><p>II</p><h2 id='c1'>I</h2><p>{RAIN}</p>"),
        "2.xhtml": page(f"<h2>II</h2><p>{RAIN}</p>"),
    }
    contents = nav(entry("I", "1.xhtml#c1") + entry("II", "2.xhtml"))
    book = read_book(make(pages, contents=contents, guide='<reference type="toc" href="1.xhtml#toc"/>'))
    assert shown(book) == [("I", [RAIN.strip()]), ("II", [RAIN.strip()])]
    assert book.left_out == ["what stands before the first chapter (2 words)"]


def test_pages_round_the_book(make: Maker):
    pages = {
        "toc.xhtml": page("<h1>Contents</h1><ul><li>I</li></ul>"),
        "c1.xhtml": page(f"<h2>I</h2><p>{RAIN}</p>"),
        "c2.xhtml": page(f"<h2>II</h2><p>{RAIN}</p>"),
        "more.xhtml": page(f"<h2>More books</h2><p>{RAIN}</p>"),
        "notes.xhtml": page(f"<h2>Endnotes</h2><p>{RAIN}</p>", roles="backmatter endnotes"),
        "legal.xhtml": page(f"<p>{RAIN}</p>"),
    }
    contents = nav("".join(entry(title, f"{file}.xhtml") for title, file in [("I", "c1"), ("II", "c2")]))
    path = make(
        pages,
        contents=contents,
        guide='<reference type="copyright-page" href="legal.xhtml" title="x"/>',
        attributes={"more.xhtml": 'linear="no"'},
    )
    book = read_book(path)
    assert [chapter.title for chapter in book.chapters] == ["I", "II"]
    words = len(RAIN.split())
    assert len(book.left_out) == 4
    for part in (f"({words + 2} words), outside the reading order", "Contents (1 word)", f"Endnotes ({words} words)"):
        assert any(part in left for left in book.left_out), book.left_out


@pytest.mark.parametrize("title", ["Cover", "Dedication"])
def test_contents_that_name_no_chapter(make: Maker, title: str):
    pages = {"0.xhtml": page("<p>For Ann</p>")} | {
        f"{name}.xhtml": page(f"<p>{name}</p><p>{RAIN * 3}</p>", title=name) for name in ("The Door", "The Key")
    }
    book = read_book(make(pages, contents=nav(entry(title, "0.xhtml"))))
    assert shown(book) == [(name, [(RAIN * 3).strip()]) for name in ("The Door", "The Key")]
    assert book.found == "a chapter from each of its files"
    assert book.left_out == [f"{title} (2 words)"]


@pytest.mark.parametrize("part", ["", "Part One"])
def test_pages_that_no_contents_list_names(make: Maker, part: str):
    """Those before the first chapter are not of the dedication, and those behind the notes are of them."""
    pages = {
        "half.xhtml": page("<p>Rain</p>"),
        "0.xhtml": page("<p>For Ann</p>"),
        "1.xhtml": page(f"<p>{RAIN * 3}</p>"),
        "2.xhtml": page(f"<p>It goes on.</p><h2 id='c1'>I</h2><p>{RAIN * 3}</p>"),
        "3.xhtml": page("<h2>Notes</h2><p>One.</p>"),
        "4.xhtml": page("<p>Two.</p>"),
    }
    entries = entry("Dedication", "0.xhtml") + entry("I", "2.xhtml#c1")
    entries = f"<li><span>{part}</span><ol>{entries}</ol></li>" if part else entries
    book = read_book(make(pages, contents=nav(entries + entry("Notes", "3.xhtml"))))
    assert shown(book) == [
        (part or "Before the first chapter", [(RAIN * 3).strip(), "It goes on."]),
        (f"{part}, I" if part else "I", [(RAIN * 3).strip()]),
    ]
    assert [left.rpartition(" (")[2] for left in book.left_out] == ["1 word)", "2 words)", "2 words)"]


def test_a_page_none_of_whose_anchors_are_there_begins_with_its_heading(make: Maker):
    pages = {f"{n}.xhtml": page(f"<h2>Rain {n}</h2><p>{RAIN}</p>") for n in (1, 2)}
    contents = nav(entry("I", "1.xhtml") + entry("II", "2.xhtml#gone") + entry("III", "2.xhtml#lost"))
    assert shown(read_book(make(pages, contents=contents))) == [("I", [RAIN.strip()]), ("Rain 2", [RAIN.strip()])]


def test_text_of_a_page(make: Maker):
    body = (
        "<h2>I</h2><p>It&nbsp;rained&mdash;<em>on</em>\n and on<a epub:type='noteref' href='#n'>1</a>.</p><!-- no -->"
        "<p>A line<br/>another</p><table><tr><td>a</td><td>b</td></tr></table><script>no()</script>"
        "<p hidden=''>no</p><p style='display: none'>no</p>"
        "<div>Loose <p>para\u00adgraph</p> tail</div><ruby>雨<rt>ame</rt></ruby>"
    )
    pages = {"1.xhtml": page(body), "2.xhtml": page("<h2>II</h2><p>x</p>")}
    contents = nav(entry("I", "1.xhtml") + entry("II", "2.xhtml"))
    assert read_book(make(pages, contents=contents)).chapters[0].paragraphs == [
        "It rained—on and on.",
        "A line another",
        "a b",
        "Loose",
        "paragraph",
        "tail",
        "雨",
    ]


def test_without_a_table_of_contents(make: Maker):
    pages = {f"{n}.xhtml": page(f"<h2>Chapter {n}</h2><p>{RAIN}</p>") for n in (1, 2)}
    book = read_book(make(pages))
    assert shown(book) == [("Chapter 1", [RAIN.strip()]), ("Chapter 2", [RAIN.strip()])]
    assert book.found == "a chapter from each page with a heading"

    book = read_book(make({f"{n}.xhtml": page(f"<p>Page {n}. {RAIN}</p>", title=f"Rain {n}") for n in (1, 2)}))
    assert [chapter.title for chapter in book.chapters] == ["Rain 1", "Rain 2"]
    assert book.found == "a chapter from each of its files"


def test_contents_that_say_nothing(make: Maker):
    """One entry for the whole book, and headings that are ordinary paragraphs."""
    body = "".join(f"<p>CHAPTER {n}</p><p>{RAIN}</p>" for n in ("I", "II", "III"))
    book = read_book(make({"all.xhtml": page(body)}, contents=nav(entry("The Rain", "all.xhtml"))))
    assert [chapter.title for chapter in book.chapters] == ["CHAPTER I", "CHAPTER II", "CHAPTER III"]
    assert "headings such as" in book.found


def test_pages_that_are_no_xml(make: Maker):
    pages = {"1.xhtml": "<html><body><h2>I</h2><p>It rained<br>on & on.<p>Köln</html>", "2.xhtml": page("<p>x</p>")}
    contents = nav(entry("I", "1.xhtml") + entry("II", "2.xhtml"))
    assert read_book(make(pages, contents=contents)).chapters[0].paragraphs == ["It rained on & on.", "Köln"]


def test_empty_chapter_is_named(make: Maker):
    pages = {"1.xhtml": page("<h2>I</h2>"), "2.xhtml": page(f"<h2>II</h2><p>{RAIN}</p>")}
    book = read_book(make(pages, contents=nav(entry("I", "1.xhtml") + entry("II", "2.xhtml"))))
    assert [chapter.title for chapter in book.chapters] == ["II"]
    assert book.left_out == ["chapter 1 (I): no text"]
    book = read_book(make({"1.xhtml": "", "2.xhtml": pages["2.xhtml"]}, contents=nav(entry("I", "1.xhtml"))))
    assert book.left_out == ["chapter 1 (I): no text"]
    assert book.words == len(RAIN.split())


def test_case_of_names(make: Maker):
    """Some books write names in another case; some have two that differ in nothing else."""
    pages = {name: page(f"<h2>Page {name[:-6]}</h2><p>{RAIN}</p>") for name in ("one.xhtml", "One.xhtml", "ONE.xhtml")}
    assert [chapter.title for chapter in read_book(make(pages)).chapters] == ["Page one", "Page One", "Page ONE"]
    others: dict[str, str | None] = {"OPS/1.xhtml": None, "ops/1.XHTML": page(f"<h2>I</h2><p>{RAIN}</p>")}
    assert read_book(make({"1.xhtml": ""}, others=others)).chapters[0].title == "I"


def test_page_that_is_listed_twice_is_read_once(make: Maker):
    pages = {f"{n}.xhtml": page(f"<h2>Chapter {n}</h2><p>{RAIN}</p>") for n in (1, 2)}
    book = read_book(make(pages, spine=["1.xhtml", "2.xhtml", "1.xhtml"]))
    assert [chapter.title for chapter in book.chapters] == ["Chapter 1", "Chapter 2"]


def test_entities_cannot_grow(make: Maker):
    """Entities of a document's own are not replaced, so they cannot become gigabytes."""
    bomb = '<!DOCTYPE html [<!ENTITY a "rain rain "><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    body = f"<p>before &b; after</p><p>{RAIN}</p>"
    book = read_book(make({"1.xhtml": f"{bomb}<html {XHTML}><body>{body}</body></html>"}))
    assert book.chapters[0].paragraphs[0] == "before &b; after"


def test_files_cannot_grow(make: Maker, monkeypatch: pytest.MonkeyPatch):
    book = make({"1.xhtml": page(f"<p>{RAIN}</p>"), "2.xhtml": page(f"<p>{RAIN * 1000}</p>")})
    assert len(read_book(book).chapters) == 2
    monkeypatch.setattr("hier_models.books.epub.LARGEST_FILE", 10_000)
    with pytest.raises(ValueError, match=r"2\.xhtml would unpack to [\d,]+ bytes"):
        read_book(book)


# Broken


ENCRYPTED = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:enc="http://www.w3.org/2001/04/xmlenc#">'
    '<enc:EncryptedData><enc:EncryptionMethod Algorithm="{algorithm}"/><enc:CipherData>'
    '<enc:CipherReference URI="{file}"/></enc:CipherData></enc:EncryptedData></encryption>'
)
AES, OBFUSCATED = "http://www.w3.org/2001/04/xmlenc#aes128-cbc", "http://www.idpf.org/2008/embedding"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no EPUB: it is empty"),
        (b"%PDF-1.7 ...", "is no EPUB: it is a PDF"),
        (b"\0" * 60 + b"BOOKMOBI" + b"\0" * 60, "a Kindle book"),
        (b"It rained.", "is no zip archive, or cut off"),
    ],
)
def test_no_archive(tmp_path: Path, content: bytes, says: str):
    (tmp_path / "book.epub").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_book(tmp_path / "book.epub")


def test_archive_that_is_cut_off_or_changed(make: Maker):
    path = make({"1.xhtml": page(f"<p>{RAIN}</p>")})
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="no zip archive, or cut off"):
        read_book(path)
    place = content.index(b"OPS/1.xhtml") + 40
    path.write_bytes(content[:place] + b"????" + content[place + 4 :])
    with pytest.raises(ValueError, match="is damaged"):
        read_book(path)


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ({"META-INF/container.xml": None}, r"META-INF/container\.xml is missing"),
        ({"META-INF/container.xml": "<container/>"}, "names no package file"),
        ({"META-INF/container.xml": "nonsense"}, "names no package file"),
        ({"META-INF/container.xml": ""}, r"container\.xml is empty"),
        ({"OPS/book.xml": None}, r"OPS/book\.xml is missing"),
        ({"OPS/book.xml": "<package/>"}, "has no spine"),
        ({"OPS/2.xhtml": None}, r"1 of the 2 files to read are missing: OPS/2\.xhtml"),
        ({"OPS/book.xml": "<package><spine><itemref idref='x'/></spine></package>"}, "missing: the item 'x'"),
        ({"META-INF/encryption.xml": ENCRYPTED.format(algorithm=AES, file="OPS/1.xhtml")}, r"protected .*\(DRM\)"),
        ({"OPS/1.xhtml": page("<p/>"), "OPS/2.xhtml": page("")}, "holds no text to summarize"),
        ({"OPS/1.xhtml": '<?xml version="1.0"?><p>K\udcf6ln'}, r"1\.xhtml is not in the encoding utf-8"),
    ],
)
def test_broken_epub(make: Maker, others: dict[str, str | None], says: str):
    encoded = {
        name: content if content is None else content.encode("utf-8", "surrogateescape")
        for name, content in others.items()
    }
    pages = {name: page(f"<h2>{name}</h2><p>{RAIN}</p>") for name in ("1.xhtml", "2.xhtml")}
    path = make(pages, others=encoded)
    with pytest.raises(ValueError, match=says) as caught:
        read_book(path)
    assert "book.epub" in str(caught.value)


def test_hidden_fonts_do_not_matter(make: Maker):
    hidden = ENCRYPTED.format(algorithm=OBFUSCATED, file="OPS/font.otf")
    book = read_book(make({"1.xhtml": page(f"<p>{RAIN}</p>")}, others={"META-INF/encryption.xml": hidden}))
    assert book.chapters[0].paragraphs == [RAIN.strip()]
