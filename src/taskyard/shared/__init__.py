"""What every package may import, and which imports none of them."""
