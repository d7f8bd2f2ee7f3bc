"""The detokeniser: text from tokens as they come, ended by stop strings.

    shown, never taken back | may begin a stop string | may be half a character | not drawn yet
    `text` ------------------> held back ------------------------------------->

Two parts follow each other: `_Decoder` turns tokens into settled text, `_StopString` watches it go by.
"""

from collections.abc import Callable
from itertools import compress

Decode = Callable[[list[int]], str]

_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """The text of one sequence's output.

    `decode` turns token ids into text: it leaves out special tokens, shows bytes that are no
    character as U+FFFD, and must not tidy up spaces, which would change text that was shown already.
    `text` is safe to show: it only ever grows at its end, has no half character, and nothing of a
    stop string. Of several stop strings, the one that is complete first ends the text before it,
    and of those complete at the same character the longest: so borders of tokens play no part.
    `stopped` tells that one was found.
    """

    def __init__(self, decode: Decode, stop: tuple[str, ...] = ()) -> None:
        self.text = ""
        self.stopped = False
        self._decoder = _Decoder(decode)
        self._stops = [_StopString(stop_string) for stop_string in stop]
        self._held = ""

    def push(self, token: int) -> bool:
        """Take one token. True once a stop string has been found; later tokens change nothing."""
        if not self.stopped:
            self._show(self._decoder.push(token))
        return self.stopped

    def finish(self) -> None:
        """Show what was held back: the sequence has ended. Nothing is pushed after this."""
        if not self.stopped:
            self._show(self._decoder.finish())
            self.text += self._held
            self._held = ""

    def _show(self, new: str) -> None:
        if not self._stops:
            self.text += new
            return
        for number, character in enumerate(new):
            # Every one takes the character: the longest that is complete decides.
            found = [s.length for s in self._stops if s.push(character)]
            if found:
                text = self._held + new[: number + 1]
                self.text += text[: -max(found)]
                self._held = ""
                self.stopped = True
                return
        text = self._held + new
        shown = len(text) - max(stop.matched for stop in self._stops)
        self.text += text[:shown]
        self._held = text[shown:]


class _StopString:
    """Finds one string in text that comes by the character (Knuth, Morris and Pratt, 1977).

    `matched` is how much of the string's start the text ends with: what must be held back.
    """

    def __init__(self, stop: str) -> None:
        self.length = len(stop)
        self.matched = 0
        self._stop = stop
        # _shorter[i]: the longest start of the string that its first i + 1 characters end with.
        self._shorter = [0] * len(stop)
        for end in range(1, len(stop)):
            self._shorter[end] = self._extend(self._shorter[end - 1], stop[end])

    def push(self, character: str) -> bool:
        """True where the text now ends with the whole string; it is not pushed to after that."""
        self.matched = self._extend(self.matched, character)
        return self.matched == self.length

    def _extend(self, matched: int, character: str) -> int:
        while matched and self._stop[matched] != character:
            matched = self._shorter[matched - 1]
        return matched + (self._stop[matched] == character)


class _Decoder:
    """Settled text from tokens, looking at a few of the last ones only.

        window:  context | new tokens

    A token's text may depend on its neighbour (a space goes with the next word) and may be a part of
    a character. So a window is decoded, and what goes beyond the text told so far is new. Where no
    half character is left at its end, the new tokens become the next window's context.
    """

    # Tokens after which a window that found no clean end is cut: a few decodes, once in a while.
    LIMIT = 16

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._context = 0
        # The part of the window's text that has been told.
        self._told = ""
        self._limit = self.LIMIT

    def push(self, token: int) -> str:
        """The text that is settled by this token."""
        self._window.append(token)
        text = self._decode(self._window)
        settled = text[: len(text) - _unsettled(text)]
        clean = settled == text
        new = ""
        # A decoder may show whole characters as broken while the next one is incomplete (byte
        # fallback does): wait until it shows again what was told.
        if clean or settled.startswith(self._told):
            new = settled[len(self._told) :]
            self._told = settled
        if clean:
            self._slide()
        if len(self._window) > self._limit:
            new += self._cut(text)
        return new

    def finish(self) -> str:
        """The rest, with an incomplete character as the tokenizer shows it."""
        text = self._decode(self._window) if self._window else ""
        new = text[len(self._told) :]
        self._told = text
        return new

    def _slide(self) -> None:
        context = self._window[self._context :]
        text = self._decode(context)
        # Tokens without text (special ones) are no context: the next word would look like the first.
        if text:
            self._window = context
            self._context = len(context)
            self._told = text
            self._limit = self.LIMIT

    def _cut(self, text: str) -> str:
        """Shorten a window that has no clean end for long: endless special tokens, or garbage.

        Returns what this settles.
        """
        visible = [bool(self._decode([token])) for token in self._window]
        without = list(compress(self._window, visible))
        if self._decode(without) == text:
            self._window = without
            self._context = sum(visible[: self._context])
        settled = self._drop_front(text) if len(self._window) > self.LIMIT // 2 else ""
        # Where neither helped, the next try waits, so that tries stay rare.
        self._limit = max(self.LIMIT, 2 * len(self._window))
        return settled

    def _drop_front(self, text: str) -> str:
        """Keep only the last tokens, from a border at which the text falls into two.

        No character crosses such a border, and beyond the text that is kept none can be incomplete.
        """
        for border in range(len(self._window) - 1, 0, -1):
            kept = self._decode(self._window[border:])
            dropped = self._decode(self._window[:border])
            if len(kept) > _LONGEST_UNSETTLED and dropped + kept == text:
                settled = dropped[len(self._told) :]
                self._window = self._window[border:]
                self._context = 0
                self._told = kept[: max(0, len(self._told) - len(dropped))]
                return settled
        return ""


# A character has at most 4 bytes, so that of an incomplete one at most 3 are there.
_LONGEST_UNSETTLED = 3


def _unsettled(text: str) -> int:
    """How many characters at the end may yet become another: U+FFFD for bytes of half a character.

    Decoders show one for the half character or one for each of its bytes.
    """
    return min(len(text) - len(text.rstrip(_BROKEN)), _LONGEST_UNSETTLED)
