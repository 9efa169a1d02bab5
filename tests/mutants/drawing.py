"""The mutants of the code that decides who reads and who commits: small changes, each of which a test has to notice.

The operators are mutmut's. mutmut itself leaves out whatever is decorated, which properties are, and changes texts.
"""

from __future__ import annotations

import difflib
import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "include/muster"
TRIED_ON_KAFKA = (f"{PACKAGE}/consumer/committer.py", f"{PACKAGE}/edges/kafka_fencing.py")
FILES = (
    f"{PACKAGE}/core/state_machine.py",
    *(
        f"{PACKAGE}/core/ownership/{name}.py"
        for name in ("ownership", "partition", "query", "shards", "topic")
    ),
    f"{PACKAGE}/core/step.py",
    f"{PACKAGE}/core/planner.py",
    f"{PACKAGE}/coordinator/coordinator.py",
    *TRIED_ON_KAFKA,
)
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

TEXT = m.SimpleString() | m.FormattedString() | m.ConcatenatedString()
FALSY = m.Name("False") | m.Name("None") | m.Integer("0") | m.Float("0.0") | TEXT
STATEMENT = cst.SimpleStatementLine | cst.BaseCompoundStatement
LEFT_OUT = TEXT | m.Annotation() | m.Decorator() | m.Call(func=m.Attribute(value=m.Name("log")))
"""What has no mutants: texts, annotations and what is logged."""
OPERATORS = [
    (kind, operator)
    for kind, operator in mutators.mutation_operators
    if operator is not mutators.operator_string
]


@dataclass(frozen=True)
class Mutant:
    """One change of one function."""

    file: str
    function: str
    operator: str
    line: int
    """Where the statement begins that changes, or the function, if the change is in its head."""
    module: cst.Module
    before: cst.CSTNode
    after: cst.CSTNode

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function} ({self.operator})"

    @cached_property
    def source(self) -> str:
        """The whole file with the change."""
        changed = self.module.deep_replace(self.before, self.after)
        assert isinstance(changed, cst.Module)
        return changed.code

    @property
    def diff(self) -> str:
        """The change, for people."""
        lines = difflib.unified_diff(
            self.module.code.splitlines(), self.source.splitlines(), lineterm="", n=1
        )
        return "\n".join(list(lines)[2:])

    @property
    def change(self) -> tuple[str, str]:
        """The lines that differ, before and after."""
        lines = self.diff.splitlines()
        return _joined(lines, "-"), _joined(lines, "+")


def _joined(lines: Sequence[str], sign: str) -> str:
    return " ".join(line[1:].strip() for line in lines if line.startswith(sign))


class _Visitor(cst.CSTVisitor):
    """Collects the mutants of all functions of a file."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, file: str, module: cst.Module) -> None:
        super().__init__()
        self.found: list[Mutant] = []
        self._file = file
        self._module = module
        self._names: list[str] = []
        self._functions = 0
        self._statements: list[int] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if m.matches(node, LEFT_OUT):
            return False
        if isinstance(node, STATEMENT):
            self._statements.append(self.get_metadata(PositionProvider, node).start.line)
        if self._functions:
            self.found += self._mutants(node)
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            if not self._functions:
                self._names += [node.name.value]
            self._functions += self._functions > 0 or isinstance(node, cst.FunctionDef)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, STATEMENT):
            self._statements.pop()
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._functions -= self._functions > 0
            if not self._functions:
                self._names.pop()

    def _mutants(self, node: cst.CSTNode) -> Iterator[Mutant]:
        for kind, operator in OPERATORS:
            for after in operator(node) if isinstance(node, kind) else ():
                if not _same_in_effect(node, after):
                    name = operator.__name__.removeprefix("operator_")
                    yield Mutant(
                        self._file,
                        ".".join(self._names),
                        name,
                        self._statements[-1],
                        self._module,
                        node,
                        after,
                    )


def _same_in_effect(before: cst.CSTNode, after: cst.CSTNode) -> bool:
    """Tell whether a mutant changes a text, or puts one falsy value in the place of another."""
    if isinstance(before, cst.Call) and isinstance(after, cst.Call):
        left = {id(arg) for arg in after.args}
        return any(id(arg) not in left and m.matches(arg.value, FALSY) for arg in before.args)
    if isinstance(before, cst.Assign | cst.AnnAssign):
        return before.value is not None and m.matches(before.value, FALSY)
    if isinstance(before, cst.Lambda):
        return m.matches(before.body, FALSY)
    return False


def mutants(file: str) -> list[Mutant]:
    """Return all mutants of a file."""
    wrapper = MetadataWrapper(
        cst.parse_module((ROOT / file).read_text(encoding="utf-8")), unsafe_skip_copy=True
    )
    visitor = _Visitor(file, wrapper.module)
    wrapper.visit(visitor)
    return visitor.found


def draw(seed: int, count: int, files: Sequence[str] = FILES) -> list[Mutant]:
    """Return `count` mutants of these files, each as likely as any other."""
    found = [mutant for file in files for mutant in mutants(file)]
    return random.Random(seed).sample(found, min(count, len(found)))


@dataclass(frozen=True)
class Equivalent:
    """A mutant that does the same as the original, and why. It stays valid when other lines move."""

    file: str
    function: str
    operator: str
    line: str
    changed: str
    why: str

    def is_of(self, mutant: Mutant) -> bool:
        """Tell whether it is this mutant."""
        named = (mutant.file, mutant.function, mutant.operator) == (self.file, self.function, self.operator)
        return named and mutant.change == (self.line, self.changed)


def equivalents() -> list[Equivalent]:
    """Return those that are known."""
    found = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return [Equivalent(**each) for each in found.get("equivalent", [])]
