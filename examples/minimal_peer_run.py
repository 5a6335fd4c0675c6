#!/usr/bin/env python3
"""Runs minimal_peer.py over UDP or in Ethernet frames, as a server of echoes or its client.

    minimal_peer_run.py listen  udp:127.0.0.1:8181              sends back what it receives
    minimal_peer_run.py connect udp:127.0.0.1:8181 1000 3000000 sends so many bytes, and compares
    minimal_peer_run.py listen  eth:veth0                       in frames of ethertype 0x8181
    minimal_peer_run.py connect eth:veth0:02:00:00:00:00:01 70000

`--faults SEED` loses 2 % of what it sends, sends 5 % twice and 5 % late.
"""
import argparse, os, random, select, socket, sys, time

from minimal_peer import Connection, Failed, Peer

AT_ONCE = 6         # messages that are under way together


class Carrier:
    """Packets over UDP or in Ethernet frames, spoilt on purpose where a seed says so."""
    def __init__(self, name, seed):
        kind, where = name.split(":", 1)
        self.random, self.held, self.to = seed and random.Random(seed), [], None
        if kind == "eth":
            name, _, station = where.partition(":")
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x8181))
            self.socket.bind((name, 0x8181))
            self.longest = 1500
            if station:
                self.to = name, 0x8181, 0, 0, bytes.fromhex(station.replace(":", ""))
        else:
            host, port = where.rsplit(":", 1)
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.longest, self.to = 1200, (host, int(port))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)

    def bind(self):
        if self.socket.family == socket.AF_INET:
            self.socket.bind(self.to)
        print("ready", *self.socket.getsockname()[1:2], flush=True)

    def send(self, packet, address):
        draw = self.random.random() if self.random else 1
        if draw < 0.05:
            return self.held.append([packet, address, 4, time.monotonic() + 0.01])
        for _ in range(0 if draw < 0.07 else 2 if draw < 0.12 else 1):
            self.socket.sendto(packet, address)
        for late in self.held:
            late[2] -= 1
        self.release()

    def release(self):
        late = [one for one in self.held if one[2] <= 0 or one[3] <= time.monotonic()]
        self.held = [one for one in self.held if one not in late]
        for packet, address, _, _ in late:
            self.socket.sendto(packet, address)

    def receive(self, patience):
        if select.select([self.socket], [], [], patience)[0]:
            packet, address = self.socket.recvfrom(1 << 16)
            if self.socket.family == socket.AF_PACKET:
                address = *address[:2], 0, 0, address[4]
            yield packet, address
        self.release()


def listen(peer, count):
    while count:
        peer.turn()
        for key, connection in list(peer.connections.items()):
            for message in connection.received:
                connection.send(message)
            connection.received.clear()
            if connection.is_closed:
                del peer.connections[key]
                count -= 1


def connect(peer, port, sizes):
    connection = Connection(peer, peer.carrier.to, random.randrange(32768, 65536), port)
    messages = [os.urandom(size) for size in sizes]
    connection.connect()
    for first in range(0, len(messages), AT_ONCE):
        for message in messages[first:first + AT_ONCE]:
            connection.send(message)
        while len(connection.received) < min(first + AT_ONCE, len(messages)):
            peer.turn()
    if sorted(connection.received) != sorted(messages):
        sys.exit("what came back differs")
    connection.is_closing = True
    while not connection.is_closed:
        peer.turn()
    until = time.monotonic() + 0.5          # the last word may have been lost
    while time.monotonic() < until:
        peer.turn()
    print("ok", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("role", choices=["listen", "connect"])
    options.add_argument("carrier")
    options.add_argument("sizes", type=int, nargs="*")
    options.add_argument("--port", type=int, default=7)
    options.add_argument("--count", type=int, default=1, help="connections that are served")
    options.add_argument("--faults", type=int)
    chosen = options.parse_args()
    peer = Peer(Carrier(chosen.carrier, chosen.faults), chosen.port)
    try:
        if chosen.role == "listen":
            peer.carrier.bind()
            listen(peer, chosen.count)
        else:
            connect(peer, chosen.port, chosen.sizes)
    except Failed as why:
        sys.exit(str(why))


if __name__ == "__main__":
    main()
