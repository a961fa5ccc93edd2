"""Class-incremental learning with a pretrained network."""
