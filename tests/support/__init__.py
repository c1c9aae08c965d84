"""What tests of several folders stand on; docs/developers/testing.md says which helper is for what."""
