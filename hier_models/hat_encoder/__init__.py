"""The encoder-only HAT: RoBERTa with attention over sentences in every layer."""
