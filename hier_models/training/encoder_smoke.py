"""Rows for `--smoke` of the tasks of encoders: four short stories, and what can be asked and said of them."""

from typing import Any


STORIES = (
    "Marta keeps a bakery by the harbour. Every morning at four she lights the oven. Her brother Paul brings the "
    "flour from the mill. On Sundays the shop stays closed, because both of them sing in the choir.",
    "The old lighthouse was built in 1871. A keeper lived in it with his family for sixty years. Today a machine "
    "turns the lamp. In summer visitors climb the 140 steps and look out over the islands.",
    "Wild geese fly south in October. They travel in the shape of a wedge, and the strongest bird leads. When it is "
    "tired, another one takes its place. Storms can force the whole flock to land on the open sea.",
    "The class planted forty trees behind the school. Three of them died in the dry spring. Ms. Okafor showed the "
    "children how to save water for the others. Now the trees are taller than the fence.",
)
# (story, question, answer, wrong answers)
QUESTIONS: tuple[tuple[int, str, str, tuple[str, str, str]], ...] = (
    (0, "When does Marta light the oven?", "at four", ("at noon", "on Sundays", "never")),
    (0, "Marta's brother brings _ .", "the flour", ("the bread", "the choir", "the oven")),
    (1, "How many steps does the lighthouse have?", "140", ("1871", "sixty", "none")),
    (1, "What turns the lamp today?", "a machine", ("a keeper", "a visitor", "the wind")),
    (2, "Who leads the flock?", "the strongest bird", ("the youngest bird", "a keeper", "nobody")),
    (2, "Geese fly south in _ .", "October", ("April", "summer", "the night")),
    (3, "How many trees died?", "Three", ("Forty", "None", "Two")),
    (3, "Who showed the children how to save water?", "Ms. Okafor", ("Marta", "A machine", "The mill")),
)
UNANSWERED = ("What does the bread cost?", "Who built it?", "How old do geese become?", "Where is the school?")
CLAIM_CLASSES = ("entailment", "contradiction", "neutral")
# A sentence that follows from a story, one that contradicts it, one that it leaves open.
CLAIMS = (
    ("The bakery is closed on Sundays.", "Marta sleeps until nine.", "Paul owns the mill."),
    ("People visit the lighthouse in summer.", "Nobody ever lived in the lighthouse.", "The keeper had three sons."),
    ("Geese take turns at the front.", "Geese stay in one place all year.", "The sea is cold in October."),
    ("Some of the trees died.", "The trees are smaller than the fence.", "The school has a large garden."),
)


def texts(text_column: str | None) -> list[dict[str, Any]]:
    """Make documents to pretrain on."""
    return [
        {text_column or "text": f"{STORIES[i % 4]} {STORIES[(i + 1 + i // 4) % 4]}"} for i in range(2 * len(STORIES))
    ]


def questions(options: Any) -> list[dict[str, Any]]:
    """Make questions on a context, some of them without an answer."""
    question, context = options.question_column or "question", options.context_column or "context"
    answers = options.answers_column or "answers"
    answered = [
        {
            question: text.replace(" _ .", " what?"),
            context: STORIES[story],
            answers: {"text": [answer], "answer_start": [STORIES[story].index(answer)]},
        }
        for story, text, answer, _ in QUESTIONS
    ]
    unanswered = [
        {question: text, context: story, answers: {"text": [], "answer_start": []}}
        for text, story in zip(UNANSWERED, STORIES, strict=True)
    ]
    rows = [answered[0], unanswered[0], answered[1], unanswered[1], *answered[2:], *unanswered[2:]]
    return [{"id": f"smoke-{number}", **row} for number, row in enumerate(rows)]


def labelled_pairs(text_column: str | None, options: Any) -> list[dict[str, Any]]:
    """Make pairs of a story and a sentence, labelled as in MNLI."""
    second, label = options.second_column or "hypothesis", options.label_column or "label"
    rows = []
    for story, claims in zip(STORIES, CLAIMS, strict=True):
        for number, (name, claim) in enumerate(zip(CLAIM_CLASSES, claims, strict=True)):
            value: Any = name
            if options.classes:
                value = options.classes.index(name) if name in options.classes else number % len(options.classes)
            rows.append({text_column or "premise": story, second: claim, label: value})
    return rows


def questions_with_options(options: Any) -> list[dict[str, Any]]:
    """Make questions with four options as in RACE."""
    rows = []
    for number, (story, question, right, wrong) in enumerate(QUESTIONS):
        place = number % 4
        rows.append(
            {
                options.context_column or "article": STORIES[story],
                options.question_column or "question": question,
                options.options_column or "options": [*wrong[:place], right, *wrong[place:]],
                options.answer_column or "answer": "ABCD"[place],
            }
        )
    return rows
