"""The KV cache as a value: hashing < pool < groups < coordinator < allocation."""
