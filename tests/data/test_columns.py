import pytest

from hier_models.data.columns import (
    ID_ALIASES,
    SOURCE_ALIASES,
    SUMMARY_ALIASES,
    BadRecord,
    Columns,
    resolve_columns,
)


TURNS = [{"role": "Ann", "content": "Hello."}, {"role": "Bob", "content": "Hi."}]


def normalize(row, columns):
    """The columns of a record, before anything is taken out."""
    return columns.read(row)


@pytest.mark.parametrize("name", [name for names in SOURCE_ALIASES.values() for name in names])
@pytest.mark.parametrize("spelling", [str, str.upper, lambda name: name.replace("_", " ").title()])
def test_every_source_alias_is_recognized(name, spelling):
    columns = resolve_columns({spelling(name): "A text.", "number": 3}, None, None)
    assert columns == Columns(spelling(name), "text", None, None)


@pytest.mark.parametrize("name", SUMMARY_ALIASES)
def test_every_summary_alias_is_recognized(name):
    assert resolve_columns({"article": "A text.", name: "Text."}, None, None).summary == name


@pytest.mark.parametrize("name", ID_ALIASES)
def test_every_id_alias_is_recognized_and_becomes_text(name):
    columns = resolve_columns({name: 7, "text": "A text."}, None, None)
    assert normalize({name: 7, "text": "A text."}, columns) == {"text": "A text.", "id": "7"}


@pytest.mark.parametrize(
    ("row", "kind", "value"),
    [
        ({"source": ["One.", "Two."]}, "sentences", ["One.", "Two."]),
        ({"sentences": ["One.", ""]}, "sentences", ["One.", ""]),
        ({"articles": ["First text.", "Second."]}, "documents", ["First text.", "Second."]),
        ({"turns": [["Ann", "Hello."], ["Bob", "Hi."]]}, "turns", TURNS),
        ({"turns": TURNS}, "turns", TURNS),
        ({"messages": [{"from": "Ann", "value": "Hello."}, {"from": "Bob", "value": "Hi."}]}, "turns", TURNS),
        ({"text": [["Ann", "Hello."], ["Bob", "Hi."]]}, "turns", TURNS),
        ({"dialogue": "Ann: Hello.\r\nBob: Hi."}, "turns", TURNS),
        ({"dialogue": "Ann: So\u2028Bob: said."}, "turns", [{"role": "Ann", "content": "So\u2028Bob: said."}]),
        ({"dialogue": "#A#: One: two.\n\n and more\n#B#:"}, "turns", None),
        ({"dialogue": "just words"}, "text", "just words"),
        ({"text": "Note: not a dialogue."}, "text", "Note: not a dialogue."),
        ({"sections": [["Head", "Body."], ["", "More."]]}, "text", "Head\nBody.\n\nMore."),
        ({"sections": [{"heading": "Head", "text": "Body."}]}, "text", "Head\nBody."),
        ({"article": "Whole.", "sections": [["Head", "Whole."]]}, "text", "Whole."),
        ({"turns": '[["Ann", "Hello."], ["Bob", "Hi."]]'}, "turns", TURNS),
        ({"documents": '["One.", "Two."]'}, "documents", ["One.", "Two."]),
    ],
)
def test_kinds_of_sources(row, kind, value):
    columns = resolve_columns(row, None, None)
    assert columns.kind == kind
    if value is None:
        value = [{"role": "#A#", "content": "One: two.\nand more"}, {"role": "#B#", "content": ""}]
    assert normalize(row, columns) == {kind: value}


@pytest.mark.parametrize(
    ("given", "references"),
    [
        (["One.", " Two. ", "", "Three."], ["One.", "Two.", "Three."]),
        ("One .\n\n Two .\r\nThree", ["One .", "Two .", "Three"]),
        ("One\u2028still one\x85\x0cstill.\rTwo", ["One\u2028still one\x85\x0cstill.", "Two"]),
        (["<S> one </S>"], ["one"]),
    ],
)
def test_several_references(given, references):
    row = {"article": "A text.", "highlights": given}
    columns = resolve_columns(row, None, None, several_references=True)
    assert list(columns.features) == ["text", "summary", "references"]
    assert columns.normalize(row) == {"text": "A text.", "summary": references[0], "references": references}


def test_a_list_in_a_csv_cell_is_several_summaries_or_the_sentences_of_one():
    row = {"article": "A text.", "highlights": '["<S> One, \\"two\\". </S>", "Brücke\\nthree."]'}
    columns = resolve_columns(row, None, None, several_references=True)
    assert columns.normalize(row)["references"] == ['One, "two".', "Brücke\nthree."]
    assert normalize(row, resolve_columns(row, None, None))["summary"] == 'One, "two".\nBrücke\nthree.'


@pytest.mark.parametrize(
    "text", ["[Laughter] He left.", "[1, 2]", '["one", 2]', '{"a": "b"}', "[sic]", '["cut', '"[\\"a\\"]"']
)
def test_a_summary_in_brackets_that_is_no_list_stays(text):
    row = {"article": "A text.", "summary": text}
    assert normalize(row, resolve_columns(row, None, None))["summary"] == text
    columns = resolve_columns(row, None, None, several_references=True)
    assert columns.normalize(row)["references"] == [text]


@pytest.mark.parametrize("given", [[], [" "], "\n", 3, [None]])
def test_no_references(given):
    columns = Columns("text", "text", "summary", None, several_references=True)
    with pytest.raises(BadRecord, match="column 'summary'"):
        columns.normalize({"text": "A text.", "summary": given})


def test_references_need_a_column():
    with pytest.raises(ValueError, match="several_references=True, but there is no column with them"):
        resolve_columns({"text": "A text."}, None, None, several_references=True)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"text": "In 2015 F16"}, {"text": "In #### F##"}),
        ({"sentences": ["In 2015", "٣"]}, {"sentences": ["In ####", "#"]}),
        ({"turns": [["R2", "4 of 5"]]}, {"turns": [{"role": "R#", "content": "# of #"}]}),
    ],
)
def test_digits_are_replaced_in_sources_and_summaries(source, expected):
    row = {**source, "summary": ["Won 3", "in 15"], "id": "7"}
    columns = resolve_columns(row, None, None, several_references=True, digits="#")
    record = {name: value for name, value in columns.normalize(row).items() if not name.startswith("_")}  # but counts
    assert record == {**expected, "summary": "Won #", "references": ["Won #", "in ##"], "id": "7"}


def test_digits_are_replaced_in_what_is_looked_for_too():
    row = {"text": "In 2015 F16", "key": ["F16", ["2015", 0.5], [0, 2, 1]], "query": "When in 2015?"}
    columns = resolve_columns(row, None, None, phrases_column="key", digits="#", query_column=None)
    record = columns.normalize(row)
    assert record["query"] == "When in ####?"
    assert [(p["text"], p["start"], p["value"]) for p in record["phrases"]] == [
        ("F##", None, None),
        ("####", None, 0.5),
        (None, 0, 1),
    ]
    record = columns.normalize({"text": "In 2015", "key": None})
    assert record == {"text": "In ####", "phrases": None, "query": None}


def test_sentences_of_a_summary_are_joined_and_their_tags_taken_off():
    row = {"article_text": ["One.", "Two."], "abstract_text": ["<S> First . </S>", "<S> Second . </S>"]}
    columns = resolve_columns(row, None, None)
    assert normalize(row, columns) == {"sentences": ["One.", "Two."], "summary": "First .\nSecond ."}


def test_ambiguous_source_names_the_columns_and_the_argument():
    row = {"article": "a", "document": "b", "note": "c"}
    with pytest.raises(ValueError, match=r"'article', 'document' could all.*'note'.*text_column=") as error:
        resolve_columns(row, None, None)
    assert not isinstance(error.value, BadRecord)
    assert resolve_columns(row, "document", None).source == "document"
    assert resolve_columns(row, "note", None).source == "note"


def test_ambiguous_summary_names_the_columns_and_the_argument():
    row = {"text": "a", "abstract": "b", "tldr": "c"}
    with pytest.raises(ValueError, match=r"'abstract', 'tldr' could all.*summary_column="):
        resolve_columns(row, None, None)
    assert resolve_columns(row, None, "tldr").summary == "tldr"
    assert resolve_columns(row, None, "").summary is None


def test_a_column_asked_for_as_summary_is_no_source_and_the_other_way_round():
    assert resolve_columns({"text": "a", "article": "b"}, None, "text").source == "article"
    assert resolve_columns({"summary": "a", "abstract": "b"}, "summary", None).summary == "abstract"


@pytest.mark.parametrize(("argument", "value"), [("text_column", "body"), ("summary_column", "gist")])
def test_a_missing_column_is_refused_by_name(argument, value):
    given = {"text_column": None, "summary_column": None, argument: value}
    with pytest.raises(ValueError, match=f"{argument}='{value}' is not a column; the columns are 'text', 'summary'"):
        resolve_columns({"text": "a", "summary": "b"}, **given)


def test_no_known_name():
    with pytest.raises(ValueError, match=r"no column has a known name; the columns are 'foo', 'bar'.*text_column"):
        resolve_columns({"foo": "a", "bar": "b"}, None, None)


def test_one_column_cannot_be_both():
    with pytest.raises(ValueError, match="both 'text'"):
        resolve_columns({"text": "a"}, "text", "text")


@pytest.mark.parametrize("value", [None, 3, [], [1, 2], {"a": "b"}, "  \n"])
def test_values_that_are_no_source(value):
    with pytest.raises(BadRecord, match="'text'"):
        resolve_columns({"text": value}, None, None)


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        (Columns("text", "text", None, None), {"words": "a"}, "'text' is missing; this record has 'words'"),
        (Columns("text", "text", None, None), {"text": ["a"]}, "must hold a string.*got a list of str"),
        (Columns("text", "text", None, None), {"text": None}, "got nothing"),
        (Columns("text", "text", None, None), {"text": " \t"}, "'text' is empty"),
        (Columns("text", "text", None, None), {"text": "a\ud800"}, r"unpaired surrogate \(U\+D800 at character 1\)"),
        (
            Columns("sentences", "sentences", None, None),
            {"sentences": "a"},
            "list of strings.*got a value of type str",
        ),
        (Columns("sentences", "sentences", None, None), {"sentences": ["a", 1]}, "got a list of int, str"),
        (Columns("sentences", "sentences", None, None), {"sentences": ["", " "]}, "is empty"),
        (Columns("turns", "turns", None, None), {"turns": 5}, "list of turns"),
        (Columns("turns", "turns", None, None), {"turns": [["Ann"]]}, "turn 0 must be"),
        (
            Columns("turns", "turns", None, None),
            {"turns": [["Ann", "a"], {"who": "Bob"}]},
            "turn 1 has the fields 'who', and none of them is known to hold the speaker; name it role or",
        ),
        (Columns("turns", "turns", None, None), {"turns": [["Ann", "a"], [" ", "b"]]}, "turn 1 has an empty role"),
        (
            Columns("turns", "turns", None, None),
            {"turns": [{"role": "Ann", "said": "a"}]},
            "turn 0 has the fields 'role', 'said', .* known to hold the words; name it content or text or",
        ),
        (
            Columns("turns", "turns", None, None),
            {"turns": [{"role": None, "content": "a"}]},
            r"turn 0 must be a \[role, text\] pair",
        ),
        (Columns("turns", "turns", None, None), {"turns": [["Ann", 3]]}, r"turn 0 must be a \[role, text\] pair"),
        (Columns("turns", "turns", None, None), {"turns": ["Ann: a"]}, r"turn 0 must be a \[role, text\] pair"),
        (Columns("turns", "turns", None, None), {"turns": [["Ann", None]]}, "is empty"),
        (Columns("turns", "turns", None, None), {"turns": [["Ann", ""]]}, "is empty"),
        (Columns("turns", "turns", None, None), {"turns": "no role here\nAnn: a"}, "first line has no 'role: '"),
        (Columns("text", "text", "summary", None), {"text": "a"}, "'summary' is missing"),
        (Columns("text", "text", "summary", None), {"text": "a", "summary": ""}, "'summary' is empty"),
        (Columns("text", "text", "summary", None), {"text": "a", "summary": 1}, "'summary' must hold a string"),
        (Columns("sections", "text", None, None), {"sections": [["a", 1]]}, "sections"),
    ],
)
def test_records_that_do_not_fit_say_why(columns, row, message):
    with pytest.raises(BadRecord, match=message):
        normalize(row, columns)


@pytest.mark.parametrize(
    ("value", "articles"),
    [
        ("One. ||||| Two |  three.|||||", ["One.", "Two |  three."]),
        ("One.\nstory_separator_special_tag\nTwo.", ["One.", "Two."]),
        ("Alone.", ["Alone."]),
        (["a ||||| b", "c"], ["a ||||| b", "c"]),
    ],
)
def test_articles_in_one_string(value, articles):
    """As Multi-News has them, in its two releases."""
    columns = resolve_columns({"document": value, "summary": "s"}, None, None, source_kind="documents")
    assert normalize({"document": value, "summary": "s"}, columns)["documents"] == articles


@pytest.mark.parametrize("value", ["|||||", " ||||| ", ""])
def test_no_article_at_all(value):
    with pytest.raises(BadRecord, match="is empty"):
        normalize({"document": value}, Columns("document", "documents", None, None))
