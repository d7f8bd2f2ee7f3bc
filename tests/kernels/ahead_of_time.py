"""Compile the Triton kernels for GPUs that are not here, and read what the result would use.

Run as a program it compiles for one architecture and prints a JSON list: a process of its own, so
that neither a crash of the compiler nor a switch in the environment of Triton reaches the tests.

The usage is that of the finished binary: `cuobjdump --dump-resource-usage`, which Triton ships.
STACK is what a thread keeps in local memory; spilled registers are in it.
"""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

# What a thread block may have of shared memory, in bytes.
SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024}


@dataclass(frozen=True)
class Usage:
    kernel: str
    variant: str
    registers: int
    stack: int
    local: int
    shared: int


def attention_variants() -> list[dict]:
    """A covering subset: each width x item size x padded head_dim, as its worst case, and more.

    The worst case is without a window: two loops rather than one. bf16 and fp16 differ in the name
    of an instruction, so fp16 takes turns only, as do windows, odd head dims, group and block sizes.
    """
    variants = []
    for width in ("few", "many"):
        for dtype in ("bf16", "fp32"):
            variants += [
                {
                    "width": width,
                    "dtype": dtype,
                    "head_dim": head_dim,
                    "group": group,
                    "split": split,
                }
                for head_dim, group, split in (
                    (32, 4, False),
                    (64, 3, width == "few"),
                    (128, 4, width == "few"),
                    (256, 8, False),
                )
            ]
        variants += [
            {"width": width, "dtype": "fp16", "head_dim": 64, "block_size": 1, "window": True},
            {"width": width, "dtype": "fp32", "head_dim": 80, "group": 1, "block_size": 128},
            {"width": width, "dtype": "bf16", "head_dim": 128, "group": 7, "window": True},
            {"width": width, "dtype": "bf16", "head_dim": 128, "paged": False},
        ]
    variants.append({"width": "few", "dtype": "bf16", "head_dim": 64, "group": 71})
    return variants


def compile_all(arch: int) -> list[Usage]:
    """Every kernel, attention in the variants above."""
    from kernels.gpu import attention, cache

    usages = [_attend(attention.attend, arch, **variant) for variant in attention_variants()]
    for dtype, head_dim, window in (("bf16", 256, False), ("fp16", 80, True), ("fp32", 64, False)):
        usages.append(_combine(attention.combine, arch, dtype, head_dim, window))
    for dtype, kv_heads, head_dim in (("bf16", 8, 128), ("fp16", 3, 64), ("fp32", 32, 80)):
        usages.append(_store(cache.store_tokens, arch, dtype, kv_heads, head_dim))
    for size in (8, 1):
        word = cache.WORDS[size]
        usages.append(_copy(cache.copy_words, arch, size, word, cache.COPY_WORDS))
    return usages


def _attend(
    kernel,
    arch,
    width,
    dtype,
    head_dim,
    *,
    split=False,
    group=4,
    block_size=16,
    window=False,
    paged=True,
) -> Usage:
    import torch

    from kernels.gpu import configs

    torch_dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    config = configs.choose(configs.Width(width), torch_dtype, head_dim, group, arch)
    part = "*fp32" if split else f"*{dtype}"
    types = dict.fromkeys(("q", "k", "v"), f"*{dtype}")
    types |= {"out": part, "sums": part}
    types |= dict.fromkeys(("block_tables", "seq_lens", "cu_query_lens"), "*i64")
    types |= {"tiles": "*i32", "log2_scale": "fp32"}
    constants = {
        "HEAD_DIM": head_dim,
        "DIM": configs.padded(head_dim),
        "GROUP": group,
        "BLOCK_SIZE": block_size if paged else 1,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "PAGED": paged,
        "WINDOW": window,
        "SPLIT": split,
    }
    variant = f"{width} {dtype} dim {head_dim} group {group} block {block_size}"
    variant += " window" * window + " split" * split + " contiguous" * (not paged)
    return _compile(kernel, arch, variant, types, constants, config.warps, config.stages)


def _combine(kernel, arch, dtype, head_dim, window) -> Usage:
    from kernels.gpu import configs

    types = {"parts": "*fp32", "sums": "*fp32", "out": f"*{dtype}", "seq_lens": "*i64"}
    types |= {"cu_query_lens": "*i64", "tiles": "*i32"}
    constants = {
        "HEAD_DIM": head_dim,
        "DIM": configs.padded(head_dim),
        "QUERIES": 4,
        "BLOCK_N": 64,
        "WINDOW": window,
        "CHUNK": 16,
    }
    return _compile(kernel, arch, f"{dtype} dim {head_dim}", types, constants, 4, 3)


def _store(kernel, arch, dtype, kv_heads, head_dim) -> Usage:
    types = dict.fromkeys(("k", "v", "k_cache", "v_cache"), f"*{dtype}") | {"slots": "*i64"}
    width = 1 << (kv_heads * head_dim - 1).bit_length()
    constants = {"KV_HEADS": kv_heads, "HEAD_DIM": head_dim, "BLOCK_SIZE": 16, "WIDTH": width}
    constants |= {"k_dim": 1, "v_dim": 1}
    return _compile(kernel, arch, f"{dtype} {kv_heads} x {head_dim}", types, constants, 4, 3)


def _copy(kernel, arch, size, word, width) -> Usage:
    constants = {"WORD": word, "WIDTH": width}
    return _compile(kernel, arch, f"{size}-byte words", {"job": "*i64"}, constants, 4, 3)


def _compile(kernel, arch, variant, types, constants, warps, stages) -> Usage:
    """Arguments without a type are 32-bit integers that 16 divides, as strides and pointers are."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, attributes = {}, {}
    not_strides = {"window", "split_keys", "splits", "log2_scale", "count", "words", "caches"}
    for position, name in enumerate(kernel.arg_names):
        signature[name] = "constexpr" if name in constants else types.get(name, "i32")
        if name not in constants and name not in not_strides:
            attributes[(position,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attributes)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", arch, 32),
        options={"num_warps": warps, "num_stages": stages},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        Path(cubin.name).write_bytes(compiled.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        text = subprocess.run(
            [tool, "--dump-resource-usage", cubin.name], check=True, capture_output=True, text=True
        ).stdout
    used = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    name = kernel.fn.__name__
    return Usage(name, variant, used["REG"], used["STACK"], used["LOCAL"], compiled.metadata.shared)


if __name__ == "__main__":
    json.dump([asdict(usage) for usage in compile_all(int(sys.argv[1]))], sys.stdout)
