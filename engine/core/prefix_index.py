"""The prefix index: which block holds the KV of which tokens, after which tokens.

    digest(block 0) = H(salt, tokens 0..15)
    digest(block 1) = H(digest(block 0), tokens 16..31)         a chain: equal digest, equal prefix

A key is the first bits of a digest, and holds one block. On a hit the block's whole digest and its
tokens are compared too, so a key that two contents share costs a hit and never gives a wrong one.
Digests are salted: those in records tell nobody what was asked.
"""

import hashlib
import secrets
from array import array
from dataclasses import dataclass

import msgspec

from engine.core.sequence import Sequence
from engine.events.records import LookupStop


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """An indexed block's content. `hash` is its key as records show it."""

    key: int
    digest: bytes
    tokens: tuple[int, ...]
    hash: str


@dataclass(frozen=True)
class Hit:
    """The blocks of a prefix that are in the index, and why there are no more."""

    blocks: list[int]
    why: LookupStop


class PrefixIndex:
    """Full, computed blocks by content. `hash_bits` is the width of a key.

    `salt` is drawn anew unless it is given, for a run that is to be repeated bit by bit.
    """

    def __init__(
        self, block_size: int, hash_bits: int, enabled: bool = True, salt: bytes | None = None
    ) -> None:
        self.block_size = block_size
        self.enabled = enabled
        self._unused_bits = 128 - hash_bits
        self._hash_format = f"0{-(-hash_bits // 4)}x"
        self._salt = secrets.token_bytes(16) if salt is None else salt
        self._blocks: dict[int, int] = {}
        self._entries: dict[int, IndexEntry] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def copy_of_entries(self) -> dict[int, IndexEntry]:
        """Indexed blocks now."""
        return self._entries.copy()

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

    def add(self, sequence: Sequence, index: int, block: int) -> tuple[str, str | None] | None:
        """Index a full, computed block of the sequence; returns its hash and that of the one before.

        None where the block is indexed already, or its key holds another block: then that one stays.
        """
        if not self.enabled or block in self._entries:
            return None
        digest = self._digest(sequence, index)
        key = self._key(digest)
        if key in self._blocks:
            return None
        entry = IndexEntry(key, digest, self._tokens(sequence, index), self._text(key))
        self._blocks[key] = block
        self._entries[block] = entry
        # The digest before this one was needed for it.
        parent = None if index == 0 else self._text(self._key(sequence.digests[index - 1]))
        return entry.hash, parent

    def remove(self, block: int) -> str:
        """Forget a block; returns its hash."""
        entry = self._entries.pop(block)
        del self._blocks[entry.key]
        return entry.hash

    def clear(self) -> None:
        self._blocks.clear()
        self._entries.clear()

    def _find(self, sequence: Sequence, index: int) -> int | None:
        digest = self._digest(sequence, index)
        block = self._blocks.get(self._key(digest))
        if block is None:
            return None
        entry = self._entries[block]
        same = entry.digest == digest and entry.tokens == self._tokens(sequence, index)
        return block if same else None

    def _tokens(self, sequence: Sequence, index: int) -> tuple[int, ...]:
        start = index * self.block_size
        return tuple(sequence.tokens[start : start + self.block_size])

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """The digest of a full block. The sequence keeps those that were asked for: tokens stay."""
        digests = sequence.digests
        while len(digests) <= index:
            before = digests[-1] if digests else self._root(sequence)
            content = array("q", self._tokens(sequence, len(digests))).tobytes()
            digests.append(hashlib.blake2b(before + content, digest_size=16).digest())
        return digests[index]

    def _root(self, sequence: Sequence) -> bytes:
        salt = (sequence.request.cache_salt or "").encode()
        return hashlib.blake2b(salt, key=self._salt, digest_size=16).digest()

    def _key(self, digest: bytes) -> int:
        return int.from_bytes(digest) >> self._unused_bits

    def _text(self, key: int) -> str:
        return format(key, self._hash_format)
