"""GraphDefs as plain data: tensor names, topological order, control edges. Reads protos, runs nothing."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lowtide.errors import NotCapturable


class Tensor(NamedTuple):
    """An edge of a GraphDef: output number `output` of `node`; CONTROL is a control edge."""

    node: str
    output: int


CONTROL = -1


def parse_tensor(text: str) -> Tensor:
    """"^a" is a control edge, "a:2" an output, "a" output 0."""
    if text.startswith("^"):
        return Tensor(text[1:], CONTROL)
    node, _, index = text.partition(":")
    return Tensor(node, int(index) if index else 0)


def edges(node: Any) -> list[Tensor]:
    return [parse_tensor(text) for text in node.input]


def in_order(nodes: Sequence[Any], rank: Mapping[str, int]) -> list[Any]:
    """The nodes sorted topologically, as close to `rank` as their edges allow.

    A node without a rank (Grappler made it) goes just before the first of those that need it. So does one whose rank is
    higher: of equal constants Grappler keeps one, which may be the last, and nothing is to wait for that.
    """
    by_name = {node.name: node for node in nodes}
    needs = {node.name: {edge.node for edge in edges(node)} for node in nodes}
    for name, sources in needs.items():
        if missing := sources - by_name.keys():
            raise NotCapturable(f"graph node {name!r} reads {sorted(missing)[0]!r}, which is not in the graph")
    users: dict[str, list[str]] = {name: [] for name in by_name}
    for name, sources in needs.items():
        for source in sources:
            users[source].append(name)
    ranks = _complete(rank, _any_order(needs, users), users)
    waiting = {name: len(sources) for name, sources in needs.items()}
    ready = [(ranks[name], name) for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, name = heapq.heappop(ready)
        ordered.append(by_name[name])
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (ranks[user], user))
    return ordered


def _any_order(needs: Mapping[str, Iterable[str]], users: Mapping[str, Sequence[str]]) -> list[str]:
    waiting = {name: len(set(sources)) for name, sources in needs.items()}
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:  # grows while it is walked
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(ready) != len(waiting):
        stuck = next(name for name, count in waiting.items() if count)
        raise NotCapturable(
            f"the graph has a cycle through {stuck!r}: a v1 while loop; "
            "call tf.compat.v1.enable_control_flow_v2() before building it"
        )
    return ready


def _complete(
    rank: Mapping[str, int], topological: Sequence[str], users: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    last = float(len(rank))
    ranks: dict[str, float] = {}
    for name in reversed(topological):
        needed = min((ranks[user] for user in users[name]), default=last) - 0.5
        ranks[name] = min(rank.get(name, needed), needed)
    return ranks


def fetched(fetches: Any) -> list[Any]:
    """What `Session.run` is asked for, one by one. The keys of a dict may be of kinds that do not sort: a
    MonitoredSession asks for its hooks' fetches by the hooks themselves."""
    if isinstance(fetches, Mapping):
        return [part for value in fetches.values() for part in fetched(value)]
    if isinstance(fetches, list | tuple):
        return [part for value in fetches for part in fetched(value)]
    return [] if fetches is None else [fetches]
