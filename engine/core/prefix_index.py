"""The prefix index: which block holds the KV of which tokens, after which tokens.

    digest(block 0) = H(salt, tokens 0..15)
    digest(block 1) = H(digest(block 0), tokens 16..31)         a chain: equal digest, equal prefix

A key is the first bits of a digest, and holds one block. On a hit the block's whole digest and its
tokens are compared too, so a key that two contents share costs a hit and never gives a wrong one.
Digests are salted: those in records tell nobody what was asked.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct

import msgspec

from engine.core.sequence import Sequence
from engine.events.records import Cache, LookupStop


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """An indexed block: its whole digest, and its tokens as bytes."""

    block: int
    digest: bytes
    content: bytes


@dataclass(frozen=True)
class Hit:
    """The blocks of a prefix that are in the index, and why there are no more."""

    blocks: list[int]
    why: LookupStop


class PrefixIndex:
    """Full, computed blocks by content.

    A key is a digest's first `hash_bits` bits, a multiple of 4, as records show them: in hexadecimal.

    `salt` is drawn anew unless it is given, for a run that is to be repeated bit by bit.
    """

    def __init__(
        self, block_size: int, hash_bits: int, enabled: bool = True, salt: bytes | None = None
    ) -> None:
        self.block_size = block_size
        self.enabled = enabled
        self._digits = hash_bits // 4
        self._pack = Struct(f"{block_size}q").pack
        self._salt = secrets.token_bytes(16) if salt is None else salt
        self._entries: dict[str, IndexEntry] = {}
        self._hashes: dict[int, str] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def copy_of_hashes(self) -> dict[int, str]:
        """The hash of each indexed block, now."""
        return self._hashes.copy()

    def lookup(self, sequence: Sequence) -> Hit:
        """The longest run of indexed blocks that begins the sequence and leaves a token to compute."""
        if not self.enabled or sequence.request.params.prompt_logprobs is not None:
            return Hit([], LookupStop.OFF)
        blocks: list[int] = []
        usable = (len(sequence.tokens) - 1) // self.block_size
        for index in range(usable):
            block = self._find(sequence, index)
            if block is None:
                return Hit(blocks, LookupStop.MISS)
            blocks.append(block)
        whole = len(sequence.tokens) % self.block_size == 0
        return Hit(blocks, LookupStop.LAST_TOKEN_KEPT if whole else LookupStop.SHORTER_THAN_BLOCK)

    def add(self, sequence: Sequence, start: int, end: int) -> Iterator[Cache]:
        """Index blocks start..end of a sequence's table, which are full and computed.

        Tells those that were added. Not added is a block that is indexed already, or whose key holds
        another block: then that one stays.
        """
        if not self.enabled:
            return
        entries, hashes = self._entries, self._hashes
        digests, digits = sequence.digests, self._digits
        before = self._digest(sequence, start - 1)
        parent = before.hex()[:digits] if start else None
        for index in range(start, end):
            content = self._content(sequence, index)
            if index == len(digests):
                digests.append(_chained(before, content))
            before = digests[index]
            key = before.hex()[:digits]
            block = sequence.table[index]
            if key not in entries and block not in hashes:
                entries[key] = IndexEntry(block, before, content)
                hashes[block] = key
                yield Cache(block, key, parent)
            parent = key

    def remove(self, block: int) -> str:
        """Forget a block; returns its hash."""
        key = self._hashes.pop(block)
        del self._entries[key]
        return key

    def clear(self) -> None:
        self._entries.clear()
        self._hashes.clear()

    def _find(self, sequence: Sequence, index: int) -> int | None:
        digest = self._digest(sequence, index)
        entry = self._entries.get(digest.hex()[: self._digits])
        if entry is None:
            return None
        same = entry.digest == digest and entry.content == self._content(sequence, index)
        return entry.block if same else None

    def _content(self, sequence: Sequence, index: int) -> bytes:
        start = index * self.block_size
        return self._pack(*sequence.tokens[start : start + self.block_size])

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """The digest of a full block; -1 is before the first.

        The sequence keeps those that were asked for: its tokens stay.
        """
        if index < 0:
            salt = (sequence.request.cache_salt or "").encode()
            return blake2b(salt, key=self._salt, digest_size=16).digest()
        digests = sequence.digests
        while len(digests) <= index:
            last = len(digests)
            before = self._digest(sequence, last - 1)
            digests.append(_chained(before, self._content(sequence, last)))
        return digests[index]


def _chained(before: bytes, content: bytes) -> bytes:
    return blake2b(before + content, digest_size=16).digest()
