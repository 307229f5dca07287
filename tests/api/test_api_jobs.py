"""Jobs of the API: what it refuses."""

import pytest

import podium
from podium.errors import InvalidInput


@pytest.mark.parametrize("job", ["nosuch.yaml", 3])
def test_a_missing_file_of_a_job_is_named(job: str) -> None:
    with pytest.raises(InvalidInput, match=f"there is no file {job}"):
        podium.run_job(job)
