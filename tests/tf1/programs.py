"""The rules as TF1 graphs: placeholders, variables, gradients, sessions.

Written from the descriptions of the rules. A step is given the stream batch and what the memory
read, each as (images, labels, tasks); None where nothing was read.
"""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
HIDDEN = -1e32


class Program:
    """Plain SGD on the stream, VAN in the TF1 code, and what the other rules share.

    Args:
        network: `networks.Dense` or `networks.ResNet`.
        weights: First weights by name, in the dtype that all is computed in.
        rate: The learning rate.
        heads: The classes of each task; None for a single head.
        subspaces: As for the network.
        **options: Of the rule.
    """

    def __init__(self, network, weights, *, rate, heads=None, subspaces=None, **options):
        self.rate, self.heads, self.options = rate, heads, options
        self.tasks_ended = self.steps_of_task = 0
        self.dtype = weights["logits/kernel"].dtype
        with tf.Graph().as_default() as graph:
            self.network = network(weights, subspaces)
            self.images = v1.placeholder(self.dtype, [None, *options.pop("shape")])
            self.labels = v1.placeholder(tf.int32, [None])
            self.tasks = v1.placeholder(tf.int32, [None])
            self.eta = v1.placeholder(self.dtype, [])
            passed = self.network.logits(self.images, self.tasks, True)
            self.logits, self.updates, self.before_relu = passed
            self.test_logits = self.network.logits(self.images, self.tasks, False)[0]
            self.losses = self.masked_losses(self.logits)
            self.loss = tf.reduce_mean(self.losses)
            self.variables = self.network.trainable
            self.gradients = v1.gradients(self.loss, self.variables)
            self.build()
            config = v1.ConfigProto()  # most of the time would go into rewriting the graph
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            self.session = v1.Session(graph=graph, config=config)
            self.session.run(v1.global_variables_initializer())
        graph.finalize()

    def masked_losses(self, logits):
        """The cross-entropy of each example, task by task under the task's mask."""
        labels = tf.one_hot(self.labels, logits.shape[-1], dtype=self.dtype)
        cross_entropy = tf.nn.softmax_cross_entropy_with_logits
        if self.heads is None:
            return cross_entropy(labels, logits)
        total = tf.zeros_like(logits[:, 0])
        for task, classes in enumerate(self.heads):
            mask = tf.constant(np.isin(np.arange(logits.shape[-1]), classes))
            hidden = tf.where(mask, logits, tf.constant(HIDDEN, self.dtype))
            total += tf.cast(tf.equal(self.tasks, task), self.dtype) * cross_entropy(labels, hidden)
        return total

    def slots(self):
        """A variable of zeros for each trainable one."""
        return [v1.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for v in self.variables]

    def assigned(self, variables, values):
        """One operation that assigns all, once all values are known and batch norm has passed."""
        values = list(values)
        with tf.control_dependencies([*values, *self.updates]):
            return tf.group(*(v1.assign(*pair) for pair in zip(variables, values, strict=True)))

    def descent(self, gradients):
        """One SGD step along gradients."""
        pairs = zip(self.variables, gradients, strict=True)
        return self.assigned(self.variables, [v - self.eta * g for v, g in pairs])

    def build(self):
        self.train = self.descent(self.gradients)

    def run(self, fetches, batch, rate=None):
        """Run operations on a batch."""
        places = self.images, self.labels, self.tasks
        feed = dict(zip(places, batch, strict=True)) if batch else {}
        return self.session.run(fetches, {**feed, self.eta: self.rate if rate is None else rate})

    def step(self, stream, replay):
        """One step; returns what a learner logs."""
        self.steps_of_task += 1
        return {"loss": self.run([self.loss, self.train], stream)[0]}

    def end_task(self):
        self.tasks_ended += 1
        self.steps_of_task = 0

    def weights(self):
        return self.session.run(self.network.variables)

    def load(self, weights):
        """Replace all weights."""
        variables = self.network.variables
        feed = {v.initializer.inputs[1]: weights[name] for name, v in variables.items()}
        self.session.run([v.initializer for v in variables.values()], feed)

    def predict(self, images, task):
        """Logits in test mode."""
        feed = {self.images: images, self.tasks: np.full(len(images), task)}
        return self.session.run(self.test_logits, feed)


class StableSGD(Program):
    """eta gamma^k in task k from 1, not below 5e-5, with momentum that begins each task at 0."""

    def build(self):
        optimizer = v1.train.MomentumOptimizer(self.eta, self.options["momentum"])
        self.train = optimizer.apply_gradients(zip(self.gradients, self.variables, strict=True))
        self.new_optimizer = v1.variables_initializer(optimizer.variables())

    def step(self, stream, replay):
        rate = max(self.rate * self.options["gamma"] ** (self.tasks_ended + 1), 5e-5)
        return {"loss": self.run([self.loss, self.train], stream, rate)[0]}

    def end_task(self):
        super().end_task()
        self.session.run(self.new_optimizer)


class EWC(Program):
    """lambda sum F (w - w*)^2 beside the loss; F from windows of squared batch gradients."""

    def build(self):
        window, strength = self.options["window"], self.options["strength"]
        self.sums, running, fisher, anchors = (self.slots() for _ in range(4))
        w = self.variables
        penalty = tf.add_n(
            [
                tf.reduce_sum(f * tf.square(v - a))
                for v, f, a in zip(w, fisher, anchors, strict=True)
            ]
        )
        penalized = v1.gradients(self.loss + strength * penalty, w)
        squares = [s + tf.square(g) for s, g in zip(self.sums, self.gradients, strict=True)]
        # What is squared is of the weights before the update; the TF1 code leaves that open.
        with tf.control_dependencies([*squares, *penalized]):
            self.train = tf.group(self.assigned(self.sums, squares), self.descent(penalized))
        closed = [0.1 * r + 0.9 * s / window for r, s in zip(running, self.sums, strict=True)]
        self.empty_window = tf.group(*(v1.assign(s, tf.zeros_like(s)) for s in self.sums))
        with tf.control_dependencies(closed):
            assigned = [v1.assign(*pair) for pair in zip(running, closed, strict=True)]
            with tf.control_dependencies(assigned):
                empty = [v1.assign(s, tf.zeros_like(s)) for s in self.sums]
                self.close_window = tf.group(*empty)
        low = tf.reduce_min([tf.reduce_min(r) for r in running])
        high = tf.reduce_max([tf.reduce_max(r) for r in running])
        normal = [(r - low) / (high - low + 1e-32) for r in running]
        pairs = zip([*fisher, *anchors], [*normal, *w], strict=True)
        self.consolidate = tf.group(*(v1.assign(*pair) for pair in pairs))

    def step(self, stream, replay):
        if (self.steps_of_task + 1) % self.options["window"] == 0:
            self.session.run(self.close_window)
        return super().step(stream, replay)

    def end_task(self):
        super().end_task()
        self.session.run(self.consolidate)
        self.session.run(self.empty_window)


class ExperienceReplay(Program):
    """One step on the mean loss of memory and stream batch, which pass batch norm together."""

    def step(self, stream, replay):
        joint = stream
        if replay is not None:
            joint = [np.concatenate(parts) for parts in zip(replay, stream, strict=True)]
        losses = self.run([self.losses, self.train], joint)[0]
        return {"loss": losses[-len(stream[0]) :].mean()}


class TwoGradients(Program):
    """The memory gradient is stored by a pass of its own, then the stream's is combined with it."""

    def build(self):
        super().build()
        reference = self.slots()
        self.store = self.assigned(reference, self.gradients)

        def inner(left, right):
            return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(left, right, strict=True)])

        products = inner(reference, self.gradients), inner(reference, reference)
        stream_square = inner(self.gradients, self.gradients)
        self.alpha_h, self.beta_h = self.sizes(*products, stream_square)
        pairs = zip(reference, self.gradients, strict=True)
        moves = [self.alpha_h * f + self.beta_h * g for f, g in pairs]
        pairs = zip(self.variables, moves, strict=True)
        self.combine = self.assigned(self.variables, [v - move for v, move in pairs])

    def step(self, stream, replay):
        if replay is None:
            return super().step(stream, replay)
        self.run(self.store, replay)
        names = ("loss", "alpha_h", "beta_h")
        fetches = [self.loss, self.alpha_h, self.beta_h, self.combine]
        return dict(zip(names, self.run(fetches, stream), strict=False))


class AGEM(TwoGradients):
    """g where <g, f> >= 0, else g - <g, f>/<f, f> f."""

    def sizes(self, product, memory_square, stream_square):
        along = tf.where(product >= 0, tf.zeros_like(product), product / memory_square)
        return -self.eta * along, self.eta


class NCCL(TwoGradients):
    """The paper's step sizes (section 5.2), with beta_max those of its table 3."""

    def sizes(self, product, memory_square, stream_square):
        smoothness, beta_max = self.options["smoothness"], self.options.get("beta_max")
        optimal = (1 - self.eta * smoothness) * product / (smoothness * stream_square)
        bound = self.eta * (1 - self.options["delta"])
        bound = bound if beta_max is None else tf.constant(beta_max, self.dtype)
        interferes = product <= 0
        alpha_h = tf.where(interferes, self.eta * (1 - product / memory_square), self.eta)
        return alpha_h, tf.where(interferes, self.eta, tf.minimum(bound, optimal))


class MER(Program):
    """SGD on memory examples one by one, on the stream batch at s times the rate, then Reptile."""

    def build(self):
        super().build()
        start = self.slots()
        self.remember = tf.group(
            *(v1.assign(*pair) for pair in zip(start, self.variables, strict=True))
        )
        pairs = zip(start, self.variables, strict=True)
        self.interpolate = tf.group(
            *(v1.assign(w, s + self.options["gamma"] * (w - s)) for s, w in pairs)
        )

    def step(self, stream, replay):
        self.session.run(self.remember)
        for row in range(0 if replay is None else len(replay[0])):
            self.run(self.train, [part[row : row + 1] for part in replay])
        rate = self.options["multiplier"] * self.rate
        loss = self.run([self.loss, self.train], stream, rate)[0]
        self.session.run(self.interpolate)
        return {"loss": loss}


class OrthogSubspace(Program):
    """Replays one task in its subspace; hidden kernels move on the Stiefel manifold."""

    def build(self):
        reference = self.slots()
        self.store = self.assigned(reference, self.gradients)
        self.clear = tf.group(*(v1.assign(r, tf.zeros_like(r)) for r in reference))
        self.task_count = v1.placeholder(self.dtype, [])
        moved = []
        for name, f, g in zip(self.network.variables, reference, self.gradients, strict=True):
            w, total = self.network.variables[name], (f + g) / self.task_count
            manifold = name.endswith("kernel") and name != "logits/kernel"
            moved.append(self.cayley(w, total) if manifold else w - self.eta * total)
        self.train = self.assigned(self.variables, moved)

    def cayley(self, w, g):
        """With A = B - B', B = G W' - W (W' G W')/2, along the Cayley curve of A."""
        b = tf.matmul(g - w @ tf.matmul(w, g, transpose_a=True) / 2, w, transpose_b=True)
        a = b - tf.transpose(b)
        longest = 1 / (tf.reduce_max(tf.reduce_sum(tf.abs(a), axis=1)) + 1e-8)
        tau = tf.minimum(self.eta, longest)
        if self.options["iterations"] is None:
            one = tf.eye(a.shape[0], dtype=self.dtype)
            return tf.linalg.solve(one + tau / 2 * a, w - tau / 2 * (a @ w))
        y = w - tau * (a @ w)
        for _ in range(self.options["iterations"]):
            y = w - tau / 2 * (a @ (w + y))
        return y

    def step(self, stream, replay):
        self.session.run(self.clear) if replay is None else self.run(self.store, replay)
        feed = dict(zip((self.images, self.labels, self.tasks), stream, strict=True))
        feed = {**feed, self.eta: self.rate, self.task_count: self.tasks_ended + 1}
        return {"loss": self.session.run([self.loss, self.train], feed)[0]}
