"""The rows of fine-tuning and of the bounds that learn all tasks at once, without TensorFlow."""

from nccl_tf.methods.row import Method

FINETUNE = Method(
    name="finetune",
    place=10,
    title="Fine-tune",
    learner="nccl_tf.methods.finetune:Finetune",
    on_replicas=True,
    source="The lower bound of every table, without a paper of its own",
)

IID_ONLINE = Method(
    name="iid_online",
    place=160,
    title="iid-online",
    learner="nccl_tf.methods.finetune:Finetune",
    joint=True,
    on_replicas=True,
    source="An upper bound without a paper of its own: one pass over all tasks at once",
)

IID_OFFLINE = Method(
    name="iid_offline",
    place=170,
    title="iid-offline",
    learner="nccl_tf.methods.finetune:Finetune",
    joint=True,
    epochs=100,
    on_replicas=True,
    source=(
        "An upper bound without a paper of its own; 100 passes as Lee et al., A neural "
        "Dirichlet process mixture model for task-free continual learning, ICLR 2020"
    ),
)

MULTI_TASK = Method(
    name="multi_task",
    place=900,
    title="Multi-task",
    learner="nccl_tf.methods.finetune:MultiTask",
    joint=True,
    source=(
        "Caruana, Multitask learning, Machine Learning 28, 1997; the protocol of "
        "Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019"
    ),
)
