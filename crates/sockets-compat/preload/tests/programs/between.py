"""What two programs on two hosts do; the first argument says which of them this is."""
import ctypes, os, select, signal, socket, struct, sys, threading, time

WHAT, HOST, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
LEN = 3 << 20


def pattern(length):
    return bytes(range(251)) * (length // 251 + 1)


def is_shared(sock):
    return ctypes.CDLL(None).landfall_is_shared(sock.fileno())


def counted(sock):
    """Bytes that TCP itself has sent and received."""
    return sum(struct.unpack_from("QQ", sock.getsockopt(socket.IPPROTO_TCP, 11, 192), 120))


def receive(sock, length):
    parts = []
    while length > 0:
        part = sock.recv(min(length, 1 << 16))
        assert part, f"an end before {length} more"
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def meet(sock, is_asked=True):
    """Words to and fro, until both ways have changed; the last word says so."""
    begin = time.time()
    while is_asked:
        is_over = is_shared(sock) == 3
        assert time.time() - begin < 60, "they do not find each other"
        sock.sendall(b"over" if is_over else b"word")
        assert receive(sock, 4) == b"back"
        if is_over:
            return
    while True:
        word = receive(sock, 4)
        sock.sendall(b"back")
        if word == b"over":
            return


def called():
    family = socket.AF_INET6 if ":" in HOST else socket.AF_INET
    listener = socket.create_server((HOST, PORT), family=family)
    sock, _ = listener.accept()
    listener.close()
    meet(sock, is_asked=False)
    return sock


def call():
    sock = socket.create_connection((HOST, PORT))
    meet(sock)
    return sock


def how_it_ends(sock):
    """All that comes, and whether that was the end or an error."""
    length = 0
    try:
        while part := sock.recv(1 << 16):
            length += len(part)
        return length, "end"
    except OSError as why:
        return length, why.strerror


def expect_end(sock, length, how):
    end = how_it_ends(sock)
    assert end == (length, how), end


def echo():
    sock = called()
    while part := sock.recv(1 << 16):
        sock.sendall(part)
    sock.sendall(b"bye")
    sock.close()


def say_who():
    """Tells each of two that call who it is, as TCP says, when it is told to go on."""
    signal.alarm(100)
    family = socket.AF_INET6 if ":" in HOST else socket.AF_INET
    listener = socket.create_server((HOST, PORT), family=family)
    socks = [listener.accept()[0] for _ in range(2)]
    print("accepted", flush=True)
    sys.stdin.readline()
    for _ in range(50):
        for sock in socks:
            assert receive(sock, 4) == b"who?"
            sock.sendall(struct.pack("!H", sock.getpeername()[1]))


def ask_who():
    """Asks that on two connections, when it is told to go on."""
    signal.alarm(100)
    socks = [socket.create_connection((HOST, PORT)) for _ in range(2)]
    print("called", flush=True)
    sys.stdin.readline()
    for _ in range(50):
        for sock in socks:
            sock.sendall(b"who?")
        for sock in socks:
            assert receive(sock, 2) == struct.pack("!H", sock.getsockname()[1]), "another's"
        time.sleep(0.02)


def say_bye():
    """Says one word when all has come, and is gone."""
    sock = called()
    assert how_it_ends(sock) == (0, "end")
    print("knows", flush=True)
    time.sleep(2)
    sock.sendall(b"bye")
    sock.close()
    print("gone", flush=True)


def hear_bye():
    sock = call()
    sock.shutdown(socket.SHUT_WR)
    expect_end(sock, 3, "end")
    print("all came back")


def bye_and_gone():
    sock = called()
    sock.sendall(b"bye")
    assert how_it_ends(sock) == (0, "end")
    print("knows", flush=True)
    time.sleep(2)
    sock.close()


def hear_edges():
    """The end has an edge of its own, though bytes before it were not read."""
    sock = call()
    sock.shutdown(socket.SHUT_WR)
    edges = select.epoll()
    edges.register(sock, select.EPOLLIN | select.EPOLLET | select.EPOLLRDHUP)
    assert edges.poll(60) == [(sock.fileno(), select.EPOLLIN)]
    print("heard", flush=True)
    told = edges.poll(60)
    assert len(told) == 1 and told[0][1] & select.EPOLLRDHUP, told
    assert edges.poll(0.1) == []
    expect_end(sock, 3, "end")


def ask():
    sock = call()
    before = counted(sock)
    for length in (1, 1000, 300_000, LEN):
        message = pattern(length)[:length]
        sender = threading.Thread(target=sock.sendall, args=(message,))
        sender.start()
        assert receive(sock, length) == message
        sender.join()
    by_tcp = counted(sock) - before
    assert by_tcp < 50_000, f"{by_tcp} bytes went by TCP"
    sock.shutdown(socket.SHUT_WR)
    expect_end(sock, 3, "end")
    print("all came back")


def wait():
    """Time-outs, poll, and edges of epoll."""
    sock = call()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 150_000))
    begin = time.time()
    try:
        sock.recv(1)
        raise AssertionError("nothing was sent")
    except BlockingIOError:
        assert time.time() - begin >= 0.14
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    assert poll.poll(50) == []
    # Longer than anybody looks by himself: the ring has to wake it.
    answer = threading.Timer(2.5, lambda: sock.sendall(b"word"))
    answer.start()
    assert poll.poll(60_000) == [(sock.fileno(), select.POLLIN)]
    assert receive(sock, 4) == b"word"
    edges = select.epoll()
    edges.register(sock, select.EPOLLIN | select.EPOLLET | select.EPOLLRDHUP)
    assert edges.poll(0.05) == []
    for _ in range(3):
        sock.sendall(b"x")
        assert edges.poll(60) == [(sock.fileno(), select.EPOLLIN)]
        assert edges.poll(0.05) == []
        assert receive(sock, 1) == b"x"
    sock.shutdown(socket.SHUT_WR)
    while not edges.poll(60)[0][1] & select.EPOLLRDHUP:
        pass
    expect_end(sock, 3, "end")
    print("all came back")


def fork():
    sock = call()
    child = os.fork()
    if child == 0:
        sock.sendall(b"child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert receive(sock, 5) == b"child"
    sock.sendall(b"parent")
    assert receive(sock, 6) == b"parent"
    sock.shutdown(socket.SHUT_WR)
    expect_end(sock, 3, "end")
    print("all came back")


def die():
    """Sends what it has, and is killed."""
    sock = called()
    sock.sendall(pattern(LEN)[:LEN])
    os.kill(os.getpid(), signal.SIGKILL)


def close_at_once():
    sock = called()
    sock.sendall(pattern(LEN)[:LEN])
    sock.close()


def hear():
    length, how = how_it_ends(call())
    print("whole" if length == LEN and how == "end" else f"{length} {how}")


def flood():
    """Sends until it hears that nobody listens."""
    sock = call()
    print("floods", flush=True)
    try:
        while True:
            sock.sendall(bytes(10_000))
    except OSError as why:
        assert isinstance(why, (BrokenPipeError, ConnectionResetError)), why


def sit():
    """Reads nothing."""
    sock = called()
    print("sits", flush=True)
    time.sleep(300)


def stay_called():
    stay(called())


def stay_calling():
    stay(call())


def stay(sock):
    """Waits for what never comes."""
    print("stays", flush=True)
    expect_end(sock, 0, "Connection reset by peer")


def ask_when_told():
    """Speaks with an echo, and goes on when it is told."""
    sock = call()
    print("called", flush=True)
    sys.stdin.readline()
    message = pattern(LEN)[:LEN]
    sender = threading.Thread(target=sock.sendall, args=(message,))
    sender.start()
    assert receive(sock, LEN) == message
    sender.join()
    sock.shutdown(socket.SHUT_WR)
    expect_end(sock, 3, "end")
    print("all came back", flush=True)


def echo_also():
    """An echo for one that finds its partner, and then for one by TCP."""
    family = socket.AF_INET6 if ":" in HOST else socket.AF_INET
    listener = socket.create_server((HOST, PORT), family=family)
    first = listener.accept()[0]
    meet(first, is_asked=False)

    def back(sock, last_word):
        while part := sock.recv(1 << 16):
            sock.sendall(part)
        sock.sendall(last_word)
        sock.close()

    answering = threading.Thread(target=back, args=(first, b"bye"))
    answering.start()
    back(listener.accept()[0], b"")
    answering.join()


def many():
    """Connections one after another, and some at a time."""
    for turn in range(60):
        some = [socket.create_connection((HOST, PORT)) for _ in range(5)]
        for sock in some:
            sock.sendall(b"word")
        for at, sock in enumerate(some):
            assert receive(sock, 4) == b"word"
            if at % 2:
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(1) == b""
            sock.close()
    print("all came back")


def echo_many():
    listener = socket.create_server((HOST, PORT), backlog=64)

    def back(sock):
        try:
            while part := sock.recv(1 << 16):
                sock.sendall(part)
        except ConnectionResetError:
            pass
        sock.close()

    while True:
        threading.Thread(target=back, args=(listener.accept()[0],)).start()


def until_reset():
    """Speaks with an echo until the connection breaks."""
    sock = socket.create_connection((HOST, PORT))
    begin = time.time()
    try:
        while time.time() - begin < 60:
            sock.sendall(b"word")
            assert receive(sock, 4) == b"word"
            time.sleep(0.005)
        print("goes on")
    except (ConnectionResetError, BrokenPipeError):
        print("reset")


def plain():
    """Asks an echo that may be TCP for good."""
    sock = socket.create_connection((HOST, PORT))
    for length in (4, 1000, LEN):
        message = pattern(length)[:length]
        sender = threading.Thread(target=sock.sendall, args=(message,))
        sender.start()
        assert receive(sock, length) == message
        sender.join()
    sock.close()
    print("all came back")


globals()[WHAT]()
