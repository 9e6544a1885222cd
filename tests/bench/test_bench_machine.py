"""What benchmarks say of the machine."""

from bench import processes


def test_benchmarks_say_whether_their_python_was_built_with_pgo() -> None:
    assert processes.python_build() in ("with PGO", "no sign of PGO")
