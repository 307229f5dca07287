"""Rules about the command line of a trial after Katib has handed it to a shell."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial

from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.shell import (
    Special,
    is_shell,
    specials,
    split_script,
    takes_script,
)
from podium.manifests.experiment.template import PLACEHOLDER
from podium.manifests.fields import items, mapping, numbered, text
from podium.manifests.rules import KATIB, Rules, Violation
from podium.manifests.workload import Container

SHELL_RULES = Rules[Experiment]()
rule = partial(SHELL_RULES.rule, runner=KATIB)

JOINED = "Katib joins command and args with blanks, unquoted, and hands them to sh -c."
KATIB_ENV = ("KATIB_TRIAL_NAME",)
_IDLE = ("echo", "sleep", "true", "exit", "date", "ls", "cp", "mv", "rm", "touch", "sync", "wait")


def _variables(experiment: Experiment, container: Container) -> list[str]:
    return [*container.env, *experiment.template.workload.operator_variables, *KATIB_ENV]


def _plain(word: str) -> str:
    return PLACEHOLDER.sub("x", word)


def _listed(experiment: Experiment, container: Container) -> Iterator[tuple[str, str, Special]]:
    """Yield (path, word, effect in the shell); scripts are skipped, since they are meant for the
    shell."""
    if takes_script(container.words):
        return
    for path, word in container.numbered_words:
        for special in specials(_plain(word), _variables(experiment, container)):
            yield path, word, special


def _first_of(text: str, limit: int = 60) -> str:
    shown = text.replace("\n", "\\n").replace("\t", "\\t")
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


@rule("fail", JOINED)
def _shell_breaks_words(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        broken: dict[str, tuple[str, list[Special]]] = {}
        for path, word, special in _listed(experiment, container):
            if not special.harmless:
                broken.setdefault(path, (word, []))[1].append(special)
        for path, (word, harmful) in broken.items():
            effects = dict.fromkeys(
                f"`{_first_of(special.text)}` {special.effect}" for special in harmful
            )
            short = len(word) <= 60 and not set(word) & set("\"'\n")
            hint = (
                f"quote it for the shell: '{word}'"
                if short
                else "put the script into a file of the image"
            )
            yield Violation(f"`{_first_of(word)}`: {'; '.join(effects)}", path, hint)


@rule("warn", JOINED)
def _shell_expands_words(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        for path, word, special in _listed(experiment, container):
            if special.harmless:
                hint = "fine if it is meant; else put it in single quotes, or use $(NAME), which Kubernetes replaces"
                yield Violation(
                    f"`{_first_of(word)}`: `{special.text}` {special.effect}", path, hint
                )


@rule(
    "fail",
    "Values are put into the template's JSON and then into a shell's command line as they are.",
)
def _shell_breaks_values(experiment: Experiment) -> Iterator[Violation]:
    values = dict(_values(experiment))
    for _, container in experiment.wrapped_containers():
        for path, word in container.numbered_words:
            for name in dict.fromkeys(PLACEHOLDER.findall(word)):
                parameter, choices = values.get(name, ("", []))
                harmed = [
                    value
                    for value in choices
                    if _harms(word, name, value, _variables(experiment, container))
                ]
                if harmed:
                    shown = ", ".join(repr(value) for value in harmed[:4])
                    what = f"{shown} of parameter {parameter} would not arrive as written in `{_first_of(word)}`"
                    quoted = f"'${{trialParameters.{name}}}'"
                    hint = f"write {quoted} with single quotes; spell values without quotes and backslashes"
                    yield Violation(what, path, hint)


def _values(experiment: Experiment) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Yield (placeholder, (search parameter, values of its list)); values that break the template
    are left out."""
    lists = {
        text(parameter.get("name")): list(
            map(str, items(mapping(parameter.get("feasibleSpace")).get("list")))
        )
        for _, parameter in numbered("", experiment.spec.get("parameters"))
    }
    yield from (
        (name, (reference, lists.get(reference, [])))
        for name, reference in experiment.template.parameters
    )


def _harms(word: str, name: str, value: str, variables: Sequence[str]) -> bool:
    """Return whether a value changes on its way to the command, or means something to the shell
    that a plain value does not."""
    try:
        if json.loads(f'"{value}"', strict=False) != value:
            return True  # a backslash and n become a line break
    except ValueError:
        return False  # the template is broken before a shell sees it: admission reports it
    filled = PLACEHOLDER.sub(lambda match: value if match[1] == name else "x", word)
    return len(list(specials(filled, variables))) > len(list(specials(_plain(word), variables)))


@rule(
    "fail",
    "Katib keeps a shell only if the first words are exactly `sh -c` or `bash -c`; others it wraps again.",
)
def _shell_not_recognized(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        words = container.words
        runs_script = len(words) > 2 and is_shell(words) and re.fullmatch(r"-\w*c", words[1])
        if runs_script and not takes_script(words):
            what = f"`{words[0]} {words[1]}` is wrapped once more, so its script is cut at the first blank"
            yield Violation(what, f"{container.path}.command", "begin the command with sh, -c")


@rule(
    "warn",
    "Katib appends its redirection to the script: only the last command's output is collected.",
)
def _last_command_only(experiment: Experiment) -> Iterator[Violation]:
    for path, script in _scripts(experiment) if experiment.collector.kind == "StdOut" else ():
        commands = [command for command in split_script(script).commands if command]
        if len(commands) > 1:
            what = f"only the output of `{_first_of(commands[-1])}`, the last of {len(commands)} commands, is collected"
            level = "fail" if commands[-1].split()[0] in _IDLE else None
            yield Violation(what, path, "put the commands in braces: { a; b; }", level=level)


@rule(
    "fail",
    "Katib appends ` 1>FILE 2>&1 && …` to the script; after a line break, ;, & or a comment it is lost.",
)
def _output_not_collected(experiment: Experiment) -> Iterator[Violation]:
    for path, script in _scripts(experiment):
        last = split_script(script).commands[-1]
        if not last or re.search(r"(^|\s)#[^'\"]*$", last):
            ending = repr(script[-12:])[1:-1]
            hint = "end the script with its last command: in YAML write |- or >- instead of | or >"
            yield Violation(f"the script ends with `…{ending}`", path, hint)


def _scripts(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield (path, script) of each wrapped container whose command is ``sh -c``."""
    for _, container in experiment.wrapped_containers():
        if takes_script(container.words) and len(container.words) > 2:
            yield list(container.numbered_words)[2][0], container.words[2]


@rule(
    "warn", "sh -c takes one script and calls what follows $0, $1 …; Katib joins it to the script."
)
def _words_after_script(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        words = container.words
        if takes_script(words) and len(words) > 3:
            what = f"`{_first_of(' '.join(words[3:]))}` is joined to the script"
            yield Violation(
                what, list(container.numbered_words)[3][0], "write the whole command in one script"
            )


@rule("fail", "For early stopping the shell must have exactly one child, which gets the signal.")
def _several_processes_with_early_stopping(experiment: Experiment) -> Iterator[Violation]:
    if not experiment.early_stopping:
        return
    for path, script in _scripts(experiment):
        operators = [
            operator for operator in split_script(script).operators if operator in ("|", "|&", "&")
        ]
        if operators:
            hint = "run one program in the foreground, without a pipe"
            yield Violation(f"the script has `{operators[0]}` in it", path, hint)


@rule(
    "warn",
    "Katib wraps the reporting pod's command only; elsewhere no shell takes the quotes away.",
)
def _quotes_reach_workers(experiment: Experiment) -> Iterator[Violation]:
    wrapped = {container.path for _, container in experiment.wrapped_containers()}
    if not wrapped:
        return
    for replica, container in experiment.template.workload.containers():
        if container.path not in wrapped and not takes_script(container.words):
            for path, word in container.numbered_words:
                if re.search(r"^'.*'$|^\".*\"$|=['\"].*['\"]$", word):
                    what = f"`{_first_of(word)}` reaches the {replica.role or 'other'} pods with its quotes"
                    yield Violation(what, path, "quote for the shell in the Master only")
