"""One record a family: its classes, and all that commands, recipes, reports and model cards say of it.

To add a family, add its record here and its files to `models/`; nothing else names a family. Classes are imported
when they are asked for, so that `import hier_models` is light.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """What there is to say of one architecture."""

    model_type: str  # the end of its files' names, and the `model_type` of its config
    prefix: str  # what the names of its classes begin with
    models: Mapping[str, str]  # Auto class -> model class that it finds
    title: str  # its name on a model card
    summary: str  # what it is, in a few sentences
    paper: str  # as it is cited
    made_for: str
    # Class of its tokenizers: one of Transformers that the paper's checkpoints use, or its own. Here any will do.
    tokenizer: str = "PreTrainedTokenizerFast"
    any_tokenizer: bool = False  # whether `AutoTokenizer` takes that class whatever class a checkpoint names
    pipelines: tuple[str, ...] = ()  # tasks of our pipelines that its models do, the usual one first
    # Auto class -> task of recipes that trains it, where that is another one than the Auto class says.
    tasks: Mapping[str, str] = field(default_factory=dict)
    starts_from: Literal["bart", "roberta"] | None = None  # whose weights it can begin with
    hierarchy: tuple[str, ...] = ()  # settings of its config that say what it has beyond that family
    plain: Mapping[str, Any] = field(default_factory=dict)  # values of its config that take the hierarchy out
    marked: bool = False  # whether its tokenizers set a marker before every sentence
    # Its config's name for the number of positions of a source; None if it reads any length.
    source_positions: str | None = "max_position_embeddings"
    positions_after_padding: bool = False  # whether positions begin behind the padding token's id
    decoder_starts_with: Literal["bos", "eos"] = "eos"
    # Ends of the names of weights that are made anew where a recipe asks for another size of them.
    resized: tuple[str, ...] = ()
    of_training: tuple[str, ...] = ()  # settings of its config that say how it is trained, not what its weights mean
    choices: tuple[str, ...] = ()  # settings that its model card lists, besides those that are numbers
    # Setting -> value -> settings that mean nothing beside that value.
    unused: Mapping[str, Mapping[Any, tuple[str, ...]]] = field(default_factory=dict)
    # Settings of a tiny model, for `--smoke`, beyond the usual ones; None for those that it does not get.
    tiny: Mapping[str, int | None] = field(default_factory=dict)
    # Settings that count a part of another one's number, and keep that part in a tiny model.
    tiny_parts: Mapping[str, str] = field(default_factory=dict)
    # Settings that a tiny checkpoint has from the one in whose place it stands, and their value where that is not
    # here; None for the recipe's own.
    kept: Mapping[str, Any] = field(default_factory=dict)
    # What `hier-models inspect` shows: attention to sentences or rows, highlighting, or how much each level counts.
    report: Literal["sentences", "rows", "highlighting", "levels"] = "sentences"

    @property
    def config(self) -> str:
        """The name of its config class."""
        return f"{self.prefix}Config"

    @property
    def processor(self) -> str:
        """The name of its processor class."""
        return f"{self.prefix}Processor"

    @property
    def classes(self) -> dict[str, str]:
        """The names of its own classes, each with that of the module that defines it."""
        named = {self.config: "configuration", self.processor: "processing", self.tokenizer: "tokenization"}
        named |= dict.fromkeys(self.models.values(), "modeling")
        return {
            name: f"hier_models.models.{kind}_{self.model_type}"
            for name, kind in named.items()
            if name.startswith(self.prefix)
        }

    def load(self, name: str) -> Any:
        """Import one of its classes."""
        return getattr(import_module(self.classes[name]), name)

    def unused_by(self, config: Any) -> set[str]:
        """Tell which settings of a config of the family mean nothing beside its others."""
        return {
            name for setting, values in self.unused.items() for name in values.get(getattr(config, setting, None), ())
        }


_RECORDS = (
    Family(
        model_type="coarse_to_fine_lstm",
        prefix="CoarseToFineLstm",
        models={
            "AutoModel": "CoarseToFineLstmModel",
            "AutoModelForSeq2SeqLM": "CoarseToFineLstmForConditionalGeneration",
        },
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
        pipelines=("summarization", "translation"),
        plain={"attention": "standard"},
        source_positions=None,
        decoder_starts_with="bos",
        of_training=(
            *("num_samples", "selected_rows", "reward_discount", "baseline_rate", "reward_scale"),
            "alternate_soft",
        ),
        choices=("attention", "coarse_representation"),
        kept={"attention": "flat"},  # Model 1, whose weights all others have
        report="rows",
    ),
    Family(
        model_type="ham",
        prefix="Ham",
        models={"AutoModel": "HamModel", "AutoModelForSeq2SeqLM": "HamForConditionalGeneration"},
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
        pipelines=("summarization", "translation", "poem-generation"),
        hierarchy=("attention_depth",),
        plain={"attention_depth": 1},
        resized=("level_weights", "level_weights.logits"),
        choices=("body", "level_weights", "attention_scoring", "attention_keys"),
        unused={
            "body": {
                "gru": (
                    *("encoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim"),
                    *("max_position_embeddings", "attention_keys"),
                )
            }
        },
        tiny={"encoder_attention_heads": None, "decoder_attention_heads": None},  # its bodies have their own
        kept={"body": None},
        report="levels",
    ),
    Family(
        model_type="ham_reader",
        prefix="HamReader",
        models={"AutoModelForQuestionAnswering": "HamReaderForQuestionAnswering"},
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
        pipelines=("reading-comprehension",),
        tasks={"AutoModelForQuestionAnswering": "reading_comprehension"},
        source_positions=None,
        resized=("level_weights", "level_weights.logits"),
        choices=("reader", "level_weights"),
        report="levels",
    ),
    Family(
        model_type="hat_bart",
        prefix="HatBart",
        models={"AutoModel": "HatBartModel", "AutoModelForSeq2SeqLM": "HatBartForConditionalGeneration"},
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
        tokenizer="HatBartTokenizer",  # it sets the markers, for scripts that know tokenizers only
        any_tokenizer=True,
        pipelines=("summarization", "translation"),
        starts_from="bart",
        hierarchy=(
            *("hierarchical_layers", "num_segments", "use_copy", "copy_head", "new_modules", "silent_markers"),
            "sentence_position_embeddings",
        ),
        plain={"hierarchical_layers": 0, "num_segments": 0},
        marked=True,
        resized=("embed_segments.weight",),
        of_training=("new_modules",),
        choices=("use_copy",),
    ),
    Family(
        model_type="hat_encoder",
        prefix="HatEncoder",
        models={
            "AutoModel": "HatEncoderModel",
            "AutoModelForMaskedLM": "HatEncoderForMaskedLM",
            "AutoModelForSequenceClassification": "HatEncoderForSequenceClassification",
            "AutoModelForMultipleChoice": "HatEncoderForMultipleChoice",
            "AutoModelForQuestionAnswering": "HatEncoderForQuestionAnswering",
            "AutoModelForTokenClassification": "HatEncoderForTokenClassification",
        },
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
        tokenizer="HatEncoderTokenizer",  # it sets the markers, also in pipelines that know tokenizers only
        starts_from="roberta",
        hierarchy=("hierarchical_attention", "hierarchical_queries", "new_modules", "silent_markers"),
        plain={"hierarchical_attention": False},
        marked=True,
        positions_after_padding=True,
        of_training=("new_modules",),
        choices=("hierarchical_attention", "hierarchical_queries"),
    ),
    Family(
        model_type="highlight_transformer",
        prefix="HighlightTransformer",
        models={
            "AutoModel": "HighlightTransformerModel",
            "AutoModelForSeq2SeqLM": "HighlightTransformerForConditionalGeneration",
        },
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
        tokenizer="RobertaTokenizer",  # what AutoTokenizer gives for BART
        pipelines=("summarization", "translation"),
        starts_from="bart",
        hierarchy=(
            *("highlighting", "highlight_heads", "highlight_layers", "brightness", "brightness_decay"),
            *("max_phrase_length", "use_copy", "copy_head", "new_modules"),
        ),
        plain={"highlight_heads": 0, "use_copy": False},
        of_training=("new_modules", "brightness", "brightness_decay"),
        choices=("highlighting", "brightness", "brightness_decay", "use_copy"),
        tiny_parts={"highlight_heads": "encoder_attention_heads", "highlight_layers": "encoder_layers"},
        report="highlighting",
    ),
    Family(
        model_type="top_down_transformer",
        prefix="TopDownTransformer",
        models={
            "AutoModel": "TopDownTransformerModel",
            "AutoModelForSeq2SeqLM": "TopDownTransformerForConditionalGeneration",
            "AutoModelForTextEncoding": "TopDownTransformerEncoderModel",
            "AutoModelForTokenClassification": "TopDownTransformerForTokenClassification",
        },
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
        tokenizer="RobertaTokenizer",  # what AutoTokenizer gives for BART
        pipelines=("summarization", "translation"),
        tasks={"AutoModelForTokenClassification": "importance_tagging"},
        starts_from="bart",
        hierarchy=(
            *("bottom_up_layers", "top_down_layers", "segment_layers", "attention_window", "pooling"),
            *("pooling_kernel", "pooling_stride", "top_down_update", "use_copy", "copy_head", "new_modules"),
            "segment_position_embeddings",
        ),
        plain={"top_down_update": "none"},
        source_positions="max_encoder_position_embeddings",
        of_training=("new_modules",),
        choices=("pooling", "top_down_update", "use_copy"),
        tiny={"bottom_up_layers": 1, "top_down_layers": 1, "segment_layers": 1},
    ),
)

# By `model_type`.
FAMILIES = {family.model_type: family for family in _RECORDS}
