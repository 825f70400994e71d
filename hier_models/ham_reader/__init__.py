"""Readers with hierarchical attention; see configuration_ham_reader.py."""
