"""In which order cached blocks were last used, from their releases or from a keyframe."""

from collections.abc import Iterable
from itertools import groupby


class CachedOrder:
    """Blocks with ref count 0 and content, the least recently used first.

    A keyframe tells only in which record each was released: those of one record are a group, within
    which any may go first.
    """

    def __init__(self) -> None:
        self._groups: list[set[int]] = []
        self._in_group: dict[int, set[int]] = {}
        self._exact: dict[int, None] = {}

    def load(self, changes: Iterable[tuple[int, int]]) -> None:
        """Begin with pairs (record of the release, block)."""
        self._exact = {}
        self._groups = [
            {block for _, block in group}
            for _, group in groupby(sorted(changes, reverse=True), key=lambda change: change[0])
        ]
        self._in_group = {block: group for group in self._groups for block in group}

    def add(self, block: int) -> None:
        """It was released just now."""
        self._exact[block] = None

    def take(self, block: int) -> None:
        """It is used again; nothing happens where it was active."""
        if self._in_group:
            self._in_group.pop(block, set()).discard(block)
        self._exact.pop(block, None)

    def evict(self, block: int) -> int | None:
        """Take a block to be evicted; returns the one that should have been, where that is another."""
        while self._groups and not self._groups[-1]:
            self._groups.pop()
        if self._groups:
            oldest = self._groups[-1]
            if block not in oldest:
                return min(oldest)
        else:
            first = next(iter(self._exact), None)
            if block != first:
                return first
        self.take(block)
        return None
