"""The commands of the documents that no test runs, and why: all of them."""

import re

# Commands of `console` blocks that are not run, by patterns, and the reason.
NOT_RUN = {
    r"make (run|demo)( .*)?": "starts what this test starts by itself, for a person to look at",
    r"make (\S*test\S*|lint|format|bench|compiled|dist)( .*)?": "takes minutes, or runs this test",
    r"make simulate( .*)?": "takes minutes; tests/simulation is run by itself",
    r"make fuzz( .*)?": "takes minutes; tests/fuzz/test_guided.py does it in small",
    r"make (docs|reference|lock)": "writes into the repository; meta/test_site.py does the same",
    r"(\S*python|loadgen|git worktree|ln -s|\(cd|PYTHONPATH=).*(bench|loadgen|before|compile).*": (
        "measures: minutes on a machine that does nothing else"
    ),
    r"loadgen .*": "the load generator of the benchmarks, which compile it",
    r"(\S*pip3?|apt-get|python3 -m venv) .*": "installs; what is tested is installed",
    r"(systemctl|journalctl|useradd|install) .*": "changes the machine, or asks systemd",
    r"mv /var/lib/taskyard .*": "moves the data of the server that the test has started",
    r"sudo .*": "becomes another user",
    r"python3 scripts/smoke.py .*": "wants a wheel; meta/test_smoke.py tries out what is tested",
    r"(podman|docker|kubectl|promtool) .*": "is a program that the tests do not need",
    r"/opt/taskyard/.*": "is the command of an installation that the test does not have",
    r".*(queue\.example\.org|@host:).*": "asks a server that the test does not have",
    r".*\| jq .*": "needs jq, which the tests do not install",
    r"taskyard top( --sort .*)?": "shows a view on a terminal until it is left",
    r"taskyard work .*": "runs until it is stopped; tests/tasks/test_page.py does that",
    r"taskyard (lake|serve --data data --lake|.*--lake ).*": "starts Spark: see tests/pipeline",
    r"eval .*": "is about the shell it is typed into",
    r"taskyard completion .*~/.*": "writes into the home directory",
    r"cp renewed\.pem .*": "changes the machine",
    r"taskyard journal repair .*": "is for a damaged journal: tests/cli/test_journal.py has some",
}


def not_run(command: str) -> bool:
    return any(re.fullmatch(pattern, command, re.DOTALL) for pattern in NOT_RUN)
