"""HAM; see configuration_ham.py."""
