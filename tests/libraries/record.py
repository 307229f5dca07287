"""Record what each library prints, and what its own objects hold: build/libraries/bin/python tests/libraries/record.py."""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
RUNS = {
    "huggingface": ("transformers", ["--output_dir=out", "--eval_strategy=epoch", "--num_train_epochs=2",
                                     "--learning_rate=0.01", "--logging_steps=5", "--report_to=none"]),
    "lightning": ("lightning", []),
    "lightning-tqdm": ("lightning", ["--bar=tqdm"]),
    "keras": ("keras", []),
    "xgboost": ("xgboost", []),
    "lightgbm": ("lightgbm", []),
    "catboost": ("catboost", []),
    "sklearn": ("scikit-learn", []),
}  # fmt: skip

NOISE = ("site-packages", "Tip: ", "  super().__init__(loader)")
"""Words of lines about this machine's installation, and of advertisements."""


def main() -> None:
    for name, (package, flags) in RUNS.items():
        script = HERE / f"train_{name.partition('-')[0]}.py"
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run(
                [sys.executable, str(script), *flags], cwd=scratch, check=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
            results = Path(scratch, "results.json").read_text()
        text = done.stdout.decode().replace(str(Path(sys.prefix).parent), "…")
        lines = [line for line in text.split("\n") if not any(word in line for word in NOISE)]
        for old in HERE.glob(f"printed/{name}-[0-9]*"):
            old.unlink()
        target = HERE / "printed" / f"{name}-{version(package)}"
        target.parent.mkdir(exist_ok=True)
        target.with_name(target.name + ".txt").write_text("\n".join(lines), newline="\n")
        target.with_name(target.name + ".json").write_text(json.dumps(json.loads(results)) + "\n")
        print(f"{target.name}: {len(lines)} lines")


if __name__ == "__main__":
    main()
