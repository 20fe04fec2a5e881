"""Models of every architecture of transformers that can be built small, against eager and `torch.compile`."""
