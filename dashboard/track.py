"""The scrubber's picture: the pool's composition over all that can be shown, in few numbers."""

from typing import Any

import numpy as np

BUCKETS = 240


def track(rows: np.ndarray, oldest: int, newest: int, num_blocks: int) -> dict[str, Any]:
    """Shares of the pool by stretch of records, and where something happened.

    `active` and `cached` are tenths of a percent of the pool, -1 where no record is kept. `marks`
    are [bucket, preemptions]; `holes` the buckets in which records are missing. A bucket covers
    (newest - oldest) / len(active) records.
    """
    rows = rows[int(np.searchsorted(rows["seq"], oldest, side="left")) :]
    span = max(1, newest - oldest)
    buckets = min(BUCKETS, span)
    at = np.minimum((rows["seq"] - oldest) * buckets // (span + 1), buckets - 1).astype(np.int64)
    records = np.bincount(at, minlength=buckets)

    def share(blocks: np.ndarray) -> list[int]:
        sums = np.bincount(at, blocks, minlength=buckets)
        means = np.round(1000 * sums / (np.maximum(records, 1) * num_blocks)).astype(int)
        return np.where(records > 0, means, -1).tolist()

    preempted = np.bincount(at, rows["preemptions"], minlength=buckets).astype(int)
    marked = np.flatnonzero(preempted)
    missing = np.flatnonzero(np.diff(rows["segment"]) > 0) + 1
    return {
        "oldest": oldest,
        "newest": newest,
        "active": share(rows["used"] + rows["shared"]),
        "cached": share(rows["cached"]),
        "marks": [[int(i), int(preempted[i])] for i in marked],
        "holes": sorted({int(i) for i in at[missing]}),
    }
