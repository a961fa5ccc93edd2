"""The table of docs/which_method.md, of results made without training."""

from types import SimpleNamespace

from nccl_tf.methods.registry import METHODS
from studies.comparison import which_method

TITLE = "Permuted MNIST, 1,000 slots"


def row(name: str, shown: str) -> list[str]:
    (line,) = [line for line in shown.splitlines() if f"(`{name}`)" in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_has_what_the_registry_says_and_what_was_reached():
    cell = SimpleNamespace(system={"flags": {"method": "derpp"}})
    records = [SimpleNamespace(average_accuracy=value) for value in (0.8, 0.9)]
    result = SimpleNamespace(cell=cell, records=records)
    shown = which_method.table({TITLE: [result]})
    assert row("derpp", shown)[1:4] == ["reservoir", "no", "a second memory batch"]
    assert row("derpp", shown)[-1] == "85.0"
    assert "1,000 slots, measured with one pass |" in shown
    alone = SimpleNamespace(cell=cell, records=records[:1])
    assert row("derpp", which_method.table({TITLE: [alone]}))[-1] == "80.0 (one seed)"
    assert row("finetune", shown)[1:5] == ["-", "no", "-", "1.0"]
    assert row("gdumb", shown)[4:] == ["-", "-"]
    methods = [name for name, method in METHODS.items() if not method.joint]
    assert shown.count("(`") == len(methods)


def test_which_methods_ask_for_tasks():
    asking = {name for name, method in METHODS.items() if which_method.asks_for_tasks(method)}
    assert {"ewc", "lwf", "icarl", "ranpac", "mir", "nccl_ring", "gdumb"} <= asking
    assert not asking & {"finetune", "er_reservoir", "derpp", "er_ace", "slda", "ncm", "clser"}
