"""The shape of the code: imports run one way, between packages and within them."""

import ast
import graphlib

from tests.other_processes import ROOT

# A layer imports itself and those before it.
LAYERS = ("sharding", "models", "rollout", "rl", "tools")


def _name(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


FILES = {
    _name(path): path
    for folder in (*LAYERS, "configs")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def _imports(module):
    """Modules of this project that a file imports, at any depth."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                # The verifier can be installed by itself, under another name.
                where = f"{module}: relative import, line {node.lineno}"
                assert module.startswith("rl.verifier"), where
                package = FILES[module].relative_to(ROOT).parts[: -node.level]
                source = ".".join([*package, *filter(None, [node.module])])
            members = [f"{source}.{alias.name}" for alias in node.names]
            found = [name if name in FILES else source for name in members]
        else:
            continue
        yield from (name for name in found if name in FILES and name != module)


def _strings(module):
    """Modules that a file names in a string: `module:function`, or a `-m` argument."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            yield from {name, name.rpartition(".")[0]} & FILES.keys()


IMPORTS = {module: set(_imports(module)) for module in FILES}


def test_imports_run_one_way():
    rank = {layer: i for i, layer in enumerate(LAYERS)}

    def layer(module):
        return rank.get(module.partition(".")[0], -1)

    pairs = [(module, one) for module in FILES for one in IMPORTS[module]]
    assert [pair for pair in pairs if layer(pair[1]) > layer(pair[0])] == []
    # Imports that are there are seen.
    assert "models.decoder" in IMPORTS["rl.setup"]
    assert "rl.evaluate" in IMPORTS["tools.evaluate"]


def test_imports_go_in_no_circle():
    tuple(graphlib.TopologicalSorter(IMPORTS).static_order())


def test_types_import_types_only():
    types = {module for module in FILES if module.endswith(".types")}
    assert types == {"rollout.types", "rl.problems.types", "rl.types"}
    assert set().union(*(IMPORTS[module] for module in types)) <= types


def test_the_verifier_stands_alone():
    verifier = {module for module in FILES if module.startswith("rl.verifier")}
    assert set().union(*(IMPORTS[module] for module in verifier)) <= verifier
    parts = ["parse", "equal", "grade", "trl", "worker", "pool"]
    for module in verifier - {"rl.verifier"}:
        rank = parts.index(module.split(".")[2])
        for imported in IMPORTS[module]:
            assert parts.index(imported.split(".")[2]) <= rank, (module, imported)


def test_what_only_tools_need_stands_under_tools():
    # The last is in the folder of the sampler whose programs it describes.
    commands = ["rl.train", "rl.minimal", "rollout.programs"]
    reached, ahead = set(), [*commands, *(m for m in FILES if m.startswith("configs"))]
    while ahead:
        module = ahead.pop()
        if module not in reached:
            reached.add(module)
            ahead += IMPORTS[module] | set(_strings(module))
    packages = "models.", "rl.", "rollout.", "sharding."
    modules = {module for module in FILES if module.startswith(packages)}
    modules -= {module for module in modules if FILES[module].stem == "__init__"}
    assert modules - reached == set()


def test_no_cycle_between_sub_packages():
    """Sub-packages such as rl.workdir and rl.processes import each other one way."""
    packages = {m for m, path in FILES.items() if path.stem == "__init__"}

    def package(module):
        while module not in packages:
            module = module.rpartition(".")[0]
        return module

    arrows = {name: set() for name in packages}
    for module, imported in IMPORTS.items():
        own = package(module)
        for other in map(package, imported):
            # A package as a whole is above its sub-packages.
            if not (own + ".").startswith(other + "."):
                arrows[own].add(other)
    for parent in packages:
        arrows[parent] -= {m for m in packages if m.startswith(parent + ".")}
    tuple(graphlib.TopologicalSorter(arrows).static_order())


def test_tests_mirror_the_tree():
    folders = {
        path.parent.relative_to(ROOT / "tests")
        for path in (ROOT / "tests").glob("*/**/test_*.py")
    }
    packages = {path.parent.relative_to(ROOT) for path in FILES.values()}
    assert folders and folders <= packages
