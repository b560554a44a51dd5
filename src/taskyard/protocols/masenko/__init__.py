"""Masenko: lines of JSON over TCP."""
