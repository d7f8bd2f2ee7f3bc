"""GET /v1/pool: the pool as it is now, for people with curl and for tests of viewers."""

import asyncio

import msgspec
from fastapi import APIRouter, Request, Response

from engine.events import PoolState
from engine.service.answer_models import errors
from engine.service.context import ServiceContext

router = APIRouter(tags=["pool"])


class Owner(msgspec.Struct):
    """One block table entry that points at the block."""

    request: str
    sequence: int
    index: int


class Block(msgspec.Struct):
    """A block with content. `filled` counts slots with KV, `last_change` is a record's seq."""

    block: int
    state: str
    ref_count: int
    filled: int
    last_change: int
    hash: str | None
    owners: list[Owner]


class PooledSequence(msgspec.Struct):
    """`table` lists physical blocks by logical index; `computed` counts tokens with KV."""

    sequence: int
    status: str
    computed: int
    preemptions: int
    table: list[int]


class PooledRequest(msgspec.Struct):
    """Seconds of `age` since it arrived."""

    request: str
    prompt_tokens: int
    n: int
    max_tokens: int
    age: float
    preemptions: int
    recomputed_tokens: int
    sequences: list[PooledSequence]


class Pool(msgspec.Struct):
    """The state after step record `seq` of engine `engine_id`; free + cached + active = num_blocks."""

    engine_id: str
    seq: int
    step: int
    block_size: int
    num_blocks: int
    free: int
    cached: int
    active: int
    shared: int
    slots_filled: int
    slots_allocated: int
    blocks: list[Block]
    requests: list[PooledRequest]


@router.get(
    "/v1/pool",
    summary="The block pool now",
    response_model=None,
    responses={200: {"description": "Active and cached blocks, and who owns them"}}
    | errors(401, 403, 503),
)
async def pool(http: Request) -> Response:
    """Blocks with their owners, requests with their block tables. Blocks without content are left out."""
    context: ServiceContext = http.app.state.context
    keyframe = await context.keyframe()

    def body() -> bytes:
        state = PoolState(context.header)
        state.apply(keyframe)
        return msgspec.json.encode(_pool(state))

    return Response(await asyncio.to_thread(body), media_type="application/json")


def _pool(state: PoolState) -> Pool:
    sequences: dict[str, list[PooledSequence]] = {request: [] for request in state.requests}
    for s in state.sequences.values():
        sequences[s.request].append(
            PooledSequence(s.sequence, str(s.status), s.computed, s.preemptions, s.table)
        )
    return Pool(
        engine_id=state.header.engine_id,
        seq=state.seq,
        step=state.step,
        block_size=state.block_size,
        num_blocks=state.num_blocks,
        free=state.free_blocks,
        cached=state.cached_blocks,
        active=state.active_blocks,
        shared=state.shared_blocks,
        slots_filled=state.slots_filled,
        slots_allocated=state.slots_allocated,
        blocks=[_block(state, block) for block in sorted({*state.owners, *state.hashes})],
        requests=[
            PooledRequest(
                r.request,
                r.prompt_tokens,
                r.n,
                r.max_tokens,
                state.time - r.arrived,
                r.preemptions,
                r.recomputed_tokens,
                sequences[r.request],
            )
            for r in state.requests.values()
        ],
    )


def _block(state: PoolState, block: int) -> Block:
    owners = state.owners.get(block, {})
    return Block(
        block,
        "active" if owners else "cached",
        state.ref_count[block],
        state.filled[block],
        state.last_change[block],
        state.hashes.get(block),
        [Owner(state.sequences[s].request, s, index) for s, index in owners.items()],
    )
