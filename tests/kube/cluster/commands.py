"""Runs programs and waits for their effects; every failure ends the script with the program's output."""

import collections.abc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from layout import BIN, KUBECONFIG, LOG

RUN_S = 3600.0


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None, seconds: float = RUN_S) -> None:
    """Run a command; show its output only if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env=env,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(command)}\ndid not end within {seconds:.0f} s")
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout}")


def succeeds(*command: str) -> bool:
    """Whether the command ends with status 0."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def kubectl(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run kubectl as the cluster's administrator."""
    command = [str(BIN / "kubectl"), f"--kubeconfig={KUBECONFIG}", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"kubectl {' '.join(arguments)}\n{done.stderr}")
    return done


def wait(what: str, is_true: collections.abc.Callable[[], object], seconds: float = 180) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            sys.exit(f"no {what} within {seconds:.0f} s; see {LOG}")
        time.sleep(0.1)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a configuration file. (Kubernetes reads JSON where it reads YAML.)"""
    path.write_text(json.dumps(value, indent=1))
