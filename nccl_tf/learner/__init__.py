"""The engine: a Keras model of a stream of tasks, and the step that every method shares."""
