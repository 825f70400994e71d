"""Coarse-to-Fine LSTM; see configuration_coarse_to_fine_lstm.py."""
