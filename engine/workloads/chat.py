"""A small chat workload for the demo: short questions, some of them with several answers.

The prompts are ours, so a run of them may be recorded with its text.
"""

import random
from collections.abc import Iterator

QUESTIONS = [
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a lighthouse keeper who collects clouds.",
    "What should I look at before I buy a used bicycle?",
    "Describe how bread rises, for a child of eight years.",
    "List five things to do on a rainy Sunday and say why.",
    "Write a letter to a neighbour who plays the trumpet at night.",
    "How does a refrigerator keep food cold?",
    "Tell me about the life of a honey bee.",
    "What is the difference between weather and climate?",
    "Give me a plan for learning to swim in six weeks.",
    "Why do leaves change their colour in autumn?",
    "Write four lines about the sea in winter.",
    "How do I explain to my team what a memory allocator does?",
    "What makes a good question?",
    "Describe a day in a small harbour town.",
    "Compare trains and buses for a trip of two hundred kilometres.",
]


def chat_requests(seed: int, max_tokens: tuple[int, int] = (40, 160)) -> Iterator[dict]:
    """Endless bodies for POST /v1/completions; the same for a seed. One in three asks for n > 1.

    `max_tokens` is the range from which the length of each answer is drawn.
    """
    draw = random.Random(seed)
    while True:
        yield {
            "prompt": chat_prompt(draw.choice(QUESTIONS)),
            "n": draw.choice([1, 1, 1, 1, 2, 4]),
            "max_tokens": draw.randint(*max_tokens),
            "temperature": 0.8,
            "top_p": 0.95,
            "seed": draw.getrandbits(31),
        }


def chat_prompt(question: str) -> str:
    """One user turn in the ChatML form that the default model was trained on."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
