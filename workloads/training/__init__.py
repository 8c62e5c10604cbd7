"""Training of image and table models with PyTorch."""
