"""The lessons of the page "Lessons", in the order in which they are told."""

from dashboard.lessons import block_table, copy_on_write, seventeenth_token, sharing

LESSONS = (
    seventeenth_token.LESSON,
    block_table.LESSON,
    sharing.LESSON,
    copy_on_write.LESSON,
)
"""One module each. `name` is unique: it stands in addresses."""
