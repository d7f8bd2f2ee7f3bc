"""The lessons of the page "Lessons", in the order in which they are told."""

from dashboard.lessons import (
    batch_pays,
    beams,
    block_table,
    copy_on_write,
    eviction_order,
    long_context,
    multi_turn,
    preemption_tax,
    prefix_cache,
    runs_dry,
    seventeenth_token,
    sharing,
    wastes,
    why_sixteen,
)

LESSONS = (
    wastes.LESSON,
    seventeenth_token.LESSON,
    block_table.LESSON,
    sharing.LESSON,
    copy_on_write.LESSON,
    beams.LESSON,
    prefix_cache.LESSON,
    multi_turn.LESSON,
    eviction_order.LESSON,
    runs_dry.LESSON,
    preemption_tax.LESSON,
    why_sixteen.LESSON,
    batch_pays.LESSON,
    long_context.LESSON,
)
"""One module each. `name` is unique: it stands in addresses."""
