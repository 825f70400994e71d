"""What a model card says of a family and a head, and how to use them, whatever the checkpoint; names of them."""

import re
from dataclasses import dataclass
from pathlib import Path


NOT_GIVEN = "Not given."

# The checkpoint that comes with the package: what users call it, and its folder.
MINI_NAME = "mini"
MINI = str(Path(__file__).parent / "models" / MINI_NAME)


@dataclass(frozen=True)
class Architecture:
    """What the model card says about a family, whatever the checkpoint.

    Args:
        title: name of the architecture.
        summary: what it is, in a few sentences.
        paper: the paper, as it is cited.
        made_for: what the architecture is for.
    """

    title: str
    summary: str
    paper: str
    made_for: str


# By `model_type`.
ARCHITECTURES = {
    "coarse_to_fine_lstm": Architecture(
        title="Coarse-to-Fine LSTM",
        summary=(
            "An LSTM encoder-decoder that attends first to the rows of a document, its sentences, and then to the "
            "words of a row. Rows are represented by a convolution over word embeddings or a bag of words. With hard "
            "attention, the word LSTM reads only the rows that the decoder selects, so that a decoding step costs the "
            "same however long the document is."
        ),
        paper=(
            "Jeffrey Ling: Coarse-to-Fine Attention Models for Document Summarization. Bachelor's thesis, Harvard "
            "College, 2017. In short, with Alexander Rush, at the Workshop on New Frontiers in Summarization, 2017."
        ),
        made_for="abstractive summarization of long documents in one sentence",
    ),
    "ham": Architecture(
        title="HAM",
        summary=(
            "An encoder-decoder with hierarchical attention: each level attends with the last level's result as its "
            "query, and the output is the sum of all levels, weighed by learned numbers. The body is a bidirectional "
            "GRU with a GRU decoder, or a Transformer."
        ),
        paper=(
            "Zehao Dou and Zhihua Zhang: Hierarchical Attention: What Really Counts in Various NLP Tasks. 2018. "
            "https://arxiv.org/abs/1808.03728. The poem model's body is that of Zhe Wang et al.: Chinese Poetry "
            "Generation with Planning based Neural Network. 2016. https://arxiv.org/abs/1610.09889"
        ),
        made_for="Chinese quatrains, translation and short summaries",
    ),
    "ham_reader": Architecture(
        title="HAM reader",
        summary=(
            "A reader, BiDAF, Match-LSTM or R-NET, whose attentions are hierarchical: each level attends with what "
            "the last level attended to as its query, and the output is the sum of all levels, weighed by learned "
            "numbers."
        ),
        paper=(
            "Zehao Dou and Zhihua Zhang: Hierarchical Attention: What Really Counts in Various NLP Tasks. 2018. "
            "https://arxiv.org/abs/1808.03728. The readers are those of Minjoon Seo et al. 2016, Shuohang Wang and "
            "Jing Jiang 2016, and Wenhui Wang et al. 2017."
        ),
        made_for="answering questions with spans of one or several documents",
    ),
    "hat_bart": Architecture(
        title="HAT-BART",
        summary=(
            "BART with hierarchical attention. A BOS token stands before every sentence of the source. After the "
            "token-level encoder, hierarchical encoder layers attend over the states at the BOS tokens only, and each "
            "decoder layer attends to the tokens and then to these sentence states."
        ),
        paper=(
            "Tobias Rohde, Xiaoxia Wu and Yinhan Liu: Hierarchical Learning for Generation with Long Source "
            "Sequences. 2021. https://arxiv.org/abs/2104.07545"
        ),
        made_for=(
            "abstractive summarization of long documents, dialogues and meetings, and translation of whole documents"
        ),
    ),
    "hat_encoder": Architecture(
        title="HAT (encoder)",
        summary=(
            "RoBERTa with hierarchical attention. A BOS token stands before every sentence. In every layer, after the "
            "self-attention, there is an attention over the states at these BOS tokens."
        ),
        paper=(
            "Tobias Rohde, Xiaoxia Wu and Yinhan Liu: Hierarchical Learning for Generation with Long Source "
            "Sequences. 2021. https://arxiv.org/abs/2104.07545"
        ),
        made_for="pretraining by masked language modeling, and classification, multiple choice and question answering",
    ),
    "highlight_transformer": Architecture(
        title="Highlight-Transformer",
        summary=(
            "A Transformer that reads several articles as one source. Key phrases, with their importance, raise the "
            "attention between their own tokens in some heads of some encoder layers. The decoder generates tokens or "
            "copies them from the source."
        ),
        paper=(
            "Shuaiqi Liu, Jiannong Cao, Ruosong Yang and Zhiyuan Wen: Highlight-Transformer: Leveraging Key Phrase "
            "Aware Attention to Improve Abstractive Multi-Document Summarization. Findings of ACL-IJCNLP 2021. "
            "https://aclanthology.org/2021.findings-acl.445"
        ),
        made_for="abstractive summarization of several articles about one event",
    ),
    "top_down_transformer": Architecture(
        title="Top-Down Transformer",
        summary=(
            "BART for long documents. The first encoder layers attend to a window around each token. Their states are "
            "pooled into segments, which attend to each other. The last encoder layers attend to a window and to the "
            "segments, so that each token sees the whole document at a cost that grows linearly with it. The decoder "
            "attends to the tokens."
        ),
        paper=(
            "Bo Pang, Erik Nijkamp, Wojciech Kryściński, Silvio Savarese, Yingbo Zhou and Caiming Xiong: Long "
            "Document Summarization with Top-down and Bottom-up Inference. 2022. https://arxiv.org/abs/2203.07586"
        ),
        made_for="abstractive summarization of long documents and of books, chapter by chapter",
    ),
}


@dataclass(frozen=True)
class Head:
    """What the model card says about the head of a model that does not generate.

    Args:
        task: its task, by the Hub's name.
        has_pipeline: whether Transformers has a pipeline for it.
        example: a call of the pipeline.
        inputs: arguments of the processor.
        result: what to print of `outputs`.
    """

    task: str
    has_pipeline: bool
    example: str
    inputs: str
    result: str


# The head of a reader, which has inputs and a pipeline of its own.
READER_HEAD = Head(
    task="reading-comprehension",
    has_pipeline=True,
    example='run(question="When was it closed?", context="The bridge was closed on Monday.")',
    inputs='question="When was it closed?", context="The bridge was closed on Monday."',
    result="outputs.start_logits.argmax(-1), outputs.end_logits.argmax(-1)",
)

_TEXT = '"The bridge was closed on Monday. Repairs will take six weeks."'

# By Auto class.
HEADS = {
    "AutoModelForMaskedLM": Head(
        task="fill-mask",
        has_pipeline=True,
        example='run(f"The bridge was closed. Repairs will take six {run.tokenizer.mask_token}.")',
        inputs='text="The bridge was closed. Repairs take six <mask>.", split_special_tokens=False',
        result="outputs.logits.argmax(-1)",
    ),
    "AutoModelForTextEncoding": Head(
        task="feature-extraction",
        has_pipeline=False,
        example="",
        inputs=f"text={_TEXT}",
        result="outputs.last_hidden_state",
    ),
    "AutoModelForSequenceClassification": Head(
        task="text-classification",
        has_pipeline=True,
        example=f"run({_TEXT})",
        inputs=f"text={_TEXT}",
        result="outputs.logits.softmax(-1)",
    ),
    "AutoModelForTokenClassification": Head(
        task="token-classification",
        has_pipeline=True,
        example=f"run({_TEXT})",
        inputs=f"text={_TEXT}",
        result="outputs.logits.argmax(-1)",
    ),
    "AutoModelForQuestionAnswering": Head(
        task="question-answering",
        has_pipeline=False,
        example="",
        inputs=f'text="When was the bridge closed?", text_pair={_TEXT}',
        result="outputs.start_logits.argmax(-1), outputs.end_logits.argmax(-1)",
    ),
    "AutoModelForMultipleChoice": Head(
        task="multiple-choice",
        has_pipeline=False,
        example="",
        inputs=f'text={_TEXT}, text_pair="When was it closed?", choices=["On Monday.", "Never."], padding=True',
        result="outputs.logits.softmax(-1)",
    ),
}


TEMPLATE = """
# {name}

A {architecture} checkpoint, exported with hier_models.

{usage}
## Architecture

{summary}

{sizes}

## Paper

{paper}

## Training data

{data}

## Training

Started from: {base_model}

Hyperparameters:

{hyperparameters}

## Metrics

Measured on: {evaluated_on}

{metrics}

## Generation settings

{generation}

## Intended use

{intended_use}

## Limits

{limits}

## License

Weights: {license} The code files in this repository are part of hier_models, under Apache-2.0.
"""

USAGE_OF_TASK = {
    "summarization": {"verb": "summarize", "option": "return_truncation"},
    "translation": {"verb": "translate", "option": "return_chunks"},
}

USAGE_PIPELINE = """## Use

```bash
pip install {libraries}
```

```python
from transformers import pipeline

{verb} = pipeline("{task}", model="{source}", trust_remote_code=True)
print({verb}("A long document. …", {option}=True))
```

Or in parts:

```python
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

model = AutoModelForSeq2SeqLM.from_pretrained("{source}", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("{source}", trust_remote_code=True)
inputs = processor(text="A long document. …", return_tensors="pt")
print(processor.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```

After `import hier_models`, leave out `trust_remote_code=True`.
"""

USAGE_POEMS = """## Use

```bash
pip install {libraries} jieba
```

```python
from transformers import pipeline

write = pipeline("poem-generation", model="{source}", trust_remote_code=True)
print(write("春风吹过江南的小镇", length=5)[0]["poem_text"])
```

The important words of the text become keywords, one a line; `keywords=["明月", "故乡"]` in the place of the text gives
them outright. `length` is 5 or 7. Or in parts, line by line:

```python
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

model = AutoModelForSeq2SeqLM.from_pretrained("{source}", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("{source}", trust_remote_code=True)
inputs = processor(keywords=["春"], lines=[[]], return_tensors="pt")
line = model.generate(**inputs, logits_processor=[processor.line_length(7)])
print(processor.batch_decode(line, skip_special_tokens=True)[0])
```

After `import hier_models`, leave out `trust_remote_code=True`.
"""

USAGE_HEAD_PIPELINE = """
```python
from transformers import pipeline

run = pipeline("{task}", model="{source}", trust_remote_code=True)
print({example})
```

Or in parts:
"""

USAGE_HEAD = """## Use

```bash
pip install {libraries}
```
{pipeline}
```python
from transformers import AutoProcessor, {auto_class}

model = {auto_class}.from_pretrained("{source}", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("{source}", trust_remote_code=True)
inputs = processor({inputs}, return_tensors="pt")
outputs = model(**inputs)
print({result})
```

After `import hier_models`, leave out `trust_remote_code=True`.
"""

USAGE_OTHER = """## Use

```bash
pip install {libraries}
```

```python
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("{source}", trust_remote_code=True)
processor = AutoProcessor.from_pretrained("{source}", trust_remote_code=True)
```

After `import hier_models`, leave out `trust_remote_code=True`.
"""


def resolve_checkpoint(name: str) -> str:
    """Say what to load a checkpoint from.

    Args:
        name: Of a folder, a model on the Hub, or "mini", the checkpoint that comes with the package.

    Returns:
        The folder of "mini", unless a folder here is called so; every other name as it is.
    """
    return MINI if name == MINI_NAME and not Path(name).is_dir() else name


def is_hub_id(name: str) -> bool:
    """Whether a name can only be that of a model on the Hub: written like one, and nothing here is called so.

    Args:
        name: Of a model.

    Returns:
        Whether it is.
    """
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) is not None and not Path(name).exists()


def why_no_checkpoint(name: str) -> str | None:
    """Say why a name is of no checkpoint, as far as can be told without loading anything.

    Args:
        name: Of a folder, a model on the Hub, or "mini".

    Returns:
        The reason, to stand behind the name of an argument, or None.
    """
    if not name:
        return "an empty string names no checkpoint; give a folder, or the id of a model on the Hub"
    name = resolve_checkpoint(name)
    path = Path(name)
    if path.is_file():
        return f"{name!r} is a file; give a folder with a config.json, or the id of a model on the Hub"
    if path.is_dir() and not (path / "config.json").is_file():
        checkpoints = sorted(path.glob("checkpoint-*/config.json"), key=lambda config: config.stat().st_mtime)
        hint = f"; it holds checkpoints, such as {checkpoints[-1].parent}" if checkpoints else ""
        return f"the folder {name!r} is not a checkpoint (it has no config.json){hint}"
    if not path.exists() and not is_hub_id(name):
        return f"there is no folder {name!r}"
    return None
