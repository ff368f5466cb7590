"""The steps of a bootstrap: each probes, plans, applies and verifies, and changes nothing the second time."""
