"""The types that the double simulates, one module per family."""
