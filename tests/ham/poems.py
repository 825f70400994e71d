"""Quatrains written for the tests, and what is made of them."""

from hier_models import HamProcessor
from hier_models.data import train_characters
from hier_models.models.keywords import PoemKeywords


FIVE = [
    ["小院春风起", "花开一树红", "客来同饮酒", "月在画楼东"],
    ["雨过青山静", "云归古寺深", "老僧闲煮茗", "不问世间心"],
    ["春风吹古寺", "明月照青山", "白云千里外", "孤雁几时还"],
]
SEVEN = [
    ["小院春风昨夜来", "满庭花树一时开", "老翁扶杖花前立", "笑看儿童折几枚"],
    ["雨过青山分外明", "小桥流水伴人行", "不知何处吹长笛", "惊起林间鸟数声"],
    ["春风明月满江楼", "白云千里见孤舟", "故人此去无消息", "一片青山万古愁"],
]
POEMS = [*FIVE, *SEVEN]


def poem_processor(unit: str = "characters") -> HamProcessor:
    tokenizer = train_characters(line for poem in POEMS for line in poem)
    return HamProcessor(tokenizer, PoemKeywords.fit(POEMS, unit, min_count=1))
