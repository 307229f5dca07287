"""The shell's wrapper: held against a real sh, then rule by rule."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from podium.doctor.reading import STDOUT
from podium.manifests.experiment.experiment import Collector, Experiment
from podium.manifests.experiment.shell_rules import SHELL_RULES
from podium.manifests.rules import Finding, apply
from podium.manifests.shell import join, run_by_shell, specials, split_script


@pytest.mark.parametrize(
    "word",
    ["plain", "--lr=0.1", "a,b", "x#y", "a=b:c/d", "ümlaut", "{a}", "100%", "a@b", "!x", "$", "a~"],
)
def test_a_word_called_harmless_arrives_as_it_is(word: str, tmp_path: Path) -> None:
    assert not list(specials(word))
    assert arrives(word, tmp_path) == [word]


@pytest.mark.parametrize(
    "word",
    [
        "a b", "a\tb", "a\nb", "a;true", "a&true", "a|cat", "a>out", "(x)", "$HOME", "${HOME}", "$(echo)", "`echo`",
        "*", "?", "#x", "~", r"a\b", "it's", '"', "",
    ],
)  # fmt: skip
def test_a_word_called_special_does_not_arrive_as_it_is(word: str, tmp_path: Path) -> None:
    assert list(specials(word))
    (tmp_path / "f").touch()
    assert arrives(word, tmp_path) != [word]


@pytest.mark.parametrize("word", ["'a b'", '"a b"', "--x='$HOME;*'", "'it'", '"#"', "'a\"b'"])
def test_quotes_within_a_word_protect_it(word: str, tmp_path: Path) -> None:
    assert not list(specials(word))
    assert len(arrives(word, tmp_path)) == 1


def arrives(word: str, folder: Path) -> list[str] | None:
    """Return the arguments that a program gets of a word in `sh -c`; None if the shell fails."""
    show = folder / "show"
    show.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    show.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", f"./show {word}"], cwd=folder, capture_output=True, text=True, timeout=10
    )
    return None if done.returncode else done.stdout.split("\0")[:-1]


def test_kubernetes_replaces_its_own_variables_before_the_shell_sees_them() -> None:
    assert not list(specials("--name=$(KATIB_TRIAL_NAME)", ["KATIB_TRIAL_NAME"]))
    assert list(specials("--name=$(OTHER)", ["KATIB_TRIAL_NAME"]))


def test_the_wrapper_collects_the_output_and_marks_a_good_end(tmp_path: Path) -> None:
    collector = Collector(kind="StdOut", path=str(tmp_path / "metrics.log"))
    words = collector.wrap(["echo", "loss=1"])
    child = subprocess.Popen(words)
    assert child.wait(10) == 0
    assert (tmp_path / "metrics.log").read_text() == "loss=1\n"
    assert (tmp_path / f"{child.pid}.pid").read_text() == "completed\n"


def test_of_a_script_only_the_last_command_is_collected(tmp_path: Path) -> None:
    collector = Collector(kind="StdOut", path=str(tmp_path / "metrics.log"))
    words = collector.wrap(["sh", "-c", "echo loss=1; echo bye"])  # observed on Katib too
    assert subprocess.run(words, capture_output=True, timeout=10).stdout == b"loss=1\n"
    assert (tmp_path / "metrics.log").read_text() == "bye\n"


def test_a_path_to_the_shell_is_wrapped_once_more() -> None:
    assert STDOUT.wrap(["/bin/sh", "-c", "echo 1"])[:2] == ("sh", "-c")
    assert STDOUT.wrap(["bash", "-c", "echo 1"])[:2] == ("bash", "-c")


def test_a_script_is_cut_where_its_commands_end() -> None:
    assert split_script("cd /app && python 'a;b' | tee x").commands == (
        "cd /app",
        "python 'a;b'",
        "tee x",
    )
    assert split_script("{ a; b; }").commands == ("{ a; b; }",)
    assert split_script("a 2>&1").operators == ()
    assert split_script("a\n").commands == ("a", "")
    assert split_script("# don't; wait\na # b; c\nd#e '#f'").commands == ("", "a", "d#e '#f'")
    assert split_script("a # don't").commands == ("a", "")


def job(
    *command: str, kind: str = "Job", worker: tuple[str, ...] = (), **experiment: Any
) -> dict[str, Finding]:
    """Examine the command of a trial; findings by rule."""
    name = "pytorch" if kind == "PyTorchJob" else "main"

    def template(words: tuple[str, ...]) -> dict[str, Any]:
        return {
            "template": {
                "spec": {"containers": [{"name": name, "image": "i:1", "command": list(words)}]}
            }
        }

    spec: dict[str, Any] = template(command)
    if kind == "PyTorchJob":
        replicas = {"Master": spec} | ({"Worker": template(worker)} if worker else {})
        spec = {"pytorchReplicaSpecs": replicas}
    written = {"trialTemplate": {"primaryContainerName": name}, **experiment}
    written["trialTemplate"] = {
        **written["trialTemplate"],
        "trialSpec": {"kind": kind, "spec": spec},
    }
    return {
        finding.rule: finding for finding in apply(SHELL_RULES, Experiment.parse({"spec": written}))
    }


def searching(*values: str) -> dict[str, Any]:
    """An Experiment's spec with one categorical parameter."""
    template = {
        "primaryContainerName": "main",
        "trialParameters": [{"name": "text", "reference": "words"}],
    }
    return {
        "trialTemplate": template,
        "parameters": [{"name": "words", "feasibleSpace": {"list": list(values)}}],
    }


def test_a_plain_command_passes() -> None:
    assert not job("python", "-m", "podium.trainer", "--lr=${trialParameters.lr}", "--epochs=3")


def test_an_inline_python_script_is_broken_by_the_shell() -> None:
    finding = job("python", "-c", "import sys\nprint('loss=1')")[
        "shell-breaks-words"
    ]  # observed: a syntax error
    assert finding.level == "fail"
    assert (
        finding.where == "spec.trialTemplate.trialSpec.spec.template.spec.containers[0].command[2]"
    )


def test_an_argument_with_a_blank_is_split() -> None:
    finding = job("python", "train.py", "--name", "two words")["shell-breaks-words"]
    assert "'two words'" in (finding.hint or "")


def test_a_variable_of_the_shell_is_only_a_warning() -> None:
    assert job("python", "train.py", "--home=$HOME")["shell-expands-words"].level == "warn"


@pytest.mark.parametrize("value", ["a b", "$HOME", "x;echo injected=1", "a&b", "it's", "a*b"])
def test_a_value_that_the_shell_changes_fails(value: str) -> None:
    found = job("python", "train.py", "--text=${trialParameters.text}", **searching("plain", value))
    assert found["shell-breaks-values"].level == "fail"
    assert repr(value) in found["shell-breaks-values"].what


@pytest.mark.parametrize("value", ["a b", "$HOME", "x;echo injected=1", "a&b", "a*b"])
def test_single_quotes_in_the_template_protect_values(value: str) -> None:
    assert not job(
        "python", "train.py", "--text='${trialParameters.text}'", **searching(value)
    )  # observed


def test_a_backslash_in_a_value_becomes_something_else() -> None:
    found = job(
        "python", "train.py", "'${trialParameters.text}'", **searching(r"a\nb")
    )  # observed: a line break
    assert found["shell-breaks-values"].level == "fail"


def test_a_single_quote_in_a_value_breaks_quoted_templates() -> None:
    found = job("python", "train.py", "'${trialParameters.text}'", **searching("it's"))  # observed
    assert found["shell-breaks-values"].level == "fail"


@pytest.mark.parametrize("shell", ["/bin/sh", "/usr/bin/bash", "dash"])
def test_a_shell_that_katib_does_not_recognise_fails(shell: str) -> None:
    assert job(shell, "-c", "python train.py")["shell-not-recognized"].level == "fail"


def test_flags_of_the_shell_hide_it_from_katib() -> None:
    assert job("bash", "-ec", "python train.py")["shell-not-recognized"].level == "fail"


def test_a_script_is_collected_from_its_last_command_only() -> None:
    assert job("sh", "-c", "pip list && python train.py")["last-command-only"].level == "warn"
    assert job("sh", "-c", "python train.py; echo done")["last-command-only"].level == "fail"
    assert not job("sh", "-c", "{ pip list && python train.py; }")
    file = {"metricsCollectorSpec": {"collector": {"kind": "File"}}}
    assert not job("sh", "-c", "python train.py; echo done", **file), "nothing is redirected then"


@pytest.mark.parametrize(
    "script", ["python train.py\n", "python train.py;", "python train.py &", "python train.py # go"]
)
def test_a_script_whose_end_swallows_the_redirection_fails(script: str) -> None:
    assert job("sh", "-c", script)["output-not-collected"].level == "fail"


def test_words_after_a_script_are_joined_to_it() -> None:
    assert job("sh", "-c", "python train.py", "--lr=1")["words-after-script"].level == "warn"


def test_a_pipe_hinders_early_stopping() -> None:
    stopping = {"earlyStopping": {"algorithmName": "medianstop"}}
    assert (
        job("sh", "-c", "python t.py | tee x", **stopping)[
            "several-processes-with-early-stopping"
        ].level
        == "fail"
    )
    assert "several-processes-with-early-stopping" not in job("sh", "-c", "python t.py | tee x")


def test_quotes_meant_for_the_shell_reach_workers_which_have_none() -> None:
    words = ("python", "train.py", "--name='a b'")
    assert job(*words, kind="PyTorchJob", worker=words)["quotes-reach-workers"].level == "warn"
    assert not job(*words, kind="PyTorchJob", worker=("python", "train.py", "--name=a b"))


def test_a_pushing_program_is_not_wrapped() -> None:
    pushing = {"metricsCollectorSpec": {"collector": {"kind": "Push"}}}
    assert not job("python", "-c", "print('loss=1')", **pushing)


@pytest.mark.parametrize("first", ["FOO=1", "FOO='a b'", "FOO=", "command", "exec", "'FOO=1'"])
def test_a_command_begins_without_katib_as_within(first: str, tmp_path: Path) -> None:
    (tmp_path / "FOO=1").symlink_to("/usr/bin/env")
    words = [first, "printenv", "PATH", "FOO"]
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = join(words)[1]
    within = subprocess.run(["sh", "-c", script], env=environ, capture_output=True)
    alone = subprocess.run(run_by_shell(words), env=environ, capture_output=True)
    assert (alone.returncode, alone.stdout) == (within.returncode, within.stdout)
    assert alone.stdout
