"""Rehearses restores: a backup counts once what is in it came back."""
