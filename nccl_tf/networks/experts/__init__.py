"""The experts of CN-DPM (Lee et al., 2020): autoencoders and classifiers that share features."""
