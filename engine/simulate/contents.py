"""Which blocks of a recorded run held equal tokens, from the hashes that its records tell.

A hash names a block's content and everything before it:

    request A   [ h1 ][ h2 ][ own    ]          cache(h1), cache(h2, parent h1), …
    request B   [ h1 ][ h2 ][ h7 ][ own ]       share, share, cache(h7, parent h2)

A full block that entered no index, though caching was on, was equal to one that is in it. Which one
follows from a later block of the same sequence, whose parents it names, or from there being only one.
Partial blocks have no hash: nothing is known to be equal to them.
"""

import hashlib

from engine.events.records import (
    Allocate,
    AnyEvent,
    Cache,
    Computed,
    CopyOnWrite,
    Evict,
    Fork,
    Keyframe,
    PoolReset,
    Preempt,
    PrefixLookup,
    Release,
    RequestAdded,
    Share,
)

FEWEST_HASH_BITS = 32
"""With shorter keys a block is kept out of the index by other contents too often."""


class BlockNames:
    """Follows tables and hashes; `of(sequence)` names its full blocks, None where nothing is known."""

    def __init__(self, block_size: int, caching: bool) -> None:
        self.block_size = block_size
        self.caching = caching
        self._names: dict[int, list[str | None]] = {}
        self._tables: dict[int, list[int]] = {}
        self._computed: dict[int, int] = {}
        self._family: dict[int, list[int]] = {}
        self._hashes: dict[int, str] = {}
        self._parents: dict[str, str | None] = {}
        self._alive: dict[str | None, set[str]] = {}
        self._writing: tuple[int, int, int] = (-1, 0, 0)

    def load(self, keyframe: Keyframe) -> None:
        """Begin, or go on after a gap."""
        self._hashes = {row.block: row.hash for row in keyframe.blocks if row.hash is not None}
        self._alive = {}
        for name in self._hashes.values():
            self._alive.setdefault(self._parents.get(name), set()).add(name)
        self._tables = {row.sequence: list(row.table) for row in keyframe.sequences}
        self._computed = {row.sequence: row.computed for row in keyframe.sequences}
        families: dict[str, list[int]] = {}
        for row in keyframe.sequences:
            self._family[row.sequence] = families.setdefault(row.request, [])
            families[row.request].append(row.sequence)
            self._names.setdefault(row.sequence, [])
            full = row.computed // self.block_size
            for index, block in enumerate(row.table[:full]):
                self._name(row.sequence, index, self._hashes.get(block))

    def apply(self, event: AnyEvent) -> None:
        """Follow one event, in order."""
        match event:
            case Computed(sequence, tokens):
                self._compute(sequence, tokens)
            case Allocate(block, sequence):
                self._tables[sequence].append(block)
            case Release(sequence=sequence):
                self._tables[sequence].pop()
            case Cache(block, name, parent):
                self._cache(block, name, parent)
            case Share(block, sequence, index):
                self._tables[sequence].append(block)
                self._name(sequence, index, self._hashes.get(block))
            case Evict(block, name):
                self._hashes.pop(block, None)
                self._alive.get(self._parents.get(name), set()).discard(name)
            case CopyOnWrite(target=target, sequence=sequence, index=index):
                self._tables[sequence][index] = target
            case RequestAdded(sequence=sequence):
                self._begin(sequence, [sequence])
            case Fork(parent, child):
                self._begin(child, self._family[parent])
                self._family[parent].append(child)
                self._computed[child] = self._computed[parent]
                self._names[child] = list(self._names[parent])
            case PrefixLookup(sequence=sequence, hit=hit):
                self._computed[sequence] = hit
            case Preempt(sequence=sequence):
                self._computed[sequence] = 0
            case PoolReset():
                self._hashes.clear()
                self._alive.clear()

    def of(self, sequence: int) -> list[str | None]:
        """Names of full blocks by index, as far as they are known, at the end."""
        names = list(self._names.get(sequence, ()))
        for index in range(len(names) - 1, 0, -1):
            if names[index - 1] is None and names[index] is not None:
                names[index - 1] = self._parents.get(names[index])
        return names

    def _begin(self, sequence: int, family: list[int]) -> None:
        self._names[sequence] = []
        self._tables[sequence] = []
        self._computed[sequence] = 0
        self._family[sequence] = family

    def _name(self, sequence: int, index: int, name: str | None) -> None:
        names = self._names.setdefault(sequence, [])
        names.extend([None] * (index + 1 - len(names)))
        if name is not None:
            names[index] = name

    def _compute(self, sequence: int, tokens: int) -> None:
        start = self._computed[sequence]
        end = self._computed[sequence] = start + tokens
        first, last = start // self.block_size, end // self.block_size
        # Those that enter the index say so right after; for the others this is all there is.
        self._writing = (sequence, first, last)
        table = self._tables[sequence]
        for index in range(first, min(last, len(table))):
            known = self._hashes.get(table[index])
            self._name(sequence, index, known or self._equal_to(sequence, index))

    def _cache(self, block: int, name: str, parent: str | None) -> None:
        self._hashes[block] = name
        self._parents[name] = parent
        self._alive.setdefault(parent, set()).add(name)
        sequence, first, last = self._writing
        table = self._tables.get(sequence, [])
        for index in range(first, min(last, len(table))):
            if table[index] == block:
                self._name(sequence, index, name)

    def _equal_to(self, sequence: int, index: int) -> str | None:
        """Which indexed block a full one equals, if it should enter no index: where only one can be."""
        names = self._names[sequence]
        if not self.caching or (index and names[index - 1] is None):
            return None
        alive = self._alive.get(names[index - 1] if index else None, set())
        if len(alive) != 1:
            alive = alive & {
                other[index]
                for other in map(self._names.__getitem__, self._family[sequence])
                if index < len(other)
            }
        return next(iter(alive)) if len(alive) == 1 else None


class Contents:
    """Made-up tokens for named blocks and for all that has no name: equal names, equal tokens."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: dict[str, bytes] = {}

    def tokens(
        self, request: str, names: list[list[str | None]], prompt: int, lengths: list[int]
    ) -> tuple[bytes, list[bytes]]:
        """The prompt of `prompt` tokens and the outputs of a request's sequences, by their names."""
        size = self.block_size
        whole, rest = divmod(prompt, size)
        own = _random(f"{request} prompt", prompt)
        shared = [_first(_called(names, index)) for index in range(whole)]
        parts = [
            own[i * size : (i + 1) * size] if name is None else self._block(name)
            for i, name in enumerate(shared)
        ]
        parts.append(self._tail(names, whole, rest, own[whole * size :]))
        outputs = []
        for number, length in enumerate(lengths):
            said = bytearray(_random(f"{request} output {number}", length))
            for index, name in enumerate(names[number] if number < len(names) else ()):
                begin, end = index * size - prompt, (index + 1) * size - prompt
                if name is not None and end > 0 and begin < length:
                    block = self._block(name)[max(0, -begin) : max(0, length - begin)]
                    said[max(0, begin) : max(0, begin) + len(block)] = block
            outputs.append(bytes(said))
        return b"".join(parts), outputs

    def _tail(self, names: list[list[str | None]], index: int, rest: int, own: bytes) -> bytes:
        """The prompt's part of the block that outputs go on in, which is the same for all of them."""
        if not rest:
            return b""
        known = _called(names, index)
        if not known:
            return own
        tail = self._block(known[0])[:rest]
        for name in known[1:]:
            self._blocks.setdefault(name, tail + _random(name, self.block_size)[rest:])
        return tail

    def _block(self, name: str) -> bytes:
        if name not in self._blocks:
            self._blocks[name] = _random(name, self.block_size)
        return self._blocks[name]


def _called(names: list[list[str | None]], index: int) -> list[str]:
    """What the sequences of a request are known to call their block at `index`."""
    return [of[index] for of in names if index < len(of) and of[index] is not None]


def _first(names: list[str]) -> str | None:
    return names[0] if names else None


def _random(name: str, count: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(count)
