"""A whole run of experience replay in Avalanche or PyTorch: NAME STEPS.

It needs what `benchmarks.peers` needs; `benchmarks.short_runs` starts it.
"""

import sys

import torch

import nccl_tf
from benchmarks.peers import RATE, SLOTS, avalanche, mlp
from benchmarks.short_runs import BATCH, SIDES, SIZES, TASKS


def in_avalanche(tasks: list[nccl_tf.Task], epochs: int) -> None:
    """By its `Replay`, which stores half of a batch of twice the size from memory."""
    from avalanche.training.supervised import Replay

    size = SLOTS * SIDES[-1] * TASKS
    learner, experiences = avalanche(Replay, tasks, sizes=SIDES, mem_size=size, train_epochs=epochs)
    for experience in experiences:
        learner.train(experience)


def in_pytorch(tasks: list[nccl_tf.Task], epochs: int) -> None:
    """By a loop over tensors, with a ring of `SLOTS` examples for each class of a task."""
    network = mlp(SIDES[0], SIDES[-1], SIDES[1:-1])
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    entropy = torch.nn.CrossEntropyLoss()
    count = SLOTS * SIDES[-1]
    kept = torch.zeros([count * TASKS, SIDES[0]]), torch.zeros([count * TASKS], dtype=torch.long)
    for number, task in enumerate(tasks):
        images, labels = map(torch.from_numpy, task.train)
        images, labels = images.reshape(len(images), -1), labels.long()
        seen = [0] * SIDES[-1]
        for epoch in range(epochs):
            for rows in torch.randperm(len(images)).split(BATCH):
                x, y = images[rows].float() / 255, labels[rows]
                both, targets = x, y
                if number:
                    drawn = torch.randperm(count * number)[:BATCH]
                    both, targets = torch.cat([x, kept[0][drawn]]), torch.cat([y, kept[1][drawn]])
                optimizer.zero_grad()
                entropy(network(both), targets).backward()
                optimizer.step()
                if not epoch:
                    slots = []
                    for label in y.tolist():
                        slots.append((number * SIDES[-1] + label) * SLOTS + seen[label] % SLOTS)
                        seen[label] += 1
                    kept[0][slots], kept[1][slots] = x, y


def main(name: str, steps: str) -> None:
    """Load the tasks and learn them."""
    # Without CUDA, torchvision's compiled operators are absent: nothing to register fakes for.
    torch.library.register_fake = lambda *_, **__: lambda function: function
    torch.set_num_threads(1)
    examples, epochs = SIZES[int(steps)]
    stream = nccl_tf.load_stream(
        "permuted_mnist", seed=0, max_tasks=TASKS, examples_per_task=examples
    )
    {"avalanche": in_avalanche, "pytorch": in_pytorch}[name](list(stream), epochs)


if __name__ == "__main__":
    main(*sys.argv[1:])
