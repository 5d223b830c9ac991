"""Turns published weights into version folders of the model store."""
