"""What `--help` says of each command beside its flags: when to use it, examples, exit statuses.

Examples are lines that a person can type; a test parses each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MISTAKES = "2   a mistake in the configuration or in the arguments; every one is on standard error"


@dataclass(frozen=True, slots=True)
class Manual:
    """One command. about: a paragraph. examples: (line, what it does). statuses: one a line."""

    about: str
    examples: tuple[tuple[str, str], ...]
    statuses: tuple[str, ...] = ("0   done", "2   an argument that cannot be used")
    environment: tuple[str, ...] = ()

    def epilog(self) -> str:
        """Return what stands below the flags."""
        parts = ["examples:\n" + "\n".join(f"  {line}\n      {what}" for line, what in self.examples)]
        if self.environment:
            parts.append("environment:\n" + "\n".join(f"  {line}" for line in self.environment))
        parts.append("exit status:\n" + "\n".join(f"  {line}" for line in self.statuses))
        return "\n\n".join(parts)


_CONFIGURED = ("${NAME} in the file is completed from the environment; docs/configuration.md",)

MANUALS: Final = {
    "serve": Manual(
        "Runs the router until SIGTERM or SIGINT, which drain it; the same signal again stops it "
        "at once. SIGHUP reads the file again. Clients connect to listen.port (8000), operators "
        "and Prometheus to admin.port (9090).",
        (
            (
                "prefix-router serve --backend http://10.0.0.1:8000 --backend http://10.0.0.2:8000",
                "two replicas",
            ),
            ("prefix-router serve --config router.yaml --log-level debug", "a file; flags win over it"),
        ),
        ("0   stopped", "1   a port cannot be had", _MISTAKES),
        (*_CONFIGURED, "NOTIFY_SOCKET, WATCHDOG_USEC: set by systemd; it hears of each step"),
    ),
    "check-config": Manual(
        "Judges a file as a start or a reload would, and prints what is in it. Opens no socket, asks nobody.",
        (("prefix-router check-config router.yaml", "before a reload or a rollout"),),
        ("0   the file can be used", _MISTAKES),
        _CONFIGURED,
    ),
    "schema": Manual(
        "For editors that complete and check YAML, and for pipelines that judge it.",
        (("prefix-router schema", "config/prefix-router.schema.json holds the same"),),
    ),
    "explain": Manual(
        "Decides about one request without sending it: key, home, backend, reason, the text that "
        "was hashed, and what would happen if the home were full or down. All backends are taken "
        "for healthy and idle; ask the /explain of a running router for the fleet as it is.",
        (
            ("prefix-router explain --config router.yaml request.json", "a request body in a file"),
            (
                "prefix-router explain --backend http://a:8000 --backend http://b:8000 --json -",
                "standard input",
            ),
        ),
        ("0   decided", _MISTAKES),
        _CONFIGURED,
    ),
    "simulated-vllm": Manual(
        "Answers like a vLLM with a model of its engine behind it: prefix cache, batching, step "
        "times of a GPU that is not there. For trying and testing; the text that it generates "
        "means nothing.",
        (("prefix-router simulated-vllm --port 8101", "one replica on port 8101"),),
        ("0   stopped", "1   the port cannot be had", "2   an argument that cannot be used"),
    ),
    "demo": Manual(
        "Starts stand-in replicas and a router, sends one workload through it at random and by "
        "prefix, and prints what changed. Then it stays up, to be asked.",
        (
            ("prefix-router demo", "about half a minute, then until Ctrl-C"),
            ("prefix-router demo --once --json", "the comparison as JSON"),
        ),
        ("0   done", "1   something does not work", "130 interrupted before the results were there"),
    ),
    "stack": Manual(
        "A router with its admin page, three stand-in replicas, a real Prometheus and a little "
        "traffic, as plain processes on free ports of this machine. Ctrl-C ends all of them.",
        (("prefix-router stack --rules config/alerts.yml", "with the alerts judged"),),
        ("0   stopped", "1   something does not work, such as no Prometheus"),
    ),
    "simulate": Manual(
        "Runs workloads or traces through a whole fleet in simulated time, once for each strategy "
        "and load. No network, no clock: the same command gives the same numbers. "
        "docs/simulator.md",
        (
            ("prefix-router simulate --workload sagemaker --load 0.5", "all strategies, one load"),
            (
                "prefix-router simulate --workload documents --strategies adaptive --routers 4",
                "four routers that share nothing",
            ),
        ),
    ),
    "analyze": Manual(
        "Reads request bodies or a capture, counts what prompts have in common, simulates each "
        "way to route them, and says what to expect and what to set. Nothing leaves this machine. "
        "docs/analyze.md",
        (
            (
                "prefix-router analyze traffic.jsonl --replicas 4 --report report.html",
                "with a report to send around",
            ),
        ),
        ("0   done", "1   something went wrong", "2   no file, no request in it, or wrong flags"),
    ),
    "hash-key": Manual(
        "Prints the SHA-256 that the configuration wants of a token or key. The secret comes from "
        "standard input or is asked for, so that it is in no process list and in no history. "
        "docs/security.md",
        (("prefix-router hash-key --generate", "makes a new one and prints both"),),
    ),
    "top": Manual(
        "Health, load, share and hit rate of every backend, and why requests went where they went, "
        "once a second. In a pipe it prints one snapshot.",
        (
            ("prefix-router top", "the router of this host; q quits"),
            ("prefix-router top --url http://10.0.0.9:9090 --once", "one snapshot of another one"),
        ),
        ("0   done", "1   the router cannot be asked", "2   an argument that cannot be used"),
        ("NO_COLOR: when set, no colours",),
    ),
    "completion": Manual(
        "Prints a script that completes commands, flags and file names in your shell.",
        (
            ("prefix-router completion bash", "write it to /etc/bash_completion.d/prefix-router"),
            ("prefix-router completion zsh", "write it to a folder of $fpath, as _prefix-router"),
        ),
    ),
}
