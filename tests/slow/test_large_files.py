"""Files far larger than memory should be used for."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import s3servers

SIZE = 2 << 30
SCRIPT = """if True:
    import json, sys
    from pathlib import Path
    from podium.models import open_registry
    from podium.storage import connect

    url, source, target = sys.argv[1:]
    model = open_registry(connect(url, create=True).url).model("big")
    model.upload({"model.bin": Path(source)}, {}, "v1")
    model.version("v1").fetch(Path(target))
    # Not ru_maxrss, which begins with the size of the process that started this one: pytest with torch has 700 MB.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"peak": int(peak.split()[1])}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["files", "minio"])
def test_two_gigabytes_travel_within_200_megabytes_of_memory(
    kind: str, endpoint: Callable[[str], str], tmp_path: Path
) -> None:
    environ = {**os.environ, **s3servers.KEYS}
    url = str(tmp_path / "store")
    if kind != "files":
        environ["AWS_ENDPOINT_URL"], url = endpoint(kind), f"s3://big-{uuid.uuid4().hex}"
    source = tmp_path / "source"
    with source.open("wb") as file:
        for block in range(SIZE >> 20):
            file.write(block.to_bytes(4, "big") * (1 << 18))
    command = [sys.executable, "-c", SCRIPT, url, str(source), str(tmp_path / "target")]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True, timeout=850)
    assert json.loads(done.stdout)["peak"] < 200 << 10  # in KiB
    assert (tmp_path / "target/model.bin").stat().st_size == SIZE
