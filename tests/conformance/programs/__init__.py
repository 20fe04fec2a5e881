"""Small programs of what users ask about `torch.compile` in public issues, eagerly and compiled."""
