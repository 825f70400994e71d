"""The public names as a type checker sees them; `__init__.py` finds them when they are asked for."""

from .bad_lines import LoadReport as LoadReport
from .collator import HierDataCollator as HierDataCollator
from .importance import ImportanceLabels as ImportanceLabels
from .importance import importance_spans as importance_spans
from .key_phrases import fit_key_phrases as fit_key_phrases
from .loading import BadLineError as BadLineError
from .loading import load_documents as load_documents
from .masking import MaskingCollator as MaskingCollator
from .packing import PackingReport as PackingReport
from .packing import pack_documents as pack_documents
from .parallel import ChunkReport as ChunkReport
from .parallel import chunk_parallel as chunk_parallel
from .parallel import load_parallel as load_parallel
from .poems import character_coverage as character_coverage
from .poems import load_poems as load_poems
from .poems import tokenize_poems as tokenize_poems
from .poems import write_quatrains as write_quatrains
from .question_answering import Answer as Answer
from .question_answering import Prediction as Prediction
from .question_answering import QuestionReport as QuestionReport
from .question_answering import find_answers as find_answers
from .question_answering import tokenize_questions as tokenize_questions
from .tokenizer_training import train_characters as train_characters
from .tokenizer_training import train_joint_bpe as train_joint_bpe
from .tokenizer_training import train_word_level as train_word_level
from .tokenizing import TruncationReport as TruncationReport
from .tokenizing import tokenize_documents as tokenize_documents

__all__: list[str]
