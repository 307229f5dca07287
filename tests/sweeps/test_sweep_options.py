"""What a sweep can be asked is an option in one file: it is found everywhere, and its hooks are called."""

import json
import subprocess
import sys
from pathlib import Path

from sweep_manifests import job, write_experiment

from podium.manifests.options import OPTIONS, SweepOptions, settings
from podium.manifests.options.algorithm import ChosenAlgorithm

TOY = '''
"""An option of a plugin, as somebody would write it."""

from dataclasses import dataclass
from typing import ClassVar

from podium.errors import InvalidInput
from podium.manifests.options import OPTIONS
from podium.manifests.options.base import Follower, Setting, SweepOption

called = []


class Counting(Follower):
    def begin(self, trials):
        called.append("begin")

    def trial_begins(self, trial):
        called.append("trial begins")

    def trial_ended(self, trial):
        called.append("trial ended")


@dataclass(frozen=True, kw_only=True)
class Toy(SweepOption):
    title: ClassVar[str] = "toy"
    settings: ClassVar[tuple[Setting, ...]] = (Setting(name="toy_size", kind=int, help="How large the toy is."),)

    size: int

    @classmethod
    def of(cls, values):
        return cls(size=values["toy_size"]) if "toy_size" in values else None

    def check(self, experiment):
        if self.size > 9:
            raise InvalidInput(f"a toy of {self.size} is too large", "toy_size: 9")

    def describe(self, experiment):
        return f"of size {self.size}"

    def follow(self, experiment):
        return Counting()


OPTIONS.append(Toy)
'''

ASK = """
import json, sys
import toy
import podium
from click.testing import CliRunner
from podium.cli.experiment import experiment, show_status
from podium.ui.sweeps import FollowedSweep
from podium.errors import InvalidInput

manifest = json.loads(sys.argv[1])
said = {"help": CliRunner().invoke(experiment, ["run", "--help"]).output, "doc": podium.sweep.__doc__}
try:
    podium.sweep(manifest, toy_size=10)
except InvalidInput as error:
    said["refused"] = error.message
sweep = podium.sweep(manifest, toy_size=3)
said["yaml"] = sweep.experiment.annotations
said["called"] = toy.called
said["report"] = sweep.report().read_text()
said["notebook"] = sweep._repr_html_()
said["page"] = dict(FollowedSweep(sweep.cluster, sweep.name).view("/").shown["asked"])
sweep.cluster.close()
said["status"] = CliRunner().invoke(experiment, ["status", sweep.name]).output
saved = CliRunner().invoke(experiment, ["render", "random", "--toy-size", "4", "--json"])
said["flag"] = json.loads(saved.stdout)["metadata"]["annotations"]
print(json.dumps(said))
"""


def test_an_option_in_one_file_is_found_everywhere(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY)
    manifest = write_experiment(
        job(["echo", "loss=${trialParameters.x}"]), name="toys", maxTrialCount=2
    )
    ran = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(manifest)], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={"PODIUM_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert "--toy-size INTEGER" in said["help"]
    assert "How large the toy is." in said["help"]
    assert "toy_size: How large the toy is." in said["doc"]
    assert "a toy of 10 is too large" in said["refused"]
    assert said["yaml"] == {"podium.dev/sweep": "toy_size: 3\n"}
    assert said["flag"] == {"podium.dev/sweep": "toy_size: 4\n"}
    assert sorted(said["called"]) == [
        "begin",
        "trial begins",
        "trial begins",
        "trial ended",
        "trial ended",
    ]
    assert said["page"] == {"toy": "of size 3"}
    for place in ("status", "report", "notebook"):
        assert "toy: of size 3" in said[place], place


def test_every_setting_is_an_argument_with_a_type() -> None:
    typed = {*SweepOptions.__annotations__, *(setting.name for setting in ChosenAlgorithm.settings)}
    assert typed == set(settings())


def test_no_two_options_share_a_setting() -> None:
    names = [setting.name for option in OPTIONS for setting in option.settings]
    assert len(names) == len(set(names))
    assert len({option.title for option in OPTIONS}) == len(OPTIONS)
