"""Compiles the patterns of names that clients write.

The matcher is RE2, which takes linear time for every pattern. What a pattern compiles to may be thousands of times as large as its text:
with RE2's own limit of 8 MiB, 1,200 characters took 150 ms and 4 MB.
"""

import re2

MEMORY_BYTES = 1_048_576
"""What RE2 may use for one pattern; to compile it takes up to 15 ms. 2,500 classes such as `[^/]` fit, or 250 whole topic names."""


def compiled(pattern: str) -> "re2.Pattern":
    """Return the compiled pattern. Raises `re2.error`: the pattern is wrong, or needs too much memory."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_BYTES
    return re2.compile(pattern, options=options)
