"""The array of jobs that docs/scale.md shows, run by a shell that plays the scheduler."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_tf.records.record import FILE_NAME, read_record

ROOT = Path(__file__).parents[3]
SMALL = (
    "--dataset=split_digits --head=single --hidden=8 --max_tasks=2 --epochs=12 "
    "--checkpoint_every=0.1 --device=cpu"
)
SCHEDULER = """
SLURM_ARRAY_TASK_ID=0 sh job.sh &
until ls runs/*/*/*/seed0/checkpoints/*.checkpoint >ls.log 2>&1; do
    kill -0 $! || exit 3
    sleep 0.1
done
kill -TERM $!
wait $! && exit 4
[ -z "$(find runs -name result.json)" ] || exit 5
for job in 0 1 0; do
    echo "job $job"
    SLURM_ARRAY_TASK_ID=$job sh job.sh || exit 6
done
"""
"""The first job is stopped when it has a checkpoint, and queued again, twice."""


@pytest.mark.nightly
def test_an_array_whose_first_job_is_stopped_and_queued_again(tmp_path):
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```bash\n(#!/bin/sh\n#SBATCH.*?)```", page, re.DOTALL)
    script = script.replace("--dataset=permuted_mnist", SMALL)
    script = script.replace("python run.py", f"{sys.executable} {ROOT / 'run.py'}")
    (tmp_path / "job.sh").write_text(script, encoding="utf-8")
    ended = subprocess.run(["sh", "-c", SCHEDULER], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    again, second, once_more = ended.stdout.split("job ")[1:]
    assert "going on from step" in again and "going on" not in second
    assert "finished already" in once_more
    records = [read_record(path) for path in (tmp_path / "runs").rglob(FILE_NAME)]
    assert {record.seed for record in records} == {0, 1}
    assert len({record.settings_hash for record in records}) == 1
