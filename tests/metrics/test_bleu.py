import os

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

import hier_models.metrics.bleu
from hier_models.metrics import Bleu
from tests import forks
from tests.conftest import DOCUMENTS


WORDS = st.sampled_from(["die", "Brücke", "Die", "ist", "zu", ",", "3,5", "nicht.", "„So“", "-"])
TEXTS = st.lists(WORDS, max_size=9).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), lowercase=st.booleans())
def test_the_numbers_are_those_of_sacrebleu(pairs, lowercase):
    predictions, references = map(list, zip(*pairs, strict=True))
    got = Bleu().compute(predictions=predictions, references=references, lowercase=lowercase)
    expected = sacrebleu.corpus_bleu(predictions, [references], lowercase=lowercase)
    assert got["bleu"] == expected.score
    assert got["precisions"] == expected.precisions
    assert (got["bp"], got["sys_len"], got["ref_len"]) == (expected.bp, expected.sys_len, expected.ref_len)
    assert (got["counts"], got["totals"], got["texts"]) == (expected.counts, expected.totals, len(pairs))


def test_documents_are_scored_as_a_whole():
    """The example of a document whose two sentences are translated in the other order."""
    reference = "Der Hund schläft heute sehr lange. Die Katze frisst den ganzen Fisch."
    swapped = "Die Katze frisst den ganzen Fisch. Der Hund schläft heute sehr lange."
    document = Bleu().compute(predictions=[swapped], references=[reference])
    sentences = Bleu().compute(predictions=swapped.split("\n"), references=[reference])
    assert document["bleu"] == sentences["bleu"] > 70
    by_sentence = Bleu().compute(
        predictions=["Die Katze frisst den ganzen Fisch.", "Der Hund schläft heute sehr lange."],
        references=["Der Hund schläft heute sehr lange.", "Die Katze frisst den ganzen Fisch."],
    )
    assert by_sentence["bleu"] < 20


def test_line_breaks_do_not_count():
    """13a joins a word that a hyphen and a line break take apart, and char would count the line break."""
    reference = "Die E- und U-Bahn fährt. Sie fährt oft."
    for tokenize in ("13a", "char", "intl"):
        result = Bleu().compute(
            predictions=[reference.replace("E- und", "E-\nund").replace(" Sie", "\n\nSie")],
            references=[reference],
            tokenize=tokenize,
        )
        assert result["bleu"] == pytest.approx(100)


def test_several_references():
    references = [
        ["Das Haus ist alt und klein.", "Das alte kleine Haus steht da."],
        ["Es regnet.", "Es regnet heute sehr."],
    ]
    predictions = ["Das alte kleine Haus steht da.", "Es regnet heute sehr."]
    metric = Bleu()
    result = metric.compute(predictions=predictions, references=references)
    assert result["bleu"] == pytest.approx(100)
    assert metric.settings["signature"].startswith("nrefs:2|")
    for wrong in ([["a"], ["a", "b"]], [["a"], []]):
        with pytest.raises(ValueError, match="references: every prediction needs as many references"):
            Bleu().compute(predictions=predictions, references=wrong)


def test_the_signature_says_what_the_number_depends_on():
    metric, version = Bleu(), sacrebleu.__version__
    metric.compute(predictions=["a"], references=["a"])
    assert metric.settings["signature"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    metric.compute(
        predictions=["a b"], references=["a"], lowercase=True, tokenize="char", smooth_method="floor", smooth_value=0.2
    )
    assert metric.settings["signature"] == f"nrefs:1|case:lc|eff:no|tok:char|smooth:floor[0.20]|version:{version}"
    for word in ("tokenize", "lowercase", "smooth_method", "signature"):
        assert word in Bleu().inputs_description


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenize": "flores200"}, "tokenize must be one of 13a, intl, zh, .*, got 'flores200'"),
        ({"smooth_method": "none at all"}, "smooth_method must be one of none, floor, add-k, exp, got 'none at all'"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        Bleu().compute(predictions=["a"], references=["a"], **options)


def test_batches_can_be_added():
    metric = Bleu()
    for prediction, reference in zip(DOCUMENTS, reversed(DOCUMENTS), strict=True):
        metric.add(prediction=prediction, reference=reference)
    assert metric.compute() == Bleu().compute(predictions=DOCUMENTS, references=DOCUMENTS[::-1])


OURS = "from hier_models.metrics import Bleu; metric = Bleu()"
BY_PATH = "import evaluate; metric = evaluate.load(sys.argv[1])"


@pytest.mark.parametrize("how", [OURS, BY_PATH])
def test_it_loads_without_a_network(how, tmp_path):
    code = f"""
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("no network in this test")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
{how}
print(metric.compute(predictions=["a b c d"], references=["a b c d"])["bleu"])
"""
    offline = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    environment = {**offline, "HF_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = forks.run(code, hier_models.metrics.bleu.__file__, env=environment, libraries="torch")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == pytest.approx(100)
