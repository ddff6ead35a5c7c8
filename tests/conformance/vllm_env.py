"""vLLM's own switches, set before anything of it is imported.

The package imports this module, so it comes before every module here that imports vLLM.
"""

import logging
import os

# Tiny pools and refused resets are what we are after; vLLM warns of each.
logging.getLogger("vllm").setLevel(logging.ERROR)
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

# By default, key-value events carry the last 64 bits of a hash as a number, for consumers from the time
# when hashes were numbers. Ours carry the hash; with this the reference's do too.
os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"
