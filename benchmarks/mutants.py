"""One-line changes of podium's code, each of which a test has to notice.

Usage: ``python benchmarks/mutants.py scoring --count 20 --seed 1``. It copies the checkout, changes
one place of a room at a time, runs the tests that belong to the room, and prints the changes that
no test noticed. A change is equivalent if nobody could notice it; the output says where to look.
The machine should be quiet: a test that fails for its time counts as noticing.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

TESTS = {
    "api": "tests/api tests/cluster/test_rollout.py",
    "cli": "tests/cli tests/doctor tests/server tests/cluster/test_reap.py tests/serving/test_watch.py",
    "cluster": "tests/cluster tests/cluster_local",
    "data": "tests/data tests/evidence tests/sweeps/test_folds.py",
    "kfp": "tests/server tests/pipelines",
    "manifests": "tests/manifests tests/doctor tests/sweeps",
    "models": "tests/models tests/contract tests/evidence tests/serving",
    "prediction": "tests/serving tests/steps",
    "runner": "tests/cli/test_runs_command.py tests/cli/test_runs_report.py tests/pipelines tests/api tests/mcp",
    "scoring": "tests/scoring tests/models/test_rule.py tests/pipelines/test_own_metrics.py tests/evidence",
    "search": "tests/search tests/sweeps",
    "storage": "tests/storage tests/contract",
    "sweeps": "tests/sweeps tests/contract tests/universe",
    "training": "tests/training tests/trainer tests/steps tests/evidence",
    "ui": "tests/ui tests/server",
}
"""Tests by room, where they are not those of the room's own name."""

_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def changes_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, description and changed text of each possible change of a source.

    What nobody could notice stays: options of a dataclass, and one more in a module's limit of ten
    or more.
    """
    tree = ast.parse(text)
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    without: list[ast.AST] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            without += node.decorator_list
    skipped = {inner for node in without for inner in ast.walk(node)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            skipped |= {inner for inner in ast.walk(node) if _is_large(inner)}
    for node in ast.walk(tree):
        if node in skipped or (new := _changed(node)) is None:
            continue
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        head = lines[first][: node.col_offset]
        tail = lines[last][node.end_col_offset :]
        old = ast.get_source_segment(text, node) or ""
        changed = b"".join([*lines[:first], head, new.encode(), tail, *lines[last + 1 :]])
        shown = " ".join(old.split())[:60]
        yield node.lineno, f"{shown} -> {new[:60]}", changed.decode()


def _is_large(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 10


def _changed(node: ast.AST) -> str | None:
    """Return the changed source of a node; None for a node that is left alone."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
        node = ast.Compare(
            node.left, [_OTHER[type(node.ops[0])](), *node.ops[1:]], node.comparators
        )
        return f"({ast.unparse(node)})"
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"({ast.unparse(ast.BoolOp(other, node.values))})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"({ast.unparse(node.operand)})"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sign = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        is_text = any(isinstance(part, ast.JoinedStr) for part in (node.left, node.right))
        return None if is_text else f"({ast.unparse(ast.BinOp(node.left, sign, node.right))})"
    if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        return repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "pass"
    return None


def main() -> int:
    """Try changes of a room, and return 1 if a test missed one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("room", help="a directory of src/podium, or a file of it")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", help="tests in place of the room's own, as pytest takes them")
    parser.add_argument(
        "--limit", type=float, default=900.0, help="seconds for the tests of a change"
    )
    given = parser.parse_args()
    place = ROOT / "src" / "podium" / given.room
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    room = Path(given.room).parts[0]
    tests = (given.tests or TESTS.get(room, f"tests/{room}")).split()
    found = [(file, *change) for file in files for change in changes_of(file.read_text())]
    tried = random.Random(given.seed).sample(found, min(given.count, len(found)))
    missed = 0
    with tempfile.TemporaryDirectory(prefix="podium-mutants-") as scratch:
        tree = Path(scratch, "tree")
        left_out = shutil.ignore_patterns(".venv", ".git", "__pycache__", "podium-work", "build")
        shutil.copytree(ROOT, tree, ignore=left_out, symlinks=True)
        for number, (file, line, what, changed) in enumerate(tried, 1):
            target = tree / file.relative_to(ROOT)
            target.write_text(changed)
            began = time.monotonic()
            near = _naming(file, tree, tests)
            by = _noticed_by(tree, [*near, *tests], given.limit)
            shutil.copy(file, target)
            missed += not by
            place_of = f"{file.relative_to(ROOT)}:{line}"
            said = "noticed" if by else "MISSED "
            seconds = time.monotonic() - began
            print(f"{number:3} {said} {seconds:5.0f} s  {place_of}  {what}  {by}", flush=True)
    print(f"{len(tried) - missed} of {len(tried)} changes noticed, of {len(found)} in {given.room}")
    return 1 if missed else 0


def _naming(file: Path, tree: Path, tests: list[str]) -> list[str]:
    """Return the test files that name the module: run first, they notice soonest."""
    module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
    found = [path for place in tests for path in sorted((tree / place).rglob("test_*.py"))]
    return [str(path.relative_to(tree)) for path in found if module in path.read_text()]


def _noticed_by(tree: Path, tests: list[str], limit: float) -> str:
    """Return the first test that fails; nothing if none does."""
    # At the limit, what the tests have started must end too: it holds their output open.
    words = ["timeout", "--kill-after=10", str(limit), sys.executable, "-m", "pytest"]
    words += ["-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode in (124, 137):
        return "the limit"
    lines = done.stdout.splitlines()
    failed = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else "a crash" if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
