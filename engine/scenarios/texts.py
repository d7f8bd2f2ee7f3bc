"""What is said in the recorded runs. All of it was written for this project."""

LIBRARIAN = (
    "You are the librarian of a small town on a river. The library has two floors: stories and "
    "music below, maps and science above. It opens at nine and closes at six, on Sundays it is "
    "closed. Readers may take five books for four weeks. You know the shelves by heart, you never "
    "guess a title, and you answer in two or three friendly sentences. If a book is out, you name "
    "one that is like it. If somebody is in a hurry, you say first where to go, and then why. You "
    "do not give advice on medicine or law, but you show where such books stand."
)
OTHER_LIBRARIAN = LIBRARIAN.replace("You are the librarian of", "Be the librarian of", 1)
"""The same but for its first words."""

REPORT = (
    "Below is the weekly report of a lighthouse. Write four different short headlines for it. "
    "On Monday the lamp was cleaned and the east window was painted. On Tuesday fog came in before "
    "noon and the horn was sounded for five hours. On Wednesday the supply boat brought oil, bread "
    "and a letter. On Thursday nothing happened, which was noted with care. On Friday a heron stood "
    "on the rocks until the tide took its place. On Saturday the wind broke one pane of glass."
)

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_BOATS = ("Anna", "Black Gull", "Corvina", "Dorothea", "Egret")
_CARGO = ("salt", "barley", "slate", "wool", "paper", "lamp oil", "apples", "tin", "rope")


def harbour_log(entries: int) -> str:
    """A long document: one sentence of about 25 tokens an entry, no two alike."""
    lines = [
        f"{_DAYS[number % 7]}, day {number + 1}: the {_BOATS[number % 5]} came in with "
        f"{12 + number * 7 % 41} barrels of {_CARGO[number % 9]} and left again at the "
        f"{'morning' if number % 2 else 'evening'} tide."
        for number in range(entries)
    ]
    return "This is the log of a harbour. " + " ".join(lines) + " Which boat came most often?"


TOPICS = (
    "Describe the first day of a beekeeper in spring, from the cold morning to the last check of the "
    "hives, and name each tool that is used, what it is made of and where it hangs afterwards.",
    "Explain to a traveller how to cross a wide valley without a map, using only the sun, the sound of "
    "water, the slope of the ground and what the trees on both sides of the path look like.",
    "Tell how a small bakery plans its night: when the dough is set, who lights the oven, which bread "
    "goes in first, and what is done with the loaves that nobody has bought by the evening.",
    "Give advice to somebody who wants to repair an old wooden boat alone, in a shed without light, "
    "with one saw, a borrowed plane, a tin of tar and not more than three weeks of time.",
)
"""Prompts of about three blocks each, which share nothing."""
