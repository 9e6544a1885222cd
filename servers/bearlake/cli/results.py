"""Results of commands that change several streams or groups: one line, or one JSON object, for each of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from bearlake.cli.output import print_json, printable, say


def report(results: Sequence[Mapping[str, Any]], done: str, as_json: bool, fine: Sequence[int] = ()) -> int:
    """Print the results, `{name, status}` with a `problem` if it failed; 0 when all succeeded or failed in a `fine` way, else 1."""
    failed = [result for result in results if result["status"] >= 300 and result["status"] not in fine]
    if as_json:
        print_json(results)
        return 1 if failed else 0
    for result in results:
        if result in failed:
            detail = result["problem"]["detail"]
            place = "" if repr(result["name"]) in detail else f"{result['name']}: "
            say(f"bearlake: {place}{detail}", is_error=True)
        elif result["status"] >= 300:
            say(f"{printable(result['name'])}: nothing to do ({result['problem']['title'].lower()})")
        else:
            say(f"{printable(result['name'])}: {done}")
    return 1 if failed else 0
