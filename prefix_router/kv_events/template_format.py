"""Whether a chat template wants the content of a message as text or as a list of parts. Pure.

vLLM looks at the template to find out, and gives it one or the other: `string` or `openai` in its words. A
template that loops over a message's content wants parts. The rules here follow vLLM's, because the same
template must be read the same way; they were taken from version 0.32.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes


def wants_parts(template: nodes.Template) -> bool:
    """Return whether the template loops over the content of messages."""
    messages = _loop_variables(template, _aliases(template, "messages"))
    handed_over = _macro_loops(template, messages)
    for loop in template.find_all(nodes.For):
        if any(_reads(loop.iter, name, "content") for name in messages):
            return True
        if isinstance(loop.iter, nodes.Name) and loop.iter.name in handed_over.get(id(loop), {"content"}):
            return True
    return False


def _aliases(template: nodes.Template, name: str) -> set[str]:
    """Return the variables that `name`, or a part of it, is assigned to, and `name` itself."""
    found, waiting = {name}, [name]
    while waiting:
        source = waiting.pop()
        for assignment in template.find_all(nodes.Assign):
            target = assignment.target
            if (
                isinstance(target, nodes.Name)
                and target.name not in found
                and _reads(assignment.node, source)
            ):
                found.add(target.name)
                waiting.append(target.name)
    return found


def _loop_variables(template: nodes.Template, lists: set[str]) -> set[str]:
    return {
        loop.target.name
        for loop in template.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and any(_reads(loop.iter, name) for name in lists)
    }


def _macro_loops(template: nodes.Template, messages: set[str]) -> dict[int, set[str]]:
    """Return, for each loop in a macro, the parameters that are handed the content of a message somewhere."""
    loops: dict[int, set[str]] = {}
    for macro in template.find_all(nodes.Macro):
        names = [argument.name for argument in macro.args]
        handed = {
            name
            for call in template.find_all(nodes.Call)
            if isinstance(call.node, nodes.Name) and call.node.name == macro.name
            for name, value in _arguments(call, names)
            if any(_reads(value, message, "content") for message in messages)
        }
        loops.update((id(loop), handed) for loop in macro.find_all(nodes.For))
    return loops


def _arguments(call: nodes.Call, names: list[str]) -> Iterator[tuple[str, nodes.Node]]:
    yield from zip(names, call.args, strict=False)
    for keyword in call.kwargs:
        if isinstance(keyword, nodes.Keyword) and keyword.key in names:
            yield keyword.key, keyword.value


def _reads(node: nodes.Node | None, name: str, member: str | None = None) -> bool:
    """Return whether an expression is the variable, or its member, perhaps filtered, tested or sliced."""
    while True:
        if isinstance(node, nodes.Filter | nodes.Test) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
        else:
            break
    if member is not None:
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            found = node.arg.value
        elif isinstance(node, nodes.Getattr):
            found = node.attr
        else:
            return False
        if found != member:
            return False
        node = node.node
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
