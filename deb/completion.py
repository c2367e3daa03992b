"""Completion for bash and zsh from the shape of the command lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deb.shape import Command, Option

_BASH = """\
# bash completion for {name}                                        -*- shell-script -*-

_{function}()
{{
    local cur prev words cword
    _init_completion || return
{verb}    case "{key}" in
{cases}
    esac
}}
complete -F _{function} {name}
"""
_BASH_VERB = """\
    if [[ $cword -eq 1 ]]; then
        COMPREPLY=( $(compgen -W "{words}" -- "$cur") )
        return
    fi
"""


def bash(program: Command) -> str:
    """What goes to /usr/share/bash-completion/completions/NAME."""
    function = program.name.replace("-", "_")
    if not program.verbs:
        return _BASH.format(
            name=program.name, function=function, verb="", key="$prev", cases="\n".join(_bash_options(program))
        )
    verbs = _BASH_VERB.format(words=" ".join([*(v.name for v in program.verbs), *_names(program.options)]))
    cases = [line for verb in program.verbs for line in _bash_case(verb)]
    return _BASH.format(name=program.name, function=function, verb=verbs, key="${words[1]}", cases="\n".join(cases))


def _bash_case(verb: Command) -> Iterator[str]:
    yield f"        {verb.name})"
    if any(operand.is_command for operand in verb.operands):
        # From "--" on it is another command's line.
        yield "            local i"
        yield "            for (( i = 2; i < cword; i++ )); do"
        yield "                [[ ${words[i]} == -- ]] && { _command_offset $((i + 1)); return; }"
        yield "            done"
    yield '            case "$prev" in'
    yield from (f"        {line}" for line in _bash_options(verb))
    yield "            esac"
    yield "            ;;"


def _bash_options(command: Command) -> Iterator[str]:
    for option in command.options:
        if option.value:
            yield f"        {'|'.join(option.names)}) {_bash_values(option)}; return ;;"
    files = any(operand.is_path for operand in command.operands)
    words = " ".join([*_names(command.options), *(["--"] if any(o.is_command for o in command.operands) else [])])
    default = f'COMPREPLY=( $(compgen -W "{words}" -- "$cur") )'
    yield f"        *) {'[[ $cur == -* ]] || { _filedir; return; }; ' if files else ''}{default} ;;"


def _bash_values(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=( $(compgen -W "{" ".join(option.choices)}" -- "$cur") )'
    return "_filedir" if option.is_path else "COMPREPLY=()"


def _names(options: Iterable[Option]) -> list[str]:
    return [name for option in options for name in option.names]


def zsh(program: Command) -> str:
    """What goes to /usr/share/zsh/vendor-completions/_NAME."""
    lines = [f"#compdef {program.name}", ""]
    if not program.verbs:
        return "\n".join([*lines, *_zsh_arguments(program, ""), ""])
    lines += ["local context state state_descr line", "typeset -A opt_args", "_arguments -C \\"]
    lines += [f"  {_zsh_option(option)} \\" for option in program.options]
    lines += ["  '1:verb:->verb' '*::argument:->arguments'", "", "case $state in", "  verb)", "    local -a verbs=("]
    lines += [f"      {_quoted(f'{verb.name}:{verb.summary}')}" for verb in program.verbs]
    lines += ["    )", "    _describe verb verbs", "    ;;", "  arguments)", "    case $words[1] in"]
    for verb in program.verbs:
        lines += [f"      {verb.name})", *_zsh_arguments(verb, "        "), "        ;;"]
    return "\n".join([*lines, "    esac", "    ;;", "esac", ""])


def _zsh_arguments(command: Command, indent: str) -> Iterator[str]:
    words = [_zsh_option(option) for option in command.options]
    for operand in command.operands:
        if operand.is_command:
            words.append("'*::command: _normal'")
        else:
            words.append(_quoted(f":{operand.name}:{'_files' if operand.is_path else ' '}"))
    yield f"{indent}_arguments \\"
    yield from (f"{indent}  {word} \\" for word in words[:-1])
    yield f"{indent}  {words[-1]}"


def _zsh_option(option: Option) -> str:
    text = option.text.replace("[", "(").replace("]", ")").replace(":", ",")
    values = f"({' '.join(option.choices)})" if option.choices else "_files" if option.is_path else " "
    value = f":{option.value}:{values}" if option.value else ""
    if len(option.names) == 1:
        return _quoted(f"{option.names[0]}[{text}]{value}")
    excluded = _quoted(f"({' '.join(option.names)})")
    return f"{excluded}{{{','.join(option.names)}}}" + _quoted(f"[{text}]{value}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
