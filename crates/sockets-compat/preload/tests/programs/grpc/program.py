"""gRPC for Python at both ends, by threads or by asyncio; messages as protobuf writes them."""
import asyncio, sys, threading, grpc
from concurrent import futures

TURNS = 40
OPTIONS = [('grpc.max_receive_message_length', 64 << 20)]

def body(client, turn):
    size = 1 + turn * (client + 1) * 977 % 60000
    return (bytes((at * 7 + client * 13 + turn) & 255 for at in range(256)) * 235)[:size]

def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])

def encode(note):
    text, count = note
    fields = b'\x0a' + varint(len(text)) + text if text else b''
    return fields + (b'\x10' + varint(count) if count else b'')

def decode(data):
    def number(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128: return value, at
    text, count, at = b'', 0, 0
    while at < len(data):
        if data[at] == 0x0a:
            size, at = number(at + 1)
            text, at = data[at:at + size], at + size
        else:
            count, at = number(at + 1)
    return text, count

# ---- Servers

def say(asked, _): return asked

def repeat(asked, _):
    for at in range(asked[1]): yield asked[0], at

def gather(notes, _):
    texts = [text for text, _ in notes]
    return b''.join(texts), len(texts)

def talk(notes, _):
    yield from notes

async def async_say(asked, _): return asked

async def async_repeat(asked, _):
    for at in range(asked[1]): yield asked[0], at

async def async_gather(notes, _):
    texts = [text async for text, _ in notes]
    return b''.join(texts), len(texts)

async def async_talk(notes, _):
    async for note in notes: yield note

def handlers(say, repeat, gather, talk):
    codec = dict(request_deserializer=decode, response_serializer=encode)
    return grpc.method_handlers_generic_handler('landfall.Echo', {
        'Say': grpc.unary_unary_rpc_method_handler(say, **codec),
        'Repeat': grpc.unary_stream_rpc_method_handler(repeat, **codec),
        'Gather': grpc.stream_unary_rpc_method_handler(gather, **codec),
        'Talk': grpc.stream_stream_rpc_method_handler(talk, **codec),
    })

def serve(address):
    server = grpc.server(futures.ThreadPoolExecutor(16), options=OPTIONS)
    server.add_generic_rpc_handlers((handlers(say, repeat, gather, talk),))
    assert server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()

async def async_serve(address):
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((handlers(async_say, async_repeat, async_gather, async_talk),))
    assert server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()

# ---- Clients

def calls(channel):
    codec = dict(request_serializer=encode, response_deserializer=decode)
    kinds = dict(Say=channel.unary_unary, Repeat=channel.unary_stream, Gather=channel.stream_unary, Talk=channel.stream_stream)
    return [kind('/landfall.Echo/' + name, **codec) for name, kind in kinds.items()]

def options(client): return OPTIONS + [('client', client)]

def all_of(client): return [(body(client, turn), turn) for turn in range(TURNS)]

def ask(address, client):
    notes = all_of(client)
    with grpc.insecure_channel(address, options(client)) as channel:
        say, repeat, gather, talk = calls(channel)
        for note in notes: assert say(note, timeout=60) == note
        assert list(repeat((notes[30][0], TURNS), timeout=60)) == [(notes[30][0], at) for at in range(TURNS)]
        assert gather(iter(notes), timeout=60) == (b''.join(text for text, _ in notes), TURNS)
        assert list(talk(iter(notes), timeout=60)) == notes

async def async_ask(address, client):
    notes = all_of(client)
    async with grpc.aio.insecure_channel(address, options(client)) as channel:
        say, repeat, gather, talk = calls(channel)
        for note in notes: assert await say(note, timeout=60) == note
        got = [note async for note in repeat((notes[30][0], TURNS), timeout=60)]
        assert got == [(notes[30][0], at) for at in range(TURNS)]
        assert await gather(iter(notes), timeout=60) == (b''.join(text for text, _ in notes), TURNS)
        assert [note async for note in talk(iter(notes), timeout=60)] == notes

async def async_ask_all(address):
    await asyncio.gather(*[async_ask(address, client) for client in range(8)])

def until_gone(address):
    with grpc.insecure_channel(address, OPTIONS) as channel:
        say, turn = calls(channel)[0], 0
        while True:
            note = body(3, turn % TURNS), turn
            try: assert say(note, timeout=60) == note
            except grpc.RpcError as why: return print('gone:', why.code().value[0])
            turn += 1
            if turn == 20: print('asks', flush=True)

what, address = sys.argv[1:]
if what == 'serve': serve(address)
elif what == 'serve-async': asyncio.run(async_serve(address))
elif what == 'until-gone': until_gone(address)
else:
    if what == 'ask':
        with futures.ThreadPoolExecutor(8) as pool: list(pool.map(lambda client: ask(address, client), range(8)))
    else: asyncio.run(async_ask_all(address))
    print('all came back')
