"""`speculate:` of a policy file: up to which load a draft is used, by number or from measured costs.

Called by `core.policy` only. The arithmetic is `stats.breakeven`: costs rise with load and the yield of a round does not, so a
draft that pays alone may cost in a crowd.
"""

from collections.abc import Mapping
from typing import Any

from specops.errors import InvalidInput, PolicyError
from specops.stats.breakeven import Costs, speculate_below


def speculation_limit(given: Mapping[str, Any] | None) -> int | None:
    """Return N where speculation is to be used only below N requests in flight.

    Returns:
        None without such a rule; 0 where the draft pays at no measured load. Beyond the largest one nothing is claimed.

    Raises:
        PolicyError: both forms or neither, loads that do not rise, or a k that nobody could serve.
    """
    if given is None:
        return None
    below, costs = given["below_in_flight"], given["break_even"]
    if (below is None) == (costs is None):
        raise PolicyError("policy: speculate needs either 'below_in_flight' or 'break_even', got both or neither")
    if below is not None:
        return int(below)
    loads = [load["in_flight"] for load in costs["loads"]]
    if loads != sorted(set(loads)):
        raise PolicyError(f"policy: loads of break_even must rise in 'in_flight', got {loads}")
    k = costs["k"]
    try:
        measured = [Costs(**(load | {"verify_s": {k: load["verify_s"]}})) for load in costs["loads"]]
        largest = speculate_below(measured, costs["acceptance_rate"], k)
    except InvalidInput as exc:
        raise PolicyError(f"policy: break_even cannot be computed: {exc}") from exc
    return 0 if largest is None else largest + 1
