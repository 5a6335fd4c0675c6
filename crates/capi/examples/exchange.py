"""A program for each half of a queue, a publication and calls: exchange.py FOLDER WHAT. The
tests of this crate let it talk with programs in other languages."""

import struct
import sys

import landfall

COUNT, PATIENCE = 1000, 60
QUOTE = "{price:f64@0,size:u32@8,venue:[u8;4]@12}16"

try:
    import numpy
except ImportError:
    numpy = None


def send(node):
    with node.offer("quotes") as offer:
        with offer.accept_sender(QUOTE, 16, PATIENCE, batch=4) as sender:
            for i in range(COUNT):
                if i % 2:
                    sender.put((i / 2, i, b"XETR"), PATIENCE)
                elif numpy and i % 4:
                    sender.loan_array(PATIENCE)[0] = (i / 2, i, list(b"XETR"))
                    sender.publish()
                else:
                    sender.loan(PATIENCE)[:] = sender.layout.pack((i / 2, i, b"XETR"))
                    sender.publish()
            sender.flush()
            sender.drain(PATIENCE)


def receive(node):
    with node.find_receiver("quotes", QUOTE, 16, PATIENCE) as receiver:
        following = 0
        while following < COUNT:
            if numpy and following % 2:
                there = receiver.peek_array(PATIENCE)
                assert not there.flags.owndata, "nothing was copied"
                for quote in there:
                    assert (quote["price"], quote["size"]) == (following / 2, following)
                    following += 1
            else:
                there = receiver.peek(PATIENCE)
                for quote in there:
                    expected = (following / 2, following, b"XETR")
                    assert receiver.layout.unpack(quote) == expected, following
                    following += 1
            receiver.release(len(there))
        assert list(receiver) == [], "and then it ends"


def receive_others(node):
    with node.find_receiver("quotes", "{size:u32@0,venue:[u8;4]@4,price:f64@8}16", 16,
                            PATIENCE) as receiver:
        try:
            receiver.get(PATIENCE)
        except landfall.OtherLayout:
            return
    raise AssertionError("they were taken for something else")


def publish(node):
    with node.offer("news") as offer, node.publisher(64, 256) as publisher:
        publisher.accept(offer, PATIENCE)
        for i in range(100):
            assert publisher.publish(f"news {i}".encode()) == 1
        # Until the reader has gone, what it reads is there.
        with node.offer("news are read") as gone:
            with gone.accept_client(8, 8, PATIENCE) as server:
                assert server.request(PATIENCE) == b""
                server.reply(b"")


def subscribe(node):
    with node.find_publisher("news", 64, 256, PATIENCE) as subscriber:
        for i in range(100):
            assert subscriber.next(PATIENCE) == (f"news {i}".encode(), 0)
    with node.find_server("news are read", 8, 8, PATIENCE) as client:
        assert client.call(b"", PATIENCE) == b""


def serve(node):
    with node.offer("sums") as offer, offer.accept_client(64, 64, PATIENCE) as server:
        while True:
            try:
                request = server.request(PATIENCE)
            except landfall.Lost:
                return
            numbers = struct.unpack(f"<{len(request) // 8}Q", request)
            server.reply(struct.pack("<Q", sum(numbers)))


def call(node):
    with node.find_server("sums", 64, 64, PATIENCE) as client:
        for i in range(100):
            reply = client.call(struct.pack("<3Q", i, 2 * i, 7), PATIENCE)
            assert struct.unpack("<Q", reply) == (3 * i + 7,)


def mistakes(node):
    for wrong in ["", "f65", "{a:u8@8}8", "[u8]", "{a@0}1", "{a:u8}1"]:
        try:
            landfall.Layout(wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong} is no layout")
    try:
        node.find_receiver("nobody", "u64", timeout=0)
    except landfall.Error as error:
        assert str(error)
    if numpy:
        layout = landfall.Layout(landfall.Layout(QUOTE).dtype())
        assert layout.text == QUOTE, layout.text
    node.close()
    try:
        node.offer("closed")
    except landfall.Error:
        return
    raise AssertionError("it is closed")


if __name__ == "__main__":
    what = sys.argv[2].replace("-", "_")
    with landfall.Node(sys.argv[1]) as a_node:
        globals()[what](a_node)
