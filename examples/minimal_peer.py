#!/usr/bin/env python3
"""A minimal peer of the Scheduled Transfer Protocol, written from docs/spec/stp.md alone.

It has connections, Transfers in both directions and what repairs losses. It exposes no
memory, answers no reads, has one link, and grants what is sure to arrive. minimal_peer_run.py
has carriers for it, and is a program.
"""
import os, struct, time
from types import SimpleNamespace

HEAD = struct.Struct(">BBHHHIHHIIIQHH")
(CONNECT, CONNECT_ANSWER, DISCONNECT, DISCONNECT_ANSWER, DISCONNECT_COMPLETE, RTS, REQUEST_ANSWER,
 RTR, CTS, DATA, REGION, REGION_ANSWER, PUT, GET, FETCH, FETCHED, STATE, STATE_ANSWER, END,
 END_ACK) = range(1, 21)
REJECTED, RESEND, LAST, SUM, LIMITED, ANSWER, NOTIFY, LINK = (1 << bit for bit in range(8))
VERSION, STU_BOUND, BUFFER, SLOTS = 3, 11, 20, 16
OFFER = VERSION << 10 | STU_BOUND << 5 | BUFFER
HAVE_PROOFS = (CONNECT_ANSWER, DISCONNECT, DISCONNECT_ANSWER, DISCONNECT_COMPLETE, REQUEST_ANSWER,
               REGION_ANSWER, FETCHED, STATE, STATE_ANSWER, END, END_ACK)
BLOCKS_AHEAD, RETRY, GIVE_UP = 4, 0.1, 40
EAGER, MOST_EAGER = 256, 1024           # bytes that come with their Request_To_Send
ALL, NO_LENGTH = (1 << 32) - 1, (1 << 64) - 1


def siphash(key, data):
    """SipHash-2-4, as a number."""
    mask, (k0, k1) = (1 << 64) - 1, struct.unpack("<QQ", key)
    a, b, c, d = (k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d,
                  k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573)
    turn = lambda word, bits: (word << bits | word >> 64 - bits) & mask
    data += bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for word in [word for word, in struct.iter_unpack("<Q", data)] + [None]:
        c, d = (c ^ 255, d) if word is None else (c, d ^ word)
        for _ in range(4 if word is None else 2):
            a, c = a + b & mask, c + d & mask
            b, d = turn(b, 13) ^ a, turn(d, 16) ^ c
            a, c = turn(a, 32) + d & mask, c + b & mask
            b, d = turn(b, 17) ^ c, turn(d, 21) ^ a
            c = turn(c, 32)
        a ^= word or 0
    return a ^ b ^ c ^ d


def internet_sum(data):
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def head_len(op, flags):
    return 56 if op in (CTS, GET, FETCH) or op == CONNECT_ANSWER and not flags & REJECTED else 40


def whole_len(op, flags, length):
    return head_len(op, flags) + (length if op == RTS and flags & LAST else 0)


def proof_at(op, flags, param):
    """Where the proof of an operation lies, or None."""
    if op in (CONNECT_ANSWER, REGION_ANSWER) and not flags & REJECTED:
        return slice(48, 56) if op == CONNECT_ANSWER else slice(24, 28)
    if op == STATE_ANSWER and param & 255 == 1:
        return slice(20, 24)
    return slice(20, 28) if op in HAVE_PROOFS else None


def ahead_of(base, number):
    """How far a serial number lies ahead of another, modulo 2^32."""
    return (number - base + (1 << 31) & ALL) - (1 << 31)


class Failed(Exception):
    pass


class Timer:
    """When to say something again: with back-off and a bound."""
    def __init__(self, first=RETRY, at_once=False):
        self.first, self.count, self.at = first, 0, time.monotonic() + first * (not at_once)

    def is_due(self):
        if time.monotonic() < self.at:
            return False
        self.count += 1
        self.at = time.monotonic() + self.first * min(1 << self.count, 16)
        if self.count > GIVE_UP:
            raise Failed("the other side has stopped answering")
        return True


class Connection:
    def __init__(self, peer, address, port, peer_port):
        self.peer, self.address, self.port, self.peer_port = peer, address, port, peer_port
        self.id, self.key, self.secret = peer.new_id(), int.from_bytes(os.urandom(4)), os.urandom(8)
        self.peer_id, self.peer_key, self.peer_secret = 0, 0, bytes(8)
        self.is_answered = self.is_proven = False
        self.is_closing = self.peer_closes = self.is_closed = False
        self.stu, self.slots, self.eager = 1 << STU_BOUND, 1, 0
        self.timer, self.closing = Timer(), Timer(RETRY, True)
        self.queue, self.sends, self.next_send = [], {}, 0
        self.receives, self.next_receive, self.missing, self.failed = {}, 0, set(), {}
        self.received, self.last_bufx = [], int.from_bytes(os.urandom(4))
        peer.connections[self.key] = self

    def say(self, op, flags=0, param=0, number=0, bufx=0, offset=0, length=0, d_id=0, s_id=0,
            more=b"", payload=b"", sync=None):
        sync = number & 0xffff if sync is None else sync & 0xffff
        head = bytearray(HEAD.pack(op, flags | SUM, param, self.peer_port, self.port, self.peer_key,
                                   0, sync, number, bufx, offset, length, d_id, s_id) + more)
        if place := proof_at(op, flags, param):
            proof = siphash(self.peer_secret + self.secret, bytes(head)).to_bytes(8)
            head[place] = proof[:place.stop - place.start]
        head[12:14] = (0xffff - internet_sum(head + payload)).to_bytes(2)
        self.peer.carrier.send(bytes(head) + payload, self.address)

    def connect(self):
        secret = int.from_bytes(self.secret)
        self.say(CONNECT, 0, OFFER, secret >> 32, self.key, SLOTS, 0, secret & 0xffff, self.id,
                 sync=secret >> 16)

    def answer(self):
        self.say(CONNECT_ANSWER, 0, OFFER, 0, self.key, SLOTS, 0, self.peer_id, self.id,
                 more=self.secret + bytes(8))

    def learn(self, param, key, offset, id):
        self.stu, self.slots = min(1 << STU_BOUND, 1 << (param >> 5 & 31)), offset & 255
        self.peer_key, self.peer_id, self.is_answered = key, id, True

    # ---- Transfers that this side sends ----

    def send(self, data):
        self.queue.append(data)

    def say_sends(self):
        while self.queue and self.is_proven and len(self.sends) < self.slots:
            data = self.queue.pop(0)
            self.sends[self.peer.new_id()] = SimpleNamespace(
                number=self.next_send, data=data, length=len(data), peer_id=0, lead=None,
                seen=set(), is_heard=False, is_limited=False, timer=Timer(RETRY, True))
            self.next_send = self.next_send + 1 & ALL
        for id, send in self.sends.items():
            if send.timer.is_due():
                if send.is_heard:
                    self.say(STATE, 0, 1, send.number, d_id=send.peer_id, s_id=id)
                else:
                    is_eager = send.timer.count == 1 and 0 < send.length <= self.eager
                    self.say(RTS, LAST if is_eager else 0, BUFFER, send.number, 0, 0, send.length,
                             0, id, payload=send.data if is_eager else b"")

    def granted(self, send, flags, param, block, bufx, offset, length, sync, stu):
        size = param & 31
        key = bufx, param >> 10             # which grant of which Block
        if sync != send.number & 0xffff or key in send.seen or (
                flags & LIMITED and not send.is_limited or flags & RESEND and send.lead is None):
            return
        if flags & RESEND:
            wanted = [bit for bit in range(64) if length >> bit & 1]
        else:
            send.lead, wanted = length >> 32, range(length >> 16 & 0xffff)
        send.seen.add(key)
        send.seen.discard((bufx, key[1] + 32 & 63))
        begin = max((block << size) - send.lead, 0)
        end = min((block + 1 << size) - send.lead, send.length)
        place = (offset >> size << size) + (send.lead if block == 0 else 0)
        for nth in wanted:
            at = begin + offset - place + nth * stu
            if begin <= at < end:
                payload = send.data[at:min(at + stu, end)]
                self.say(DATA, LAST if at + stu >= end else 0, 0, block, bufx, place + at - begin,
                         send.number << 32, send.peer_id, payload=payload, sync=send.number)

    # ---- Transfers that this side receives ----

    def offered(self, number, param, length, peer_id, data=b""):
        for id, receive in self.receives.items():
            if receive.number == number:
                return self.say_progress(id, receive)
        if self.is_over(number):
            return self.say_over(number, peer_id)
        ahead = ahead_of(self.next_receive, number)
        if len(self.missing) + ahead >= SLOTS or self.peer_closes:
            return
        self.enter(number)
        if data:                            # all of it is here
            self.received.append(bytes(data))
            return self.say_over(number, peer_id)
        stu = min(self.stu, self.peer.carrier.longest - 40) // 8 * 8
        size = min(param & 31, BUFFER, (64 * stu).bit_length() - 1)     # a bitmap has 64 bits
        self.receives[self.peer.new_id()] = SimpleNamespace(
            number=number, peer_id=peer_id, memory=bytearray(length), size=size,
            stu=min(stu, 1 << size), count=-(-length >> size), next=0, blocks={})

    def is_over(self, number):
        return ahead_of(self.next_receive, number) < 0 and number not in self.missing

    def enter(self, number):
        """The numbers before it that did not come may still come."""
        while ahead_of(self.next_receive, number) >= 0:
            self.missing.add(self.next_receive)
            self.next_receive = self.next_receive + 1 & ALL
        self.missing.discard(number)

    def say_over(self, number, peer_id):
        if number in self.failed:
            self.say(REQUEST_ANSWER, REJECTED, self.failed[number], number, d_id=peer_id)
        else:
            self.say(STATE_ANSWER, LAST, 1, number, length=NO_LENGTH, d_id=peer_id)

    def say_progress(self, id, receive, flags=0):
        acked = min(receive.blocks, default=receive.next)
        self.say(STATE_ANSWER, flags, 1, receive.number, 0, acked, len(receive.memory),
                 receive.peer_id, id)

    def say_grants(self):
        for id, receive in list(self.receives.items()):
            while receive.next < receive.count and len(receive.blocks) < BLOCKS_AHEAD:
                at = receive.next << receive.size
                length = min(1 << receive.size, len(receive.memory) - at)
                self.last_bufx = self.last_bufx + 0x10001 & ALL
                receive.blocks[receive.next] = SimpleNamespace(
                    bufx=self.last_bufx, at=at, length=length, attempt=0, timer=Timer(RETRY, True),
                    missing=(1 << -(-length // receive.stu)) - 1, is_first=True)
                receive.next += 1
            for number, block in receive.blocks.items():
                if block.timer.is_due():
                    self.grant(id, receive, number, block)
            if receive.next == receive.count and not receive.blocks:
                del self.receives[id]
                self.received.append(bytes(receive.memory))
                self.say_progress(id, receive, LAST)

    def grant(self, id, receive, number, block):
        block.attempt, acked = block.attempt + 1 & 63, min(receive.blocks)
        count = block.missing.bit_length()
        is_whole = block.missing == (1 << count) - 1 and block.is_first
        wanted = count << 16 | number - acked if is_whole else block.missing
        self.say(CTS, 0 if is_whole else RESEND, block.attempt << 10 | receive.size, number,
                 block.bufx, block.at & ALL, wanted, receive.peer_id, id,
                 receive.stu.to_bytes(2) + EAGER.to_bytes(2) + bytes(12), sync=receive.number)

    def arrived(self, packet, flags, sync, number, bufx, offset, length, id):
        receive = self.receives.get(id)
        block = receive and receive.blocks.get(number)
        if not block or (block.bufx, receive.number, receive.number & 0xffff) != (
                bufx, length >> 32, sync):
            return
        within = offset - (block.at & ALL)
        (nth, rest), take = divmod(within, receive.stu), min(receive.stu, block.length - within)
        packet = packet[:40 + take]         # what is behind is padding
        if within < 0 or take <= 0 or rest or len(packet) < 40 + take:
            return
        if not block.missing >> nth & 1 or flags & SUM and internet_sum(packet) != 0xffff:
            return
        receive.memory[block.at + within:block.at + within + take] = packet[40:]
        block.missing, block.is_first, block.timer = block.missing & ~(1 << nth), False, Timer()
        if block.missing == 0:
            del receive.blocks[number]
        elif flags & LAST:                  # what is missing was lost, or comes at once
            block.timer = Timer(RETRY / 10)

    def ended(self, flags, reason, number, d_id, s_id):
        transfers = self.sends if flags & ANSWER else self.receives
        for id in [id for id, known in transfers.items() if known.number == number]:
            del transfers[id]
            self.failed[number] = 8
            if flags & ANSWER:
                raise Failed(f"Transfer {number} was ended: reason {reason}")
        if not flags & ANSWER and not self.is_over(number):
            self.enter(number)
            self.failed[number] = 8
        self.say(END_ACK, flags & ANSWER, 0, number, d_id=s_id, s_id=d_id)

    # ---- What comes ----

    def handle(self, packet, fields, address):
        op, flags, param, _, _, _, _, sync, number, bufx, offset, length, d_id, s_id = fields
        if op == DATA:
            return self.arrived(packet, flags, sync, number, bufx, offset, length, d_id)
        is_taken = op == CONNECT_ANSWER and not flags & REJECTED
        secret = packet[40:48] if is_taken else self.peer_secret
        if place := proof_at(op, flags, param):
            blank = bytearray(packet)
            blank[12:14], blank[place] = bytes(2), bytes(place.stop - place.start)
            proof = siphash(self.secret + secret, bytes(blank)).to_bytes(8)
            if packet[place] != proof[:place.stop - place.start]:
                return
            self.is_proven = self.is_proven or self.is_answered
        if op == CONNECT_ANSWER:
            if flags & REJECTED:
                raise Failed(f"the connection was refused: reason {param}")
            self.address, self.peer_secret = address, secret
            self.learn(param, bufx, offset, s_id)
            self.say_alive()
        elif op == DISCONNECT and flags & REJECTED:
            self.say(DISCONNECT_COMPLETE, d_id=self.peer_id, s_id=self.id)
            self.is_closed = True
        elif op == DISCONNECT:
            self.peer_closes = True
        elif op == DISCONNECT_ANSWER:
            self.say(DISCONNECT_COMPLETE, d_id=self.peer_id, s_id=self.id)
            self.is_closed = True
        elif op == DISCONNECT_COMPLETE:
            self.is_closed = True
        elif op == STATE and param == 0:
            self.say(STATE_ANSWER, length=length, d_id=self.peer_id, s_id=self.id)
        elif op == STATE_ANSWER and param == 0:
            self.closing.count = min(self.closing.count, 4)     # it is alive
        elif self.is_proven:
            self.handle_request(fields, packet[40:])

    def handle_request(self, fields, behind):
        op, flags, param, _, _, _, _, sync, number, bufx, offset, length, d_id, s_id = fields
        send = self.sends.get(d_id)
        if op == RTS and not flags & ANSWER:
            self.offered(number, param, length, s_id, behind if length <= EAGER else b"")
        elif op == STATE and param == 1 and not self.is_over(number):
            return                          # what is under way speaks for itself
        elif op == STATE and param == 1:
            self.offered(number, 0, 0, s_id)
        elif op == RTR:
            self.say(REQUEST_ANSWER, REJECTED | ANSWER, 1, number, d_id=s_id)
        elif op == REGION:
            self.say(REGION_ANSWER, REJECTED, 9, number, d_id=s_id)
        elif op == END:
            self.ended(flags, param, number, d_id, s_id)
        elif send and (op == CTS or number == send.number):
            if op == REQUEST_ANSWER and flags & REJECTED:
                raise Failed(f"Transfer {number} was refused: reason {param}")
            if op == STATE_ANSWER and flags & LAST:
                del self.sends[d_id]
                return
            send.is_heard, send.peer_id, send.timer = True, s_id, Timer(4 * RETRY)
            if op == CTS:
                stu, self.eager = struct.unpack(">HH", behind[:4])
                self.granted(send, flags, param, number, bufx, offset, length, sync, stu)
            elif op == STATE_ANSWER or flags & LIMITED:
                send.length, send.is_limited = min(length, len(send.data)), True

    def say_alive(self):
        """It carries a proof: before the first, who was asked takes nothing else."""
        self.say(STATE, length=int.from_bytes(os.urandom(8)), d_id=self.peer_id, s_id=self.id)

    def tick(self):
        if not self.is_proven and self.timer.is_due():
            self.say_alive() if self.is_answered else self.connect()
        self.say_sends()
        self.say_grants()
        is_idle = not (self.queue or self.sends or self.receives or self.is_closed)
        if is_idle and (self.is_closing or self.peer_closes) and self.closing.is_due():
            self.say(DISCONNECT_ANSWER if self.peer_closes else DISCONNECT, d_id=self.peer_id,
                     s_id=self.id)
            self.say_alive()                # answered while the other side is not yet done


class Peer:
    """Has connections, by the keys that it drew for them, over one carrier."""
    def __init__(self, carrier, port=None):
        self.carrier, self.port, self.connections, self.ids = carrier, port, {}, 0

    def new_id(self):
        self.ids = self.ids % 0xfffe + 1
        return self.ids

    def turn(self):
        for packet, address in self.carrier.receive(0.005):
            self.handle(packet, address)
        for connection in list(self.connections.values()):
            connection.tick()

    def handle(self, packet, address):
        """Checks what can be checked without knowing more, and finds the connection."""
        if len(packet) < 40:
            return
        fields = HEAD.unpack(packet[:40])
        op, flags, param, d_port, s_port, key = fields[:6]
        whole = whole_len(op, flags, fields[11])
        if len(packet) < whole or op == RTS and whole > 40 + MOST_EAGER:
            return
        if op in (STATE, STATE_ANSWER) and param & 255 == 5:
            return                          # sizes: who does not answer gets what is sure
        if op != DATA:
            packet = packet[:whole]         # what is behind is padding
            if not flags & SUM or internet_sum(packet) != 0xffff:
                return
        if op == CONNECT:
            return self.requested(fields, address)
        known = self.connections.get(key)
        if known and (d_port, s_port) == (known.port, known.peer_port):
            if address == known.address or op == CONNECT_ANSWER and not known.is_answered:
                known.handle(packet, fields, address)

    def requested(self, fields, address):
        _, _, param, d_port, s_port, _, _, sync, number, key, offset, _, d_id, id = fields
        for known in self.connections.values():
            if (known.address, known.peer_key) == (address, key):
                return known.answer()
        if d_port != self.port or param >> 10 != VERSION:
            return
        connection = Connection(self, address, d_port, s_port)
        connection.peer_secret = (number << 32 | sync << 16 | d_id).to_bytes(8)
        connection.learn(param, key, offset, id)
        connection.answer()
