"""KV cache: where the blocks are, what sharing saves, what fragmentation costs."""

from grafana.spec.boards.shared import KV_CACHE, composition
from grafana.spec.colours import BAD, CACHED, COPIED, FINE, PREEMPTED, SHARED, USED
from grafana.spec.metrics import chosen, rate
from grafana.spec.panels import (
    A_SECOND,
    COUNT,
    SHARE,
    Chart,
    Dashboard,
    Heat,
    Mark,
    Panel,
    Query,
    Section,
    recorded,
)
from grafana.spec.parameters import Parameters
from grafana.spec.signals import signals


def kv_cache(parameters: Parameters) -> Dashboard:
    return Dashboard(
        KV_CACHE,
        "Glasspool / KV cache",
        "Where the blocks are, what sharing saves, what fragmentation costs.",
        (
            Section("The pool", _pool(parameters)),
            Section("Sharing", _sharing()),
            Section("Room saved and lost", _room()),
        ),
    )


def _pool(parameters: Parameters) -> tuple[Panel, ...]:
    active = chosen("blocks", state="active")
    return (
        Chart(
            id=1,
            title="Pool composition",
            description="Blocks by state, as shares of the pool.",
            unit=COUNT,
            queries=composition(),
            width=12,
            shares=True,
        ),
        Heat(
            id=2,
            title="Pool in use, by engine",
            description=(
                "Active blocks of all, a row an engine. One bright row beside dark ones: the load "
                "is spread badly, and a larger pool is not what is missing."
            ),
            unit=COUNT,
            cell_unit=SHARE,
            queries=(
                Query(
                    f"sum by (instance) ({active})"
                    f" / sum by (instance) ({chosen('blocks_capacity')})",
                    "{{instance}}",
                ),
            ),
            width=12,
            maximum=1,
            buckets=False,
        ),
        Chart(
            id=3,
            title="Blocks that can be handed out",
            description=(
                "Free and cached blocks of all, on the fullest engine. Below the line and with "
                "requests that wait, a ticket is made."
            ),
            unit=SHARE,
            queries=(
                Query(
                    f"min({recorded(signals(parameters).available_blocks)})", "fullest engine", USED
                ),
            ),
            width=8,
            maximum=1,
            base=BAD,
            marks=(Mark(parameters.limits.available_blocks, FINE),),
        ),
        Chart(
            id=4,
            title="Blocks handed out and released",
            description=(
                "From the free queue, or from the cache, whose content is then lost; released: "
                "the last reference went."
            ),
            unit=A_SECOND,
            queries=(
                Query(f"sum({rate('blocks_allocated_total', source='free')})", "free", CACHED),
                Query(
                    f"sum({rate('blocks_allocated_total', source='evicted')})", "evicted", SHARED
                ),
                Query(f"sum({rate('blocks_released_total')})", "released", USED),
            ),
            width=8,
        ),
        Chart(
            id=5,
            title="Evictions and failed allocations",
            description=(
                "An eviction drops content that a later prompt could have used. A failed "
                "allocation preempts somebody, or makes a request wait."
            ),
            unit=A_SECOND,
            queries=(
                Query(f"sum({rate('blocks_evicted_total')})", "evicted", SHARED),
                Query(f"sum({rate('allocation_failures_total')})", "failed", PREEMPTED),
            ),
            width=8,
        ),
    )


def _sharing() -> tuple[Panel, ...]:
    active, references = chosen("blocks", state="active"), chosen("block_references")
    return (
        Chart(
            id=6,
            title="Shared blocks",
            description="Blocks that more than one sequence uses: equal prompts, or forks.",
            unit=COUNT,
            queries=(Query(f"sum({chosen('blocks_shared')})", "shared", SHARED),),
            width=8,
        ),
        Chart(
            id=7,
            title="Sharing factor",
            description=(
                "References over active blocks: how many times larger the pool would have to be "
                "without sharing. 1: nothing is shared, or nothing runs."
            ),
            unit="suffix:×",
            queries=(
                Query(
                    f"clamp_min(sum({references}) / clamp_min(sum({active}), 1), 1)",
                    "references a block",
                    SHARED,
                ),
            ),
            width=8,
            minimum=1,
        ),
        Chart(
            id=8,
            title="Copies before a write",
            description=(
                "Copy-on-write: a sequence writes to a block that others use. Each costs the "
                "bandwidth of one block; parallel samples make one each for a partial block."
            ),
            unit=A_SECOND,
            queries=(Query(f"sum({rate('cow_copies_total')})", "copies", COPIED),),
            width=8,
        ),
    )


def _room() -> tuple[Panel, ...]:
    queried = f"sum({rate('prefix_cache_queried_tokens_total')})"
    hit = f"sum({rate('prefix_cache_hit_tokens_total')})"
    filled, allocated = chosen("slots_filled"), chosen("slots_allocated")
    return (
        Chart(
            id=9,
            title="Prefix hit rate",
            description=(
                "Prompt tokens whose blocks were found, of those looked up. What a preempted "
                "sequence finds again is not counted."
            ),
            unit=SHARE,
            queries=(Query(f"{hit} / clamp_min({queried}, 1e-9)", "hit", USED),),
            width=12,
            maximum=1,
        ),
        Chart(
            id=10,
            title="Fragmentation",
            description=(
                "Slots of active blocks that hold no token. It is at most the rest of each "
                "sequence's last block; a large share means short sequences or large blocks."
            ),
            unit=SHARE,
            queries=(
                Query(
                    f"1 - sum({filled}) / (sum({allocated}) > 0) or 0 * sum({allocated})",
                    "unfilled",
                    PREEMPTED,
                ),
            ),
            width=12,
            maximum=1,
        ),
    )
