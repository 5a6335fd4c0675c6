#!/usr/bin/env python3
"""Measures this provider beside others, in one run, under Open MPI: on one host, and between two
network namespaces with a cable between them (as root; a host each).

    cargo build --release -p landfall-libfabric
    python3 crates/libfabric-provider/measure.py > figures.md

Each runs in turn, ROUNDS times; the table has medians, and how often ours is as fast. What is not
installed is left out. --quick: one round, few repetitions. --ranks 2,4: not 8. --only host."""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
OFI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include"]
LIMIT = 300


def ways(place):
    """What is compared: arguments of mpirun, and variables."""
    local = place == "host"
    interface = "lo" if local else "landfall0"
    yield "landfall", OFI + ["landfall"], {"FI_LANDFALL_IFACE": interface,
                                           "FI_LANDFALL_PLAINTEXT": "1"}
    for name in ["tcp;ofi_rxm", "net"] + (["shm"] if local else []):
        # `net` knows no interface of the loopback by its name.
        variables = {"shm": {}, "net": {} if local else {"FI_NET_IFACE": interface}}.get(
            name, {"FI_TCP_IFACE": interface})
        yield name, OFI + [name], variables
    transports = "posix,self" if local else "tcp,self"
    yield "ucx " + transports.split(",")[0], [
        "--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any",
        "--mca", "opal_common_ucx_devices", "any"], {
        "UCX_TLS": transports, "UCX_NET_DEVICES": "all" if local else interface}


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **more)


class Hosts:
    """Two network namespaces and a cable, for as long as they are needed."""

    def __init__(self, folder):
        name = f"lf-measure-{os.getpid()}"
        self.names = [name + "-a", name + "-b"]
        self.agent = folder / "agent"
        # In the place of ssh.
        self.agent.write_text("#!/bin/bash\nshift\nexec ip netns exec "
                              f"{self.names[1]} bash -c \"$*\"\n")
        self.agent.chmod(0o755)

    def __enter__(self):
        must = lambda line: subprocess.run(line.split(), check=True)
        for name in self.names:
            must(f"ip netns add {name}")
        one, two = self.names
        must(f"ip link add landfall0 netns {one} type veth peer name landfall0 netns {two}")
        for name, last in zip(self.names, "12"):
            must(f"ip -n {name} address add 10.79.0.{last}/24 dev landfall0")
            for link in ["lo", "landfall0"]:
                must(f"ip -n {name} link set {link} up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def mpirun(place, ranks, hosts):
    command = ["mpirun", "-np", str(ranks), "--bind-to", "none", "--oversubscribe"]
    if place == "host":
        return command
    each = ranks // 2
    return ["ip", "netns", "exec", hosts.names[0]] + command + [
        "--host", f"10.79.0.1:{each},10.79.0.2:{each}", "--mca", "plm_rsh_agent",
        str(hosts.agent), "--mca", "oob_tcp_if_include", "landfall0"]


def measure(program, place, ranks, hosts, quick, folder):
    """The figures of each way."""
    figures, missing = {}, {}
    for _ in range(1 if quick else 3):
        for name, arguments, variables in ways(place):
            if name in missing:
                continue
            variables = {"FI_PROVIDER_PATH": str(folder), **variables}
            handed_on = [word for key in variables for word in ("-x", key)]
            environment = {**os.environ, **variables, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            command = mpirun(place, ranks, hosts) + arguments + handed_on + [str(program)]
            try:
                done = run(command + (["quick"] if quick else []), env=environment)
                said, well = done.stdout + done.stderr, done.returncode == 0
            except subprocess.TimeoutExpired:
                said, well = f"it is not done after {LIMIT} s", False
            if not well:
                # Open MPI frames what it says.
                words = (line for line in said.splitlines()
                         if re.search("[a-z]", line) and "ORTE_ERROR_LOG" not in line)
                missing[name] = next(words, f"it ends with {done.returncode}")
                continue
            for row, value in re.findall(r"^(\S+ \(.+\)) ([\d.]+)$", said, re.MULTILINE):
                figures.setdefault(row, {}).setdefault(name, []).append(float(value))
    return figures, missing


def tell(place, ranks, figures, missing):
    names = [name for name, _, _ in ways(place) if name not in missing]
    title = "one host" if place == "host" else "two hosts, a cable between them"
    print(f"\n{ranks} ranks, {title}:\n")
    print("| | " + " | ".join(f"`{name}`" for name in names) + " |")
    print("| --- |" + " --- |" * len(names))
    for row, by_name in figures.items():
        medians = {name: statistics.median(by_name[name]) for name in names}
        ours, is_time = medians["landfall"], "(us)" in row
        cells = []
        for name in names:
            value = medians[name]
            ratio = (value / ours if is_time else ours / value) if value and ours else 0
            cells.append(f"{value:.4g}" + ("" if name == "landfall" else f" ({ratio:.2f})"))
        print(f"| {row} | " + " | ".join(cells) + " |")
    for name, why in missing.items():
        print(f"\n`{name}` is left out: {why}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--only", choices=["host", "cable"])
    parser.add_argument("--library", type=pathlib.Path,
                        default=HERE.parents[1] / "target/release/liblandfall_fi.so")
    chosen = parser.parse_args()
    built = chosen.library.resolve()
    if not built.exists():
        sys.exit(f"{built} is not there: cargo build --release -p landfall-libfabric")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        provider = folder / "provider"
        provider.mkdir()
        (provider / "liblandfall-fi.so").symlink_to(built)
        program = folder / "speed"
        subprocess.run(["mpicc", "-O2", "-o", program, HERE / "tests/mpi/speed.c"], check=True)
        load = os.getloadavg()[0]
        print(f"{os.cpu_count()} cores, load {load:.1f} at the start. In parentheses: how many times as "
              "fast ours is.")
        places = [place for place in ["cable", "host"] if chosen.only in (None, place)]
        for place in places:
            if place == "cable" and os.geteuid() != 0:
                print("\nBetween hosts nothing is measured: that needs root.")
                continue
            with Hosts(folder) if place == "cable" else tempfile.TemporaryDirectory() as hosts:
                for ranks in map(int, chosen.ranks.split(",")):
                    found = measure(program, place, ranks, hosts, chosen.quick, provider)
                    tell(place, ranks, *found)


if __name__ == "__main__":
    main()
