"""Runs the examples with the landfall that is installed, each side against the other: wheel.py,
by the Python of a venv that has nothing else."""

import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PATIENCE = 120
PAIRS = [("exchange.py", "send", "receive"), ("exchange.py", "publish", "subscribe"),
         ("exchange.py", "serve", "call")]


def start(*arguments):
    return subprocess.Popen([sys.executable, "-B", *map(str, arguments)])


def both(*commands):
    """Both sides end, and end well."""
    running = [start(*command) for command in commands]
    try:
        codes = [process.wait(PATIENCE) for process in running]
    finally:
        for process in running:
            process.kill()
    assert codes == [0, 0], (commands, codes)
    print(*[" ".join(map(str, [Path(command[0]).name, *command[1:]])) for command in commands],
          sep=" | ")


def folders():
    return tempfile.TemporaryDirectory(prefix="landfall-wheel-")


def main():
    import landfall

    beside = Path(landfall.__file__).parent / "liblandfall_c.so"
    assert Path(sys.prefix) in beside.parents and beside.is_file(), beside
    assert landfall._lib._name == str(beside), landfall._lib._name
    for program, one, two in PAIRS:
        with folders() as folder:
            both([EXAMPLES / program, folder, one], [EXAMPLES / program, folder, two])
    for suffix in ["", "-async"]:
        for key in ["plain", "7"]:
            with folders() as folder:
                place = f"{folder}/address"
                both([EXAMPLES / "stp.py", f"serve{suffix}", place, key],
                     [EXAMPLES / "stp.py", f"ask{suffix}", place, key])
        for carrier in ["node", "stp", "qpip"]:
            with folders() as folder:
                both([EXAMPLES / "pairs.py", f"serve{suffix}", carrier, folder],
                     [EXAMPLES / "pairs.py", f"ask{suffix}", carrier, folder])
    with folders() as folder:
        capture = Path(folder) / "capture.pcap"
        packet = bytes.fromhex("4500001c000800004011" "66c70a0000010a000002" "0009000800080000")
        head = struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 101)
        capture.write_bytes(head + struct.pack("<4I", 1, 0, len(packet), len(packet)) + packet)
        said = subprocess.run([sys.executable, "-B", EXAMPLES / "reassembly.py", capture],
                              check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
        assert said == "1 frames, 0 packets out of fragments, 0 dropped, 0 not complete\n", said


if __name__ == "__main__":
    for name in ["LANDFALL_LIBRARY", "PYTHONPATH"]:
        os.environ.pop(name, None)
    main()
