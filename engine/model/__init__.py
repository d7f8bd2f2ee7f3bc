"""A transformers model over the paged KV cache: weights, attention hook, runner, sampler."""
