"""Rules about the command line of a trial after Katib has handed it to a shell."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial

from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.template import PLACEHOLDER
from podium.manifests.rules import KATIB, Rules, Violation
from podium.manifests.shell import (
    Special,
    is_shell,
    specials,
    split_script,
    takes_script,
)
from podium.manifests.workload import Container

SHELL_RULES = Rules[Experiment]()
rule = partial(SHELL_RULES.rule, runner=KATIB)

_JOINED = "Katib joins command and args with blanks, unquoted, and hands them to sh -c."
_KATIB_ENV = ("KATIB_TRIAL_NAME",)
_IDLE = ("echo", "sleep", "true", "exit", "date", "ls", "cp", "mv", "rm", "touch", "sync", "wait")


def _variables(experiment: Experiment, container: Container) -> list[str]:
    return [*container.env, *experiment.template.workload.operator_variables, *_KATIB_ENV]


def _plain(word: str) -> str:
    return PLACEHOLDER.sub("x", word)


def _listed(experiment: Experiment) -> Iterator[tuple[str, str, Special]]:
    """Yield (path, word, effect in the shell) of each wrapped container; scripts are skipped, since
    they are meant for the shell."""
    for _, container in experiment.wrapped_containers():
        variables = _variables(experiment, container)
        for path, word in () if takes_script(container.words) else container.numbered_words:
            for special in specials(_plain(word), variables):
                yield path, word, special


def _quoted(text: str) -> str:
    shown = text.replace("\n", "\\n").replace("\t", "\\t")
    return f"`{shown}`" if len(shown) <= 60 else f"`{shown[:60]}…`"


@rule("fail", _JOINED)
def _shell_breaks_words(experiment: Experiment) -> Iterator[Violation]:
    broken: dict[tuple[str, str], dict[str, None]] = {}
    for path, word, special in _listed(experiment):
        if not special.harmless:
            effects = broken.setdefault((path, word), {})
            effects[f"{_quoted(special.text)} {special.effect}"] = None
    for (path, word), effects in broken.items():
        short = len(word) <= 60 and not set(word) & set("\"'\n")
        hint = f"quote it for the shell: '{word}'" if short else None
        yield Violation(
            f"{_quoted(word)}: {'; '.join(effects)}",
            path,
            hint or "put the script into a file of the image",
        )


@rule(
    "warn",
    _JOINED,
    hint="fine if it is meant; else put it in single quotes, or use $(NAME), which Kubernetes replaces",
)
def _shell_expands_words(experiment: Experiment) -> Iterator[Violation]:
    for path, word, special in _listed(experiment):
        if special.harmless:
            yield Violation(f"{_quoted(word)}: `{special.text}` {special.effect}", path)


@rule(
    "fail",
    "Values are put into the template's JSON and then into a shell's command line as they are.",
)
def _shell_breaks_values(experiment: Experiment) -> Iterator[Violation]:
    lists = {each.name: list(map(str, each.choices)) for each in experiment.written_space}
    parameters = dict(experiment.template.parameters)
    for _, container in experiment.wrapped_containers():
        variables = _variables(experiment, container)
        for path, word in container.numbered_words:
            for name in dict.fromkeys(PLACEHOLDER.findall(word)):
                parameter = parameters.get(name, "")
                choices = lists.get(parameter, [])
                harmed = [value for value in choices if _harms(word, name, value, variables)]
                if harmed:
                    shown = ", ".join(map(repr, harmed[:4]))
                    yield Violation(
                        f"{shown} of parameter {parameter} would not arrive as written in {_quoted(word)}",
                        path,
                        f"write '${{trialParameters.{name}}}' with single quotes; "
                        "spell values without quotes and backslashes",
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
    hint="begin the command with sh, -c",
)
def _shell_not_recognized(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        words = container.words
        runs_script = len(words) > 2 and is_shell(words) and re.fullmatch(r"-\w*c", words[1])
        if runs_script and not takes_script(words):
            problem = f"`{words[0]} {words[1]}` is wrapped once more, so its script is cut at the first blank"
            yield Violation(problem, f"{container.path}.command")


@rule(
    "warn",
    "Katib appends its redirection to the script: only the last command's output is collected.",
    hint="put the commands in braces: { a; b; }",
)
def _last_command_only(experiment: Experiment) -> Iterator[Violation]:
    for path, script in _scripts(experiment) if experiment.collector.kind == "StdOut" else ():
        commands = [command for command in split_script(script).commands if command]
        if len(commands) > 1:
            count = f"the last of {len(commands)} commands, is collected"
            level = "fail" if commands[-1].split()[0] in _IDLE else None
            yield Violation(
                f"only the output of {_quoted(commands[-1])}, {count}", path, level=level
            )


@rule(
    "fail",
    "Katib appends ` 1>FILE 2>&1 && …` to the script; after a line break, ;, & or a comment it is lost.",
    hint="end the script with its last command: in YAML write |- or >- instead of | or >",
)
def _output_not_collected(experiment: Experiment) -> Iterator[Violation]:
    for path, script in _scripts(experiment):
        if not split_script(script).commands[-1]:
            yield Violation(f"the script ends with `…{repr(script[-12:])[1:-1]}`", path)


def _scripts(experiment: Experiment) -> Iterator[tuple[str, str]]:
    for _, container in experiment.wrapped_containers():
        if takes_script(container.words) and len(container.words) > 2:
            _, _, script, *_ = container.numbered_words
            yield script


@rule(
    "warn",
    "sh -c takes one script and calls what follows $0, $1 …; Katib joins it to the script.",
    hint="write the whole command in one script",
)
def _words_after_script(experiment: Experiment) -> Iterator[Violation]:
    for _, container in experiment.wrapped_containers():
        if takes_script(container.words) and len(container.words) > 3:
            _, _, _, (path, _), *_ = container.numbered_words
            yield Violation(
                f"{_quoted(' '.join(container.words[3:]))} is joined to the script", path
            )


@rule(
    "fail",
    "For early stopping the shell must have exactly one child, which gets the signal.",
    hint="run one program in the foreground, without a pipe",
)
def _several_processes_with_early_stopping(experiment: Experiment) -> Iterator[Violation]:
    for path, script in _scripts(experiment) if experiment.early_stopping else ():
        forks = [each for each in split_script(script).operators if each in ("|", "|&", "&")]
        if forks:
            yield Violation(f"the script has `{forks[0]}` in it", path)


@rule(
    "warn",
    "Katib wraps the reporting pod's command only; elsewhere no shell takes the quotes away.",
    hint="quote for the shell in the Master only",
)
def _quotes_reach_workers(experiment: Experiment) -> Iterator[Violation]:
    wrapped = {container.path for _, container in experiment.wrapped_containers()}
    for replica, container in experiment.template.workload.containers() if wrapped else ():
        if container.path not in wrapped and not takes_script(container.words):
            for path, word in container.numbered_words:
                if re.search(r"^'.*'$|^\".*\"$|=['\"].*['\"]$", word):
                    pods = f"the {replica.role or 'other'} pods"
                    yield Violation(f"{_quoted(word)} reaches {pods} with its quotes", path)
