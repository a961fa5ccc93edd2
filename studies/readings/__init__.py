"""Other readings of the paper on split CIFAR-100."""
