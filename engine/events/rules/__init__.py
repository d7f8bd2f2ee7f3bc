"""What must hold of every record, rule by rule, seen from the records alone.

    broken.py     the rules' sentences, and what is raised where one does not hold
    blocks.py     who may take, share, write, copy, cache and evict which block
    sequences.py  who may run, wait, be preempted, and how much
    books.py      numbers, totals, queues, keyframes and ended requests

Each class of rules watches events before they take effect, beside the one PoolState that folds them.
The numbers are those of docs/architecture.md.
"""
