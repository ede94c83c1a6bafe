"""What is wrong with a cell before it runs: a syntax error anywhere, or a reserved name bound at top level."""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Objection(NamedTuple):
    """Why a cell must not run: the kind of error, and one line with the place and what to do."""

    name: str
    message: str


def tree(source: str, file: str, mode: str = "exec", flags: int = 0) -> Any:
    """Return the syntax tree of ``source``.

    Raises:
        SyntaxError, ValueError, OverflowError, MemoryError, RecursionError: it has none.
    """
    flags |= ast.PyCF_ONLY_AST
    try:
        return compile(source, file, mode, flags, True)
    except SystemError:
        # CPython 3.11 counts the depth of a tree under construction once for all threads: another one that parses
        # meanwhile spoils the count. The threads can only change while the garbage collector runs Python code.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return compile(source, file, mode, flags, True)
        finally:
            if collecting:
                gc.enable()


def objection(source: str, reserved: Collection[str], flags: int = 0) -> Objection | None:
    """Return why ``source`` (after IPython's transformations) must not run, or None.

    Args:
        reserved: names that no cell may bind.
        flags: compiler flags, such as the ``__future__`` features in force.
    """
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come when the cell is compiled to run
            parsed = tree(source, "<cell>", flags=flags)
            # the syntax tree alone does not show everything: a return at top level, a nonlocal without a function
            compile(parsed, "<cell>", "exec", flags, True)
    except SyntaxError as error:
        return syntax_objection(error)
    except (MemoryError, RecursionError) as error:  # the parser and the compiler have a stack for so many levels
        return Objection(
            type(error).__name__, "this cell is nested too deeply for Python; split its longest expression; nothing ran"
        )
    except (ValueError, OverflowError) as error:
        return Objection(type(error).__name__, f"this cell cannot be compiled ({error}); nothing ran")
    for node, name in _bindings(parsed):
        if name in reserved:
            place = f"line {node.lineno}, column {node.col_offset + 1}"  # type: ignore[attr-defined]
            return Objection(
                "Refused", f"{place}: {name!r} is reserved for the host's calls; bind another name; nothing ran"
            )
    return None


def syntax_objection(error: SyntaxError) -> Objection:
    """Return the line, the column and the parser's words, without the source."""
    place = f"line {error.lineno or 1}" + (f", column {error.offset}" if error.offset else "")
    return Objection(type(error).__name__, f"{place}: {error.msg}; nothing ran, fix the cell and run it again")


def _bindings(root: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the names that a module's code binds or deletes in its own scope, and every ``global`` declaration."""
    nodes = [root]  # not recursive: a tree may be deeper than the interpreter's stack
    while nodes:
        node = nodes.pop()
        yield from _binds(node)
        if isinstance(node, _SCOPES):
            nodes += reversed(_around_scope(node))
            if not isinstance(node, ast.Lambda):
                yield from ((n, name) for n in ast.walk(node) if isinstance(n, ast.Global) for name in n.names)
        elif isinstance(node, _COMPREHENSIONS):
            # the loop variables are its own, a walrus in it binds outside
            yield from ((n, n.target.id) for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        else:
            nodes += reversed(list(ast.iter_child_nodes(node)))


def _binds(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node, node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node, node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias, alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node, node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node, node.rest
    elif isinstance(node, ast.Global):
        yield from ((node, name) for name in node.names)


def _around_scope(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a function or class that are evaluated in the scope around it."""
    if isinstance(node, ast.Lambda):
        return []
    around = [*node.decorator_list, *getattr(node, "bases", [])]  # type: ignore[attr-defined]
    arguments = getattr(node, "args", None)
    if arguments is not None:
        around += [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]
    return around
