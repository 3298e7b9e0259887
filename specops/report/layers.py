"""Columns for a layered drawing: who stands where, so that edges run one way and cross little. Called by `lineage_graph`.

After Sugiyama, Tagawa and Toda 1981: the longest path to something that came from nothing gives the column, and sweeps of the
mean place of the neighbours order each column. Works without recursion, so a chain of thousands is no trouble.
"""

from collections.abc import Sequence

SWEEPS = 8


def layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the nodes by column, ingredients first.

    Args:
        nodes: each once; their order breaks ties.
        edges: (source, target) between known nodes; the target stands further left. What lies on a circle, or behind one, is
            put beside what it is joined to.
    """
    depth = _depths(nodes, edges)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        columns[depth[node]].append(node)
    around: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in edges:
        around[source].append(target)
        around[target].append(source)
    place = {node: _centred(row, len(column)) for column in columns for row, node in enumerate(column)}
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            mean = {n: sum(place[m] for m in around[n]) / len(around[n]) if around[n] else place[n] for n in column}
            column.sort(key=mean.__getitem__)
            place |= {node: _centred(row, len(column)) for row, node in enumerate(column)}
    return columns


def _centred(row: int, count: int) -> float:
    return row - (count - 1) / 2


def _depths(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return each node's longest distance to a node without targets (Kahn 1962); what is on a circle gets the next column."""
    waiting = dict.fromkeys(nodes, 0)
    sources: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in edges:
        waiting[source] += 1
        sources[target].append(source)
    depth = {node: 0 for node in nodes if waiting[node] == 0}
    ready = list(depth)
    best: dict[str, int] = {}
    for node in ready:  # grows while it is walked
        for source in sources[node]:
            best[source] = max(best.get(source, 0), depth[node] + 1)
            waiting[source] -= 1
            if waiting[source] == 0:
                depth[source] = best[source]
                ready.append(source)
    return {node: depth.get(node, best.get(node, 0)) for node in nodes}
