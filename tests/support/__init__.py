"""What tests of the storage contract stand on: an S3 store, a proxy before it, separate processes."""
