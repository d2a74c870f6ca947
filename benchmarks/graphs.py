"""Made-up graphs for measuring the planner: of the families that papers use, and of the size of real programs.

`layered` imitates Moccasin's random layered graphs: nodes in layers of random width, edges mostly to the layer
before, some that skip; costs and bytes drawn at random. `resnet50` is a training step of the shape that Checkmate
extracts: one value a layer forward, and backward nodes that read the gradient and the layer's input and output.
`chain` is the same for a very deep chain of layers.
`program` has the look of an optimized TensorFlow step: most nodes tiny, variables resident, updates once.
"""

from __future__ import annotations

from random import Random

from lowtide.plan import Node, Problem, Value


def _plain(name: str, rows: list[tuple[float, int, list[int]]]) -> Problem:
    nodes = tuple(Node(cost, tuple(dict.fromkeys(ins)), (i,)) for i, (cost, _, ins) in enumerate(rows))
    return Problem(nodes, tuple(Value(size) for _, size, _ in rows), name)


def layered(count: int, width: float, density: float = 0.27, skip: float = 0.14, seed: int = 0) -> Problem:
    """`count` nodes in layers of about 1.85 `width` sqrt(`count`) nodes; `skip` is the share of skipping edges."""
    rng = Random(seed)
    side = max(2.0, 1.85 * width * count**0.5)
    layers: list[list[int]] = [[0]]
    made = 1
    while made < count - 1:
        size = min(count - 1 - made, max(1, round(side * rng.uniform(0.25, 1.75))))
        layers.append(list(range(made, made + size)))
        made += size
    layers.append([count - 1])
    rows: list[tuple[float, int, list[int]]] = [(0, _random_bytes(rng), [])]
    read: set[int] = {0}
    for depth, layer in enumerate(layers[1:], 1):
        for node in layer:
            ins = _sources(rng, layers, depth, density, skip)
            if node == layer[-1]:
                ins += [n for n in layers[depth - 1] if n not in read]
            read.update(ins)
            rows.append((0 if node == count - 1 else rng.randint(1, 995), _random_bytes(rng), sorted(set(ins))))
    return _plain(f"layered_{count}", rows)


def _sources(rng: Random, layers: list[list[int]], depth: int, density: float, skip: float) -> list[int]:
    above = layers[depth - 1]
    ins = [n for n in above if rng.random() < density] or [rng.choice(above)]
    if depth > 1:
        ins += [rng.choice(layers[rng.randrange(depth - 1)]) for _ in ins if rng.random() < skip / (1 - skip)]
    return ins


def _random_bytes(rng: Random) -> int:
    return max(20, int(rng.expovariate(1 / 2100)) // 10 * 10)


def resnet50(blocks: tuple[int, ...] = (3, 4, 6, 3), batch: int = 256) -> Problem:
    """A ResNet50 training step: about 350 nodes; costs are flops, bytes are activations."""
    rows: list[tuple[float, int, list[int]]] = []
    forward: list[tuple[int, float, list[int]]] = []  # node, cost, inputs: what the backward pass walks

    def layer(cost: float, size: int, ins: list[int]) -> int:
        rows.append((cost, size, ins))
        forward.append((len(rows) - 1, cost, ins))
        return len(rows) - 1

    def conv(x: int, side: int, depth: int, out: int, kernel: int, act: bool = True) -> int:
        size = side * side * out * batch * 4
        y = layer(2.0 * side * side * out * depth * kernel * kernel * batch, size, [x])
        y = layer(size / 2, size, [y])
        return layer(size / 8, size, [y]) if act else y

    x = conv(layer(0, 224 * 224 * 3 * batch * 4, []), 112, 3, 64, 7)
    x = layer(56 * 56 * 64 * batch, 56 * 56 * 64 * batch * 4, [x])
    depth = 64
    for stage, count in enumerate(blocks):
        side, mid = 56 >> stage, 64 << stage
        for i in range(count):
            short = x if i else conv(x, side, depth, mid * 4, 1, act=False)
            y = conv(conv(x, side, depth, mid, 1), side, mid, mid, 3)
            y = conv(y, side, mid, mid * 4, 1, act=False)
            size = side * side * mid * 4 * batch * 4
            x = layer(size / 8, size, [layer(size / 8, size, [y, short])])
            depth = mid * 4
    x = layer(batch * 2048.0, batch * 2048 * 4, [x])
    x = layer(batch * 2048.0 * 2000, batch * 4000, [x])
    layer(batch * 1000.0, batch * 4, [x])
    _backward(rows, forward)
    return _plain("resnet50_train", rows)


def _backward(rows: list[tuple[float, int, list[int]]], forward: list[tuple[int, float, list[int]]]) -> None:
    """A gradient node for each forward node, reading the gradients of its readers, its inputs and its value."""
    gradient: dict[int, list[int]] = {}
    for node, cost, ins in reversed(forward[1:]):
        rows.append((2 * cost, rows[node][1], sorted({*gradient.get(node, [node]), node, *ins})))
        for source in ins:
            gradient.setdefault(source, []).append(len(rows) - 1)


def chain(layers: int, seed: int = 0) -> Problem:
    """A deep training step with no side roads: `layers` layers of three kinds forward, and back again."""
    rng = Random(seed)
    kinds = [(float(rng.randint(20, 90)), rng.randint(3, 9) << 20) for _ in range(3)]
    rows: list[tuple[float, int, list[int]]] = []
    forward: list[tuple[int, float, list[int]]] = []
    for layer in range(layers):
        cost, size = kinds[layer % 3]
        rows.append((cost, size, [layer - 1] if layer else []))
        forward.append((layer, cost, rows[-1][2]))
    _backward(rows, forward)
    return _plain(f"chain_{layers}", rows)


def program(layers: int, tiny: int = 20, seed: int = 0) -> Problem:
    """A deep training step as TensorFlow sees it: `layers` blocks, each with `tiny` small nodes about it."""
    return _Program(layers, tiny, Random(seed)).problem()


class _Program:
    def __init__(self, layers: int, tiny: int, rng: Random) -> None:
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.layers, self.tiny, self.rng = layers, tiny, rng

    def value(self, size: int, **flags: object) -> int:
        self.values.append(Value(size, **flags))  # type: ignore[arg-type]
        return len(self.values) - 1

    def op(self, cost: float, ins: list[int], size: int, once: bool = False, **flags: object) -> int:
        out = self.value(size, **flags)
        self.nodes.append(Node(cost, tuple(dict.fromkeys(ins)), (out,), recomputable=not once))
        return out

    def problem(self) -> Problem:
        x = self.value(64 << 20, resident=True)
        saved = []
        for layer in range(self.layers):
            size = (8 << 20) >> (2 * layer // self.layers)
            weight = self.value(1 << 20, resident=True)
            read = self.op(1, [weight], 1 << 20, once=True, alias_of=weight)
            shape = self.chain([x], self.tiny // 4)
            conv = self.op(1000, [x, read, shape], size)
            norm = self.op(60, [conv], size)
            act = self.op(40, [norm], size, may_reuse=(norm,))
            flat = self.op(1, [act], size, alias_of=act)
            saved.append((x, read, weight, conv, flat, size))
            x = flat
        gradient = self.op(10, [x], self.values[x].bytes)
        for x, read, weight, conv, flat, size in reversed(saved):
            d_act = self.op(40, [gradient, flat], size, may_reuse=(gradient,))
            d_norm = self.op(120, [d_act, conv], size, may_reuse=(d_act,))
            d_weight = self.op(1000, [x, d_norm], 1 << 20)
            gradient = self.op(1000, [d_norm, read], self.values[x].bytes or size)
            self.update(d_weight, read, weight)
        return Problem(tuple(self.nodes), tuple(self.values), f"program_{len(self.nodes)}")

    def chain(self, ins: list[int], length: int) -> int:
        for _ in range(length):
            ins = [self.op(0.5, ins, 16)]
        return ins[0]

    def update(self, d_weight: int, read: int, weight: int) -> None:
        scalar = self.chain([], self.tiny // 4)
        for _ in range(self.tiny // 4):
            scalar = self.op(0.5, [scalar], 16)
        scaled = self.op(20, [d_weight, scalar], 1 << 20, may_reuse=(d_weight,))
        moved = self.op(20, [read, scaled], 1 << 20, may_reuse=(scaled,))
        out = self.value(4)
        self.nodes.append(Node(5, (moved,), (out,), recomputable=False, ends=(read,)))
