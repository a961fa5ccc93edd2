"""mini-ImageNet from a user's files: pickles, folders of images, or lists of images."""
