"""What relations say: the names on their left and the values on their right."""

from rl.verifier import tree
from rl.verifier.equality import equal, linear_root
from rl.verifier.tree import Node

_LABEL_PREFIXES = frozenset({"Delta", "angle", "triangle"})
_VALUES = frozenset(
    {"set", "interval", "cup", "cap", "minus", "tuple", "matrix", "cases"}
)


def is_label(node: Node) -> bool:
    """Whether a node names a quantity: x, f(x), |AB|, cos A, Delta p; not x + y."""
    match node[0]:
        case "sym":
            return True
        case "call":
            return True
        case "fn":
            return is_label(node[2]) if len(node) == 3 else False
        case "mul":
            names = [p[1] if p[0] == "sym" else "" for p in node[1:]]
            if names[0] in _LABEL_PREFIXES:
                names = names[1:]
                return len(names) == 1 or all(name[:1].isupper() for name in names)
            return all(name[:1].isupper() for name in names)
    return False


def wordy(label: Node) -> bool:
    """A label in words ("area"), which may stand for any symbol."""
    return label[0] == "sym" and len(label[1]) > 1 and label[1].isalpha()


def value_of(node: Node) -> Node | None:
    """What a relation says its left side is: 5 for `x = 5`, `5 = x`, `S = 2+3 = 5`.

    None for an equation proper (x + y = 3) and for a contradiction (5 = 6).
    """
    steps = node[1:] if node[0] == "chain" else (node,)
    if any(step[1] not in ("=", "approx", "in", "equiv") for step in steps):
        return None
    if any(step[1] == "equiv" for step in steps):
        return None
    first, last = steps[0][2], steps[-1][3]
    if len(steps) == 1 and (steps[0][1] == "in" or last[0] in _VALUES):
        return last if last[0] != "numbers" else None
    if len(steps) == 1 and is_label(last) and not is_label(first):
        first, last = last, first
        return last if not tree.symbols(last) & tree.symbols(first) else None
    parts = [first, *(step[3] for step in steps)]
    exact = [p for p, step in zip(parts[1:], steps, strict=True) if step[1] == "="]
    known = [part for part in exact or parts[1:] if not is_label(part)] or [last]
    if not tree.symbols(known[-1]):
        known = [part for part in known if not tree.symbols(part)]
    if is_label(first):
        if first[0] == "sym" and tree.symbols(first) & tree.symbols(last):
            return None
    elif len(steps) == 1 or tree.symbols(known[0]):
        if tree.symbols(first) or not tree.is_expression(first):
            return None
        known = [first, *known]
    if all(map(tree.is_expression, known)):
        if not all(equal(known[0], other) for other in known[1:]):
            return None
        return known[-1]
    return known[-1] if len(known) == 1 else None


def labelled_values(node: Node) -> list[Node] | None:
    """Values of "p = 5, q = 2" in the order of the labels."""
    pairs = []
    for part in node[1:]:
        if part[0] != "rel" or part[1] != "=" or part[2][0] != "sym":
            return None
        pairs.append((part[2][1], part[3]))
    if len({name for name, _ in pairs}) != len(pairs):
        return None
    return [value for _, value in sorted(pairs, key=lambda pair: pair[0])]


def without_tuple_label(node: Node) -> Node:
    """(1, 2) for `(x, y) = (1, 2)`."""
    if node[0] == "rel" and node[2][0] == node[3][0] == "tuple":
        return node[3]
    return node


def label_of(node: Node) -> Node | None:
    if is_label(node[2]) or node[2][0] == "tuple":
        return node[2]
    return node[3] if is_label(node[3]) else None


def is_y_of_x(first: Node, second: Node) -> bool:
    kinds = {first[0], second[0]}
    return kinds == {"sym", "call"} and ("sym", "y") in (first, second)


def relates_names(node: Node) -> bool:
    """a < b + c is about all its names, not a half-line of one."""
    return (
        node[0] == "rel"
        and node[1] != "in"
        and bool(tree.symbols(node[2]) and tree.symbols(node[3]))
    )


def ascending(node: Node) -> Node:
    """A relation or chain with its greater side last."""
    flipped = {">": "<", ">=": "<="}
    if node[0] == "rel":
        if node[1] in flipped:
            return ("rel", flipped[node[1]], node[3], node[2])
        return node
    if node[1][1] in flipped:
        return ("chain", *(ascending(step) for step in reversed(node[1:])))
    return node


def solves(value: Node, equation: Node) -> bool:
    """Whether an equation that is linear in an unknown gives it this value."""
    left, right = equation[2], equation[3]
    if not (tree.is_expression(left) and tree.is_expression(right)):
        return False
    difference = tree.add(left, tree.negative(right))
    for name in sorted(tree.symbols(difference) - tree.symbols(value))[:4]:
        if tree.symbols(difference) - {name} - tree.symbols(value):
            continue
        root = linear_root(difference, name)
        if root is not None and equal(root, value):
            return True
    return False
