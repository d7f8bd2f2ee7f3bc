"""Device code and launches that write caches: a step's new keys and values, and copies of blocks.

slot_mapping  [ 19 | 4 | -1 ]        token 0 -> block 1, offset 3 (block_size 16)
                                     token 1 -> block 0, offset 4
                                     token 2 -> nowhere
"""

import torch
import triton
import triton.language as tl

# Words of a block that one program of a copy moves.
COPY_WORDS = 2048
WORDS = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.int8}


@triton.jit
def store_tokens(
    k,
    v,
    k_cache,
    v_cache,
    slots,
    k_token,
    k_head,
    k_dim,
    v_token,
    v_head,
    v_dim,
    k_block,
    k_slot,
    k_cache_head,
    v_block,
    v_slot,
    v_cache_head,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Grid: (tokens,). One program moves one token's K and V, all heads; strides in elements."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    element = tl.arange(0, WIDTH)
    real = element < KV_HEADS * HEAD_DIM
    head = element // HEAD_DIM
    dim = element % HEAD_DIM
    block = slot // BLOCK_SIZE
    offset = slot % BLOCK_SIZE
    new_k = tl.load(k + token * k_token + head * k_head + dim * k_dim, mask=real)
    new_v = tl.load(v + token * v_token + head * v_head + dim * v_dim, mask=real)
    k_at = block * k_block + offset * k_slot + head * k_cache_head + dim
    v_at = block * v_block + offset * v_slot + head * v_cache_head + dim
    tl.store(k_cache + k_at, new_k.to(k_cache.dtype.element_ty), mask=real)
    tl.store(v_cache + v_at, new_v.to(v_cache.dtype.element_ty), mask=real)


@triton.jit
def copy_words(
    job,
    count,
    words,
    caches,
    WORD: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Grid: (pairs, caches, chunks of a block). job: int64, `caches` addresses, sources, targets."""
    pair = tl.program_id(0)
    cache = tl.load(job + tl.program_id(1)).to(tl.pointer_type(WORD))
    source = tl.load(job + caches + pair)
    target = tl.load(job + caches + count + pair)
    word = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    real = word < words
    moved = tl.load(cache + source * words + word, mask=real)
    tl.store(cache + target * words + word, moved, mask=real)


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """As `kernels.torch_twins.write_kv`, without a look at the slots from the host."""
    tokens, kv_heads, head_dim = k.shape
    if not tokens:
        return
    store_tokens[(tokens,)](
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping,
        *k.stride(),
        *v.stride(),
        *k_cache.stride()[:3],
        *v_cache.stride()[:3],
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=k_cache.shape[1],
        WIDTH=triton.next_power_of_2(kv_heads * head_dim),
        num_warps=4,
    )


def copy_blocks(caches: list[torch.Tensor], pairs: list[tuple[int, int]]) -> None:
    """Copy whole blocks (source, target) in every cache, in one launch for all layers.

    Programs run in any order, so no target may be a source, and targets are distinct. The engine
    keeps that: a target is newly taken, and the pool hands no source out before its copies have run
    (`engine.core.block_pool.hold_copy_source`). Caches are contiguous, of one shape and dtype.
    """
    if not pairs:
        return
    targets = {target for _, target in pairs}
    assert len(targets) == len(pairs), "a block is the target of two copies"
    assert not targets.intersection(source for source, _ in pairs), "a target is a source"
    assert all(cache.is_contiguous() for cache in caches)
    block_bytes = caches[0][0].numel() * caches[0].itemsize
    addresses = [cache.data_ptr() for cache in caches]
    # Blocks start at multiples of their size from there, so what divides both is aligned.
    word = next(size for size in WORDS if not any(n % size for n in (block_bytes, *addresses)))
    words = block_bytes // word
    # One tensor, so that one transfer brings it to the GPU.
    job = torch.tensor(
        addresses + [source for source, _ in pairs] + [target for _, target in pairs],
        dtype=torch.int64,
        device=caches[0].device,
    )
    copy_words[(len(pairs), len(caches), triton.cdiv(words, COPY_WORDS))](
        job,
        len(pairs),
        words,
        len(caches),
        WORD=WORDS[word],
        WIDTH=min(COPY_WORDS, triton.next_power_of_2(words)),
        num_warps=4,
    )
