"""The server of `hier-models serve`: batches formed across requests, HTTP, and a page for the browser."""
