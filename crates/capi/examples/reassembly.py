"""Joins the fragments in a capture, and says what came out of them: reassembly.py FILE. The file
is what tcpdump writes (pcap, not pcapng), of Ethernet or of IP."""

import struct
import sys

from landfall import reassembly

ORDERS = {b"\xd4\xc3\xb2\xa1": ("<", 1e-6), b"\xa1\xb2\xc3\xd4": (">", 1e-6),
          b"\x4d\x3c\xb2\xa1": ("<", 1e-9), b"\xa1\xb2\x3c\x4d": (">", 1e-9)}
LINKS = {1: reassembly.ETHERNET, 101: reassembly.IP, 228: reassembly.IP, 229: reassembly.IP}


def frames(file, order, unit):
    """When each frame came, and its bytes. What was captured in part is left out."""
    while len(head := file.read(16)) == 16:
        seconds, fraction, length, original = struct.unpack(order + "4I", head)
        frame = file.read(length)
        if len(frame) < length:
            return
        if 0 < length == original:
            yield seconds + fraction * unit, frame


def main(name):
    with open(name, "rb") as file:
        head = file.read(24)
        if len(head) < 24 or head[:4] not in ORDERS:
            sys.exit(f"{name} is no capture")
        order, unit = ORDERS[head[:4]]
        link = LINKS.get(struct.unpack(order + "I", head[20:])[0])
        if link is None:
            sys.exit(f"{name} is no capture of Ethernet or IP")
        with reassembly.Reassembler(link) as joins:
            for now, frame in frames(file, order, unit):
                try:
                    packet = joins.offer(frame, now)
                except reassembly.Dropped as why:
                    print(f"dropped: {why}")
                else:
                    if packet is not None and packet is not frame:
                        print(f"joined: {len(packet)} bytes")
            counts = joins.counts
            assert sum(joins.dropped.values()) == counts.dropped
            print(f"{counts.offered} frames, {counts.packets} packets out of fragments, "
                  f"{counts.dropped} dropped, {counts.waiting + counts.expired} not complete")


if __name__ == "__main__":
    main(sys.argv[1])
