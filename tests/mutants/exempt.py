"""Invariants that no mutant kills, and why none can be planted."""

EXEMPT: dict[str, str] = {
    "INV-CACHE-05": "Two slips are needed: without prefix caching nothing is hashed (INV-HASH-01), and "
    "without a hash there is no key to enter.",
}
