"""Model files: what may be stored, how it is packed, checked and opened."""
