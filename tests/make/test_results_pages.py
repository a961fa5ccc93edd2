"""What README shows of the records."""

import pytest

from docs.make.results import readme_table
from nccl_tf.errors import UserError
from tests.experiment import sample


def test_readme_shows_accuracy_and_forgetting_of_some_settings():
    runs = [
        sample.record([[0.8, 0.1], [0.6, 0.8]], method="agem"),
        sample.record([[0.8, 0.1], [0.2, 0.4]], method="finetune"),
    ]
    lines = readme_table(runs, [runs[0].settings_hash[:8]]).splitlines()
    assert lines[0] == "| method | accuracy % | forgetting |"
    assert lines[2:] == ["| A-GEM | 70.0 | 0.200 |"]
    with pytest.raises(UserError, match="begins with zz"):
        readme_table(runs, ["zz"])
