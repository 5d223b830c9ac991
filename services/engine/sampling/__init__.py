"""Chooses tokens from logits, the same way for every runner; reads numpy rows and knows no numeric back end."""
