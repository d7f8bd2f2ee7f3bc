"""Device code of attention over paged or contiguous keys: one pass, online softmax.

One program takes one tile of one row's queries, for one kv head, and walks over the row's keys:

    tile (BLOCK_M rows)                keys of one kv head, BLOCK_N at a time
      query 7, head 0  ┐               ┌──────────┬──────────┬──────────┬────┐
      query 7, head 1  │ GROUP heads   │  every query sees   │ masked   │    │
      query 7, head 2  ┘ share keys    │  these: no mask     │          │    │
      query 8, head 0                  └──────────┴──────────┴──────────┴────┘
      ...                               slot = table[n // BLOCK_SIZE] * BLOCK_SIZE + n % BLOCK_SIZE

Each key's slot is looked up by itself, so BLOCK_SIZE and BLOCK_N need not know of each other. With
few long rows a row's keys are split over programs, whose results `combine` joins:

    split 0            split 1            split 2          each: output of its keys alone, and
    keys 0..511        512..1023          1024..1300       log2 of its sum of exponentials

Sources: FlashAttention (Dao et al. 2022, online softmax over tiles), Flash-Decoding (Dao et al.
2023, split over keys), PagedAttention (Kwon et al. 2023, keys through a block table).
"""

import triton
import triton.language as tl


@triton.jit
def attend(
    q,
    k,
    v,
    out,
    sums,
    block_tables,
    seq_lens,
    cu_query_lens,
    tiles,
    log2_scale,
    window,
    split_keys,
    q_token,
    q_head,
    k_block,
    k_token,
    k_head,
    v_block,
    v_token,
    v_head,
    table_row,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGED: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Grid: (tiles, kv_heads, splits). Strides are in elements; the last of each tensor is 1.

    q: [tokens, heads, HEAD_DIM]. k, v: [blocks, BLOCK_SIZE, kv_heads, HEAD_DIM] where PAGED, else
    [rows, max_len, kv_heads, HEAD_DIM]. tiles: [tiles, 2] int32, a row and its first query.
    out: [tokens, heads, HEAD_DIM], or with SPLIT [tokens, heads, splits, HEAD_DIM] float32 and sums
    [tokens, heads, splits] float32, of which a program without keys leaves its part as it is.
    """
    QUERIES: tl.constexpr = BLOCK_M // GROUP
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    row = tl.load(tiles + 2 * tile)
    first_query = tl.load(tiles + 2 * tile + 1)
    row_start = tl.load(cu_query_lens + row).to(tl.int32)
    query_count = tl.load(cu_query_lens + row + 1).to(tl.int32) - row_start
    length = tl.load(seq_lens + row).to(tl.int32)

    lane = tl.arange(0, BLOCK_M)
    query = first_query + lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    real = (query < query_count) & (lane < QUERIES * GROUP)
    past = length - query_count
    position = past + query
    begin, end = _seen(past, first_query, query_count, window, QUERIES, BLOCK_N, WINDOW)
    if SPLIT:
        begin += split * split_keys
        end = tl.minimum(end, begin + split_keys)
        if begin >= end:
            return

    dim = tl.arange(0, DIM)
    token = (row_start + query).to(tl.int64)
    q_at = token * q_token + head * q_head
    tile_q = tl.load(
        q + q_at[:, None] + dim[None, :],
        mask=real[:, None] & (dim < HEAD_DIM)[None, :],
        other=0.0,
    )
    if PAGED:
        table = block_tables + row.to(tl.int64) * table_row
    else:
        table = block_tables
        k += row.to(tl.int64) * k_block
        v += row.to(tl.int64) * v_block
    k += kv_head * k_head
    v += kv_head * v_head

    acc = tl.zeros([BLOCK_M, DIM], dtype=tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    # Up to here every query of the tile sees every key, unless a window hides some.
    seen_by_all = begin
    if not WINDOW:
        full = tl.minimum(past + first_query + 1, end)
        seen_by_all = tl.maximum(begin, full // BLOCK_N * BLOCK_N)
        for start in range(begin, seen_by_all, BLOCK_N):
            acc, top, total = _step(
                acc, top, total, tile_q, position, start, end, k, v, table, log2_scale, window,
                k_block, k_token, v_block, v_token,
                HEAD_DIM, DIM, BLOCK_SIZE, BLOCK_N, PAGED, WINDOW, False,
            )  # fmt: skip
    for start in range(seen_by_all, end, BLOCK_N):
        acc, top, total = _step(
            acc, top, total, tile_q, position, start, end, k, v, table, log2_scale, window,
            k_block, k_token, v_block, v_token,
            HEAD_DIM, DIM, BLOCK_SIZE, BLOCK_N, PAGED, WINDOW, True,
        )  # fmt: skip

    # A query that saw nothing has 0 / 1 rather than 0 / 0.
    nothing = total == 0.0
    total = tl.where(nothing, 1.0, total)
    acc = acc / total[:, None]
    heads = tl.num_programs(1) * GROUP
    out_row = token * heads + head
    if SPLIT:
        splits = tl.num_programs(2)
        out_row = out_row * splits + split
        log2_sum = tl.where(nothing, float("-inf"), top + tl.log2(total))
        tl.store(sums + out_row, log2_sum, mask=real)
    tl.store(
        out + out_row[:, None] * HEAD_DIM + dim[None, :],
        acc.to(out.dtype.element_ty),
        mask=real[:, None] & (dim < HEAD_DIM)[None, :],
    )


@triton.jit
def combine(
    parts,
    sums,
    out,
    seq_lens,
    cu_query_lens,
    tiles,
    window,
    split_keys,
    splits,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Join the splits of each query. Grid: (tiles, heads, the most queries that a tile has).

    parts: [tokens, heads, splits, HEAD_DIM] float32; sums: [tokens, heads, splits] float32;
    out: [tokens, heads, HEAD_DIM]. Only the splits that the row's keys reach are read.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(tiles + 2 * tile)
    first_query = tl.load(tiles + 2 * tile + 1)
    row_start = tl.load(cu_query_lens + row).to(tl.int32)
    query_count = tl.load(cu_query_lens + row + 1).to(tl.int32) - row_start
    length = tl.load(seq_lens + row).to(tl.int32)
    query = first_query + tl.program_id(2)
    if query >= query_count:
        return
    begin, end = _seen(
        length - query_count, first_query, query_count, window, QUERIES, BLOCK_N, WINDOW
    )
    used = tl.cdiv(end - begin, split_keys)

    dim = tl.arange(0, DIM)
    out_row = (row_start + query).to(tl.int64) * tl.num_programs(1) + head
    acc = tl.zeros([DIM], dtype=tl.float32)
    top = float("-inf")
    total = 0.0
    for start in range(0, used, CHUNK):
        split = start + tl.arange(0, CHUNK)
        part = out_row * splits + split
        part_sum = tl.load(sums + part, mask=split < used, other=float("-inf"))
        new_top = tl.maximum(top, tl.max(part_sum, 0))
        # All -inf: nothing was seen yet, and -inf - -inf would be NaN.
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        weight = tl.exp2(part_sum - shift)
        rescale = tl.exp2(top - shift)
        values = tl.load(
            parts + part[:, None] * HEAD_DIM + dim[None, :],
            mask=(split < used)[:, None] & (dim < HEAD_DIM)[None, :],
            other=0.0,
        )
        acc = acc * rescale + tl.sum(values * weight[:, None], 0)
        total = total * rescale + tl.sum(weight, 0)
        top = new_top
    acc = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(out + out_row * HEAD_DIM + dim, acc.to(out.dtype.element_ty), mask=dim < HEAD_DIM)


@triton.jit
def _seen(
    past,
    first_query,
    query_count,
    window,
    QUERIES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """[begin, end) of the keys that some query of a tile sees, begin a multiple of BLOCK_N."""
    end = past + tl.minimum(first_query + QUERIES, query_count)
    begin = end * 0
    if WINDOW:
        begin = tl.maximum(past + first_query - window + 1, 0) // BLOCK_N * BLOCK_N
    return begin, end


@triton.jit
def _step(
    acc,
    top,
    total,
    tile_q,
    position,
    start,
    end,
    k,
    v,
    table,
    log2_scale,
    window,
    k_block,
    k_token,
    v_block,
    v_token,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGED: tl.constexpr,
    WINDOW: tl.constexpr,
    MASKED: tl.constexpr,
):
    """BLOCK_N keys more: the running output, maximum and sum of exponentials after them."""
    n = start + tl.arange(0, BLOCK_N)
    dim = tl.arange(0, DIM)
    if PAGED:
        # 64 bits: a big cache has more elements than 32 bits can count.
        if MASKED:
            block = tl.load(table + n // BLOCK_SIZE, mask=n < end, other=0).to(tl.int64)
        else:
            block = tl.load(table + n // BLOCK_SIZE).to(tl.int64)
        k_at = block * k_block + (n % BLOCK_SIZE) * k_token
        v_at = block * v_block + (n % BLOCK_SIZE) * v_token
    else:
        k_at = n.to(tl.int64) * k_token
        v_at = n.to(tl.int64) * v_token
    k_at = k + k_at[:, None] + dim[None, :]
    v_at = v + v_at[:, None] + dim[None, :]
    # Slots that hold nothing yet may hold anything, and 0 x NaN is NaN: they are not read.
    if MASKED:
        here = (n < end)[:, None] & (dim < HEAD_DIM)[None, :]
        tile_k = tl.load(k_at, mask=here, other=0.0)
    elif HEAD_DIM != DIM:
        tile_k = tl.load(k_at, mask=(dim < HEAD_DIM)[None, :], other=0.0)
    else:
        tile_k = tl.load(k_at)
    # "ieee": TF32 would keep 10 bits of a float32. It means nothing for the other dtypes.
    scores = tl.dot(tile_q, tl.trans(tile_k), input_precision="ieee") * log2_scale
    if MASKED:
        seen = (n[None, :] <= position[:, None]) & (n < end)[None, :]
        if WINDOW:
            seen = seen & (n[None, :] > position[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))

    new_top = tl.maximum(top, tl.max(scores, 1))
    # Nothing seen yet: any finite shift keeps exp2(-inf - shift) at 0, where -inf would make NaN.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    p = tl.exp2(scores - shift[:, None])
    rescale = tl.exp2(top - shift)
    total = total * rescale + tl.sum(p, 1)
    acc = acc * rescale[:, None]

    if MASKED:
        here = (n < end)[:, None] & (dim < HEAD_DIM)[None, :]
        tile_v = tl.load(v_at, mask=here, other=0.0)
    elif HEAD_DIM != DIM:
        tile_v = tl.load(v_at, mask=(dim < HEAD_DIM)[None, :], other=0.0)
    else:
        tile_v = tl.load(v_at)
    acc = tl.dot(p.to(tile_v.dtype), tile_v, acc, input_precision="ieee")
    return acc, new_top, total
